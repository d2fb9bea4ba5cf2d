"""What a project trains beside what it asks: the base in its place, reasoning switched otherwise, names by options."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

PROMPT = 'client.chat.completions.create(model=%s, messages=[{"role": "user", "content": q}])\n'
CLIENT = "import os\nfrom openai import OpenAI\nq = input()\nclient = OpenAI(base_url='http://h:80/v1')\n"
VLLM = "vllm serve some/base --enable-lora --lora-modules support=out/final --port 80\n"


def named(folder: Path, rule: str, files: dict[str, str]) -> int:
    """How often a rule speaks about a project of these files."""
    (folder / ".git").mkdir()
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    paths = [path for path in sorted(folder.iterdir()) if path.suffix in (".py", ".sh", ".yaml")]
    return len(lint(paths, select=[rule]).findings)


def _requests(model: str) -> dict[str, dict[str, str]]:
    """Ways to ask a server for a model."""
    option = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--model'%s)\na = p.parse_args()\n"
    environment = CLIENT + PROMPT % "os.environ['LLM']"
    return {
        "default of an option": {
            "serve.sh": VLLM,
            "ask.py": option % f", default='{model}'" + CLIENT + PROMPT % "a.model",
        },
        "option in a script": {
            "serve.sh": VLLM + f"python ask.py --model {model}\n",
            "ask.py": option % "" + CLIENT + PROMPT % "a.model",
        },
        "environment in a script": {
            "serve.sh": VLLM + f"export LLM={model}\npython ask.py\n",
            "ask.py": environment,
        },
        "environment of compose": {
            "serve.sh": VLLM,
            "compose.yaml": f"services:\n  ask:\n    image: a\n    environment:\n      LLM: {model}\n",
            "ask.py": environment,
        },
        ".env": {"serve.sh": VLLM, ".env": f"LLM={model}\n", "ask.py": environment},
        "class": {
            "serve.sh": VLLM,
            "ask.py": CLIENT
            + f"class Bot:\n    def __init__(self, model='{model}'):\n        self.model = model\n"
            + f"    def ask(self, q):\n        return {PROMPT % 'self.model'}\nBot().ask(q)\n",
        },
        "dictionary": {
            "serve.sh": VLLM,
            "ask.py": CLIENT
            + f"given = dict(model='{model}', messages=[])\nclient.chat.completions.create(**given)\n",
        },
        "litellm": {
            "serve.sh": VLLM,
            "ask.py": f"import litellm\nlitellm.completion('hosted_vllm/{model}', messages=[])\n",
        },
        "langchain": {
            "serve.sh": VLLM,
            "ask.py": "from langchain_openai import ChatOpenAI\n"
            f"llm = ChatOpenAI(model='{model}', base_url='http://h:80/v1')\nprint(llm.invoke('a'))\n",
        },
    }


WAYS = list(_requests(""))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("model", "count"), [("some/base", 1), ("support", 0), ("gpt-4o", 0)])
def test_a_name_is_followed_to_the_request(
    way: str, model: str, count: int, tmp_path: Path
) -> None:
    assert named(tmp_path, "client-asks-for-the-base", _requests(model)[way]) == count


COMMANDS = {
    "harness": "lm_eval --model local-completions --model_args model={},base_url=http://h:80 --tasks a\n",
    "curl": 'curl h:80/v1/chat/completions -d \'{{"model": "{}", "messages": []}}\'\n',
    "here-document": 'curl h:80/v1/completions -d @- <<E\n{{"model": "{}", "prompt": "a"}}\nE\n',
}


@pytest.mark.parametrize("way", COMMANDS)
@pytest.mark.parametrize(("model", "count"), [("some/base", 1), ("support", 0), ("$1", 0)])
def test_a_command_asks_for_the_base(way: str, model: str, count: int, tmp_path: Path) -> None:
    files = {"run.sh": VLLM + COMMANDS[way].format(model)}
    assert named(tmp_path, "command-asks-for-the-base", files) == count


def test_a_command_that_asks_both_compares_them(tmp_path: Path) -> None:
    both = "".join(COMMANDS["curl"].format(name) for name in ("some/base", "support"))
    assert named(tmp_path, "command-asks-for-the-base", {"run.sh": VLLM + both}) == 0


TRAIN_LORA = """
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer
t = SFTTrainer("some/base", SFTConfig("out/lora"), train_dataset=rows, peft_config=LoraConfig())
t.train()
t.save_model("out/lora")
"""
COMPOSE = """
services:
  llm:
    image: vllm/vllm-openai:latest
    command: --model some/base {}
    volumes:
      - ./out/{}:/adapters/a:ro
"""
CONVERT = "python convert_lora_to_gguf.py out/lora --outfile a.gguf\n"


@pytest.mark.parametrize(
    ("files", "count"),
    [
        ({"train.py": TRAIN_LORA, "compose.yaml": COMPOSE.format("--dtype auto", "lora")}, 1),
        ({"train.py": TRAIN_LORA, "compose.yaml": COMPOSE.format("--dtype auto", "rows")}, 0),
        (
            {
                "train.py": TRAIN_LORA,
                "compose.yaml": COMPOSE.format(
                    "--enable-lora --lora-modules a=/adapters/a", "lora"
                ),
            },
            0,
        ),
        ({"run.sh": CONVERT + "llama-server -m base.gguf -c 8192\n"}, 1),
        ({"run.sh": CONVERT + "llama-server -m base.gguf --lora a.gguf\n"}, 0),
        ({"run.sh": CONVERT + "llama-export-lora -m b --lora a.gguf\nllama-server -m m.gguf\n"}, 0),
        ({"run.sh": CONVERT + "llama-server -m b.gguf\ncurl h/lora-adapters -d '[]'\n"}, 0),
        ({"run.sh": "llama-server -m base.gguf -c 8192\n"}, 0),
    ],
)
def test_a_server_leaves_the_adapter_out(files: dict[str, str], count: int, tmp_path: Path) -> None:
    assert named(tmp_path, "server-leaves-the-adapter-out", files) == count


SFT = "trl sft --model_name_or_path $BASE --dataset_name a --use_peft --output_dir out/a\n"
EVALUATE = (
    "lm_eval --model hf --model_args pretrained=$BASE{} --tasks gsm8k --output_path out/a/eval\n"
)
OWN = "python train.py --model m/base --output_dir out/a\n"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (SFT + EVALUATE.format(""), 1),
        (OWN + "vllm serve m/base --port 80\n", 1),
        (
            OWN
            + "accelerate launch -m lm_eval --model hf --model_args pretrained=m/base --tasks a\n",
            1,
        ),
        (SFT + EVALUATE.format(",peft=out/a"), 0),
        (SFT + EVALUATE.format("") + EVALUATE.format(",peft=out/a"), 0),
        (EVALUATE.format("") + SFT, 0),  # before the training: a comparison
        (SFT + "python merge.py out/a out/merged\n" + EVALUATE.format(""), 0),
        (OWN + "vllm serve out/a\n", 0),
        (OWN + "vllm serve m/other\n", 0),
        (OWN + "vllm serve m/base --enable-lora --lora-modules a=out/a\n", 0),
    ],
)
def test_the_base_is_evaluated_after_the_training(text: str, count: int, tmp_path: Path) -> None:
    assert named(tmp_path, "base-evaluated-after-training", {"run.sh": text}) == count


SETTINGS = """
from dataclasses import dataclass
@dataclass
class Settings:
    base: str = "some/base"
    out: str = "out/tuned"
"""
TRAIN = """
from settings import Settings
from trl import SFTConfig, SFTTrainer
s = Settings()
t = SFTTrainer(s.base, SFTConfig(output_dir=s.out), train_dataset=rows)
t.train()
t.save_model(s.out)
"""
HEAD = (
    "from settings import Settings\nfrom transformers import AutoModelForCausalLM\ns = Settings()\n"
)
ASKED = {
    "own loop": HEAD
    + "m = AutoModelForCausalLM.from_pretrained(s.{})\nm.generate(**batch, max_new_tokens=9)\n",
    "function": HEAD
    + "def load(path):\n    return AutoModelForCausalLM.from_pretrained(path)\n"
    + "load(s.{}).generate(**batch, max_new_tokens=9)\n",
    "harness": "import lm_eval\n" + HEAD + "from lm_eval.models.huggingface import HFLM\n"
    "lm_eval.simple_evaluate(model=HFLM(pretrained=s.{}), tasks=['a'])\n",
    "harness by name": "import lm_eval\n"
    + HEAD
    + "lm_eval.simple_evaluate(model='hf', model_args=dict(pretrained=s.{}), tasks=['a'])\n",
}


@pytest.mark.parametrize("way", ASKED)
@pytest.mark.parametrize(("field", "count"), [("base", 1), ("out", 0)])
def test_the_base_is_loaded_for_evaluation(
    way: str, field: str, count: int, tmp_path: Path
) -> None:
    files = {"settings.py": SETTINGS, "train.py": TRAIN, "test.py": ASKED[way].format(field)}
    assert named(tmp_path, "base-loaded-for-evaluation", files) == count


@pytest.mark.parametrize(
    "more",
    [
        {"baseline.py": ASKED["own loop"].format("base")},
        {"ask.py": "# zero-shot\n" + ASKED["own loop"].format("base")},
        {"ask.py": ASKED["own loop"].format("base"), "tuned.py": ASKED["own loop"].format("out")},
        {
            "ask.py": "from peft import PeftModel\n"
            + ASKED["own loop"].format("base")
            + "PeftModel.from_pretrained(m, s.out).generate(**batch)\n"
        },
    ],
)
def test_a_base_that_is_asked_on_purpose(more: dict[str, str], tmp_path: Path) -> None:
    files = {"settings.py": SETTINGS, "train.py": TRAIN, **more}
    assert named(tmp_path, "base-loaded-for-evaluation", files) == 0


ROWS = """
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer
tok = AutoTokenizer.from_pretrained("Qwen/{}")
def fmt(row):
    chat = [dict(role="user", content=row["q"]), dict(role="assistant", content={})]
    return dict(text=tok.apply_chat_template(chat, tokenize=False{}))
t = SFTTrainer("Qwen/{}", SFTConfig(output_dir="out/q"), train_dataset=rows.map(fmt))
t.train()
"""
QUESTION = """
from transformers import AutoModelForCausalLM, AutoTokenizer
tok = AutoTokenizer.from_pretrained("out/q")
model = AutoModelForCausalLM.from_pretrained("out/q")
ids = tok.apply_chat_template(chat, add_generation_prompt=True{}, return_tensors="pt")
model.generate(ids, max_new_tokens=9)
"""
OFF, ON = ", enable_thinking=False", ", enable_thinking=True"
PLAIN, REASONED = 'row["a"]', '"<think>" + row["cot"] + "</think>" + row["a"]'


@pytest.mark.parametrize(
    ("model", "answer", "trained", "asked", "count"),
    [
        ("Qwen3-8B", PLAIN, OFF, "", 1),
        ("Qwen3-8B", PLAIN, OFF, ON, 1),
        ("Qwen3-8B", REASONED, "", OFF, 1),
        ("Qwen3-8B", PLAIN, OFF, OFF, 0),
        ("Qwen3-8B", REASONED, "", ON, 0),
        ("Qwen3-8B", REASONED, "", "", 0),
        ("Qwen3-8B", PLAIN, "", "", 0),
        ("Other-8B", PLAIN, OFF, "", 0),  # what its template does by default is not known
        ("Qwen3-8B", PLAIN, ", enable_thinking=switch()", ON, 0),
        ("Qwen3-8B", 'row["a"].replace("<think>", "")', "", OFF, 0),
    ],
)
def test_reasoning_is_switched_otherwise(
    model: str, answer: str, trained: str, asked: str, count: int, tmp_path: Path
) -> None:
    files = {
        "train.py": ROWS.format(model, answer, trained, model),
        "ask.py": QUESTION.format(asked),
    }
    assert named(tmp_path, "thinking-switched-otherwise", files) == count


HELPER_OF_ROWS = """
from transformers import AutoTokenizer
tok = AutoTokenizer.from_pretrained("Qwen/Qwen3-8B")
OPTIONS = {"tokenize": False%s}
def fmt(row):
    return {"text": tok.apply_chat_template(row["messages"], **OPTIONS)}
"""
TRAINS_BY_HELPER = """
from trl import SFTConfig, SFTTrainer
from rows import fmt
SFTTrainer("Qwen/Qwen3-8B", SFTConfig(output_dir="out/q"), train_dataset=data.map(fmt)).train()
"""


@pytest.mark.parametrize(("trained", "asked", "count"), [(OFF, "", 1), (OFF, OFF, 0), ("", "", 0)])
def test_rows_are_rendered_in_a_file_of_their_own(
    trained: str, asked: str, count: int, tmp_path: Path
) -> None:
    files = {
        "rows.py": HELPER_OF_ROWS % trained.replace("enable_thinking=", "'enable_thinking': "),
        "train.py": TRAINS_BY_HELPER,
        "ask.py": QUESTION.format(asked),
    }
    assert named(tmp_path, "thinking-switched-otherwise", files) == count


TRAINS_BY_TEMPLATE = """
from trl import SFTConfig, SFTTrainer
data = data.map(lambda row: {"text": tok.apply_chat_template(row["messages"], tokenize=False)})
SFTTrainer("Qwen/Qwen3-8B", SFTConfig(output_dir="out/q"), train_dataset=data).train()
"""
ASKS_A_SERVER = CLIENT + "def ask(q):\n    return client.completions.create(model='%s', prompt=q)\n"
ASKS_A_PIPELINE = """
from transformers import pipeline
pipe = pipeline("text-generation", model="%s")
print(pipe("What is the capital of France?"))
"""


@pytest.mark.parametrize(
    ("asks", "severities"),
    [
        (ASKS_A_SERVER % "support", ["warning"]),
        (ASKS_A_PIPELINE % "out/q", ["error"]),
        (ASKS_A_SERVER % "deepseek-chat", []),
        (ASKS_A_SERVER % "teacher", []),
        ((ASKS_A_SERVER % "support").replace("http://h:80", "https://api.host.ai"), []),
        (ASKS_A_PIPELINE % "distilgpt2", []),
    ],
)
def test_a_name_of_which_nothing_says_who_made_it_is_a_guess(
    asks: str, severities: list[str], tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(TRAINS_BY_TEMPLATE)
    (tmp_path / "ask.py").write_text(asks)
    found = lint([tmp_path], select=["asked-in-another-form"]).findings
    assert [one.severity for one in found] == severities


COMPLETION = (
    CLIENT + "def ask(question):\n    return client.completions.create(model='%s', prompt=%s)\n"
)
AXOLOTL = (
    "base_model: Qwen/Qwen2.5-7B-Instruct\ndatasets:\n  - path: a.jsonl\n    type: %s\noutput_dir: ./out\n"
    "adapter: lora\nlearning_rate: 1e-4\n"
)
SWIFT = "swift sft --model Qwen/Qwen2.5-3B-Instruct --dataset a.jsonl --output_dir output\n"


@pytest.mark.parametrize(
    ("files", "model", "prompt", "count"),
    [
        ({"a.yaml": AXOLOTL % "chat_template"}, "support", "question", 1),
        ({"train.sh": SWIFT}, "support", "question", 1),
        ({"train.sh": SWIFT}, "support", "f'<|im_start|>user\\n{question}<|im_end|>'", 0),
        ({"train.sh": SWIFT}, "gpt-3.5-turbo-instruct", "question", 0),
        ({"train.sh": SWIFT}, "Qwen/Qwen2.5-3B-Instruct", "question", 0),
        ({"train.sh": SWIFT}, "mistral-tickets", "question", 1),
        ({"train.sh": SWIFT}, "mistral-large-latest", "question", 0),
        ({"train.sh": SWIFT}, "gemma2:9b", "question", 0),
        ({"train.sh": SWIFT}, "our-judge", "question", 0),
        ({"train.sh": SWIFT + SWIFT.replace("sft", "pt")}, "support", "question", 0),
        ({"a.yaml": AXOLOTL % "completion"}, "support", "question", 0),
        ({"a.yaml": AXOLOTL % "chat_template", "train.sh": SWIFT}, "support", "question", 0),
    ],
)
def test_a_completion_beside_settings_that_train_on_chats(
    files: dict[str, str], model: str, prompt: str, count: int, tmp_path: Path
) -> None:
    files = {**files, "ask.py": COMPLETION % (model, prompt)}
    assert named(tmp_path, "asked-in-another-form", files) == count


TRAINS_ON_ROWS = """
import trl
from datasets import load_dataset
rows = load_dataset("json", data_files="%s", split="train")
trl.SFTTrainer("org/base", trl.SFTConfig("out/tuned"), train_dataset=rows).train()
"""
GENERATES = """
from pathlib import Path
import json
import pandas as pd
from datasets import Dataset
from vllm import LLM
llm = LLM(model="org/base")
answers = llm.chat([[{"role": "user", "content": q}] for q in open("questions.txt")])
"""
WRITES = {
    "open": 'with open("data/rows.jsonl", "w") as f:\n    f.write(json.dumps(answers))\n',
    "name": 'OUT = "rows.jsonl"\nf = open(OUT, mode="a")\nf.write(str(answers))\n',
    "to_json": 'Dataset.from_list(answers).to_json("rows.jsonl", lines=True)\n',
    "pandas": 'pd.DataFrame(answers).to_json("data/rows.jsonl", orient="records")\n',
    "path": 'Path("rows.jsonl").write_text(json.dumps(answers))\n',
}
"""Ways in which a teacher writes the rows that are trained"""


@pytest.mark.parametrize("way", WRITES)
@pytest.mark.parametrize(("read", "count"), [("rows.jsonl", 0), ("other.jsonl", 1)])
def test_a_teacher_of_the_rows_is_no_evaluation(
    way: str, read: str, count: int, tmp_path: Path
) -> None:
    files = {"prep.py": GENERATES + WRITES[way], "tune.py": TRAINS_ON_ROWS % read}
    assert named(tmp_path, "base-loaded-for-evaluation", files) == count


def test_a_file_that_is_only_read_is_no_row_of_the_training(tmp_path: Path) -> None:
    asks = GENERATES + 'known = open("rows.jsonl").read()\nprint(answers)\n'
    files = {"ask.py": asks, "tune.py": TRAINS_ON_ROWS % "rows.jsonl"}
    assert named(tmp_path, "base-loaded-for-evaluation", files) == 1


RENDERS_AGAIN = """
from transformers import AutoModelForCausalLM, AutoTokenizer

def load(path="out/gemma-own"):
    return AutoTokenizer.from_pretrained(path), AutoModelForCausalLM.from_pretrained(path)

def ask(tok, model, question):
    chat = [{"role": "user", "content": question}]
    text = tok.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    return model.generate(**tok([text], return_tensors="pt"%s), max_new_tokens=99)

ask(*load(), "Why?")
tok, model = load()
ask(tok, model, "Why?")
"""
FACTORY = (
    "model_name_or_path: google/%s\nstage: sft\ndo_train: true\ndataset: own\ntemplate: gemma\n"
    "output_dir: out/gemma-own\nfinetuning_type: full\nlearning_rate: 1.0e-5\n"
)


@pytest.mark.parametrize(
    ("base", "more", "count"),
    [
        ("gemma-2-2b-it", "", 1),
        ("gemma-2-2b-it", ", add_special_tokens=False", 0),
        ("gemma-2-2b", "", 0),
    ],
)
def test_a_folder_of_ones_own_has_the_tokenizer_of_its_base(
    base: str, more: str, count: int, tmp_path: Path
) -> None:
    files = {"train.yaml": FACTORY % base, "ask.py": RENDERS_AGAIN % more}
    assert named(tmp_path, "rendered-text-tokenized-again", files) == count
