"""Templates of another family than the model's, by names alone: Modelfiles, servers, Unsloth, TRL; and adapters that a
server or a Modelfile leaves out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import truetune

CHATML = '"""<|im_start|>{{ .Role }}\n{{ .Content }}<|im_end|>"""'
LLAMA3 = '"""<|start_header_id|>{{ .Role }}<|end_header_id|>{{ .Content }}<|eot_id|>"""'
SERVERS = ["vllm-adapters-not-switched-on", "server-template-of-another-family"]


def found(folder: Path, files: dict[str, str], *rules: str) -> list[str]:
    """The rules among these that speak of a folder with these files."""
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [finding.rule for finding in truetune.check([str(folder)], select=rules).findings]


@pytest.mark.parametrize(
    ("base", "template", "speaks"),
    [
        ("./Meta-Llama-3.1-8B-Instruct-Q8_0.gguf", CHATML, True),
        ("llama3.2:3b", CHATML, True),
        ("./Qwen2.5-7B-Instruct-support.Q4_K_M.gguf", LLAMA3, True),
        ("./Meta-Llama-3.1-8B-Instruct-Q8_0.gguf", LLAMA3, False),
        ("llama3.1:8b-text-q4_0", CHATML, False),
        ("./Llama-3.1-8B-support.gguf", CHATML, False),
        ("./model.gguf", CHATML, False),
    ],
)
def test_modelfile(base: str, template: str, speaks: bool, tmp_path: Path) -> None:
    rule = "modelfile-template-differs"
    assert found(tmp_path, {"Modelfile": f"FROM {base}\nTEMPLATE {template}\n"}, rule) == (
        [rule] if speaks else []
    )


CONVERT = "python convert_hf_to_gguf.py base --outfile base.gguf\n"
CONVERT_ADAPTER = "python convert_lora_to_gguf.py run --base base --outfile adapter.gguf\n"


@pytest.mark.parametrize(
    ("modelfile", "script", "speaks"),
    [
        ("FROM ./base.gguf\n", CONVERT + CONVERT_ADAPTER, True),
        ("FROM base.gguf\n", CONVERT_ADAPTER + CONVERT, True),
        ("FROM ./base.gguf\nADAPTER ./other.gguf\n", CONVERT + CONVERT_ADAPTER, True),
        ("FROM ./base.gguf\nADAPTER ./adapter.gguf\n", CONVERT + CONVERT_ADAPTER, False),
        ("FROM ./base.gguf\n", CONVERT, False),
        ("FROM ./merged.gguf\n", CONVERT + CONVERT_ADAPTER, False),
        (
            "FROM ./base.gguf\n",
            CONVERT + CONVERT_ADAPTER + "llama-export-lora -m base.gguf\n",
            False,
        ),
    ],
)
def test_adapter_of_a_script(modelfile: str, script: str, speaks: bool, tmp_path: Path) -> None:
    rule = "modelfile-serves-the-base"
    files = {"Modelfile": modelfile, "build.sh": script}
    assert found(tmp_path, files, rule) == ([rule] if speaks else [])


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("serve.sh", "llama-server -m gemma-3-4b-it-Q8_0.gguf --chat-template llama3", SERVERS[1:]),
        (
            "serve.sh",
            "llama-server -hf Qwen/Qwen2.5-7B-Instruct-GGUF:Q4_K_M --chat-template gemma",
            SERVERS[1:],
        ),
        ("serve.sh", "vllm serve Qwen/Qwen3-8B --chat-template ./llama3.jinja", SERVERS[1:]),
        (
            "compose.yaml",
            "services:\n  llm:\n    image: ghcr.io/ggml-org/llama.cpp:server\n"
            "    command: --model /m/Qwen2.5-7B-Instruct.gguf --chat-template gemma\n",
            SERVERS[1:],
        ),
        ("serve.sh", "vllm serve base --lora-modules a=./a", SERVERS[:1]),
        (
            "serve.sh",
            "docker run vllm/vllm-openai:v0.9 --model m --lora-modules a=$DIR",
            SERVERS[:1],
        ),
        ("serve.sh", 'vllm serve "$BASE" --port $PORT --lora-modules a=./a', SERVERS[:1]),
        ("serve.sh", "vllm serve base --enable-lora --lora-modules a=./a", []),
        ("serve.sh", "vllm serve base --config serve.yaml --lora-modules a=./a", []),
        ("serve.sh", "vllm serve base $EXTRA --lora-modules a=./a", []),
        ("serve.sh", "llama-server -m gemma-3-4b-it-Q8_0.gguf --chat-template gemma", []),
        ("serve.sh", "llama-server -m support.gguf --chat-template llama3", []),
        ("serve.sh", "llama-server -m Llama-3.1-8B-Instruct.gguf --chat-template chatml", []),
    ],
)
def test_servers(name: str, text: str, expected: list[str], tmp_path: Path) -> None:
    assert found(tmp_path, {name: text}, *SERVERS) == expected


UNSLOTH = """
from unsloth import FastLanguageModel
from unsloth.chat_templates import get_chat_template
from trl import SFTTrainer
NAME = "MODEL"
model, tokenizer = FastLanguageModel.from_pretrained(model_name=NAME)
tokenizer = get_chat_template(tokenizer, "TEMPLATE")
SFTTrainer(model=model, processing_class=tokenizer, train_dataset=rows).train()
"""
BY_HAND = """
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer, clone_chat_template
model = AutoModelForCausalLM.from_pretrained("google/gemma-3-4b-it")
tokenizer = AutoTokenizer.from_pretrained("google/gemma-3-4b-it")
CHANGE
SFTTrainer(model=model, processing_class=tokenizer, train_dataset=rows).train()
"""


def unsloth(model: str, template: str) -> str:
    """A training that gives its tokenizer a template of Unsloth."""
    return UNSLOTH.replace("MODEL", model).replace("TEMPLATE", template)


def by_hand(change: str) -> str:
    """A training that changes its tokenizer's template."""
    return BY_HAND.replace("CHANGE", change)


@pytest.mark.parametrize(
    ("script", "speaks"),
    [
        (unsloth("unsloth/gemma-3-4b-it", "qwen-2.5"), True),
        (unsloth("unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit", "gemma-3"), True),
        (
            by_hand(
                "tokenizer.chat_template = AutoTokenizer.from_pretrained('Qwen/Qwen3-4B').chat_template"
            ),
            True,
        ),
        (
            by_hand("model, tokenizer, _ = clone_chat_template(model, tokenizer, 'Qwen/Qwen3-4B')"),
            True,
        ),
        (by_hand("args = SFTConfig(chat_template_path='Qwen/Qwen3-4B')"), True),
        (unsloth("unsloth/gemma-3-4b-it", "gemma-3"), False),
        (unsloth("unsloth/llama-3-8b-bnb-4bit", "qwen-2.5"), False),
        (unsloth("unsloth/gemma-3-4b-it", "chatml"), False),
        (unsloth("./support-model", "qwen-2.5"), False),
        (by_hand("args = SFTConfig(chat_template_path='own.jinja')"), False),
        (
            by_hand(
                "tokenizer.chat_template = AutoTokenizer.from_pretrained('google/gemma-3-1b-it').chat_template"
            ),
            False,
        ),
    ],
)
def test_training(script: str, speaks: bool, tmp_path: Path) -> None:
    rule = "chat-template-of-another-family"
    assert found(tmp_path, {"train.py": script}, rule) == ([rule] if speaks else [])


MARKS_BY_HAND = """from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOTrainer

tokenizer = AutoTokenizer.from_pretrained("{model}")
model = AutoModelForCausalLM.from_pretrained("{model}")
{prompt}
trainer = DPOTrainer(model, train_dataset=rows.map(render), processing_class=tokenizer)
trainer.train()
"""
IN_A_ROW = """
def render(row):
    return {"prompt": f"<|im_start|>user\\n{row['question']}<|im_end|>\\n<|im_start|>assistant\\n"}
"""
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


@pytest.mark.parametrize(
    ("model", "prompt", "speaks"),
    [
        (LLAMA, IN_A_ROW, True),
        (
            LLAMA,
            'PROMPT = "<|im_start|>system\\nBe brief<|im_end|>\\n<|im_start|>user\\n{question}<|im_end|>"',
            True,
        ),
        (LLAMA, 'text = "<|im_start|>user\\n" + question + "<|im_end|>\\n"', True),
        ("google/gemma-2-9b-it", IN_A_ROW, True),
        (
            "Qwen/Qwen2.5-7B-Instruct",
            'P = "<|start_header_id|>user<|end_header_id|>\\n\\n{q}<|eot_id|>"',
            True,
        ),
        ("Qwen/Qwen2.5-7B-Instruct", IN_A_ROW, False),
        ("meta-llama/Llama-3.1-8B", IN_A_ROW, False),
        ("NousResearch/Hermes-3-Llama-3.1-8B", IN_A_ROW, False),
        (LLAMA, IN_A_ROW + 'tokenizer.add_special_tokens({"eos_token": "<|im_end|>"})', False),
        (LLAMA, IN_A_ROW + "model, tokenizer = setup_chat_format(model, tokenizer)", False),
        (LLAMA, 'turns = row["text"].split("<|im_start|>user\\n")', False),
        (
            LLAMA,
            IN_A_ROW + 'OLD = "<|start_header_id|>user<|end_header_id|>\\n\\n{q}<|eot_id|>"',
            False,
        ),
    ],
)
def test_marks_by_hand(model: str, prompt: str, speaks: bool, tmp_path: Path) -> None:
    rule = "chat-template-of-another-family"
    script = MARKS_BY_HAND.replace("{model}", model).replace("{prompt}", prompt)
    assert found(tmp_path, {"train.py": script}, rule) == ([rule] if speaks else [])


SWIFT = "swift sft --model Qwen/Qwen2.5-3B-Instruct --dataset a.jsonl --output_dir out\n"
AXOLOTL = (
    "base_model: Qwen/Qwen2.5-7B-Instruct\ndatasets:\n  - {path: a.jsonl, type: chat_template}\n"
)
SERVE_OWN = "llama-server -m models/own-Q8_0.gguf --chat-template"


@pytest.mark.parametrize(
    ("files", "speaks"),
    [
        ({"serve.sh": f"{SERVE_OWN} llama2\n", "train.sh": SWIFT}, True),
        ({"serve.sh": f"{SERVE_OWN} gemma\n", "a.yml": AXOLOTL}, True),
        ({"serve.sh": "vllm serve ./out --chat-template llama3.jinja\n", "a.yml": AXOLOTL}, True),
        ({"serve.sh": f"{SERVE_OWN} chatml\n", "train.sh": SWIFT}, False),
        (
            {"serve.sh": f"{SERVE_OWN} llama2\n", "train.sh": f"{SWIFT[:-1]} --template llama\n"},
            False,
        ),
        ({"serve.sh": f"{SERVE_OWN} llama2\n", "train.sh": SWIFT.replace("-Instruct", "")}, False),
        (
            {
                "serve.sh": f"{SERVE_OWN} llama2\n",
                "train.sh": SWIFT + SWIFT.replace("Qwen/Qwen2.5-3B", "meta-llama/Llama-2-7b-Chat"),
            },
            False,
        ),
        (
            {"serve.sh": "vllm serve me/other --chat-template llama3.jinja\n", "a.yml": AXOLOTL},
            False,
        ),
    ],
)
def test_server_of_what_is_trained_beside(
    files: dict[str, str], speaks: bool, tmp_path: Path
) -> None:
    rule = "server-template-of-another-family"
    assert found(tmp_path, files, rule) == ([rule] if speaks else [])


@pytest.mark.parametrize(
    ("command", "base", "speaks"),
    [
        (
            "vllm serve ./own --tokenizer meta-llama/Llama-2-7b-hf",
            "mistralai/Mistral-7B-v0.3",
            True,
        ),
        (
            "python -m sglang.launch_server --model-path own --tokenizer-path gpt2",
            "Qwen/Qwen2.5-7B",
            True,
        ),
        ("vllm serve Qwen/Qwen2.5-7B --tokenizer google/gemma-2-9b-it", "", True),
        (
            "vllm serve ./own --tokenizer mistralai/Mistral-7B-Instruct-v0.3",
            "mistralai/Mistral-7B-v0.3",
            False,
        ),
        ("vllm serve ./own --tokenizer ./tokenizer", "mistralai/Mistral-7B-v0.3", False),
        ("vllm serve ./own --tokenizer meta-llama/Llama-2-7b-hf", "me/own-model", False),
        ("vllm serve ./own --tokenizer-mode mistral", "mistralai/Mistral-7B-v0.3", False),
        ("vllm serve ./Qwen2.5-7B-own --tokenizer Qwen/Qwen2.5-7B-Instruct", "", False),
    ],
)
def test_tokenizers_of_servers(command: str, base: str, speaks: bool, tmp_path: Path) -> None:
    if base:
        (tmp_path / "own").mkdir()
        (tmp_path / "own" / "config.json").write_text(json.dumps({"_name_or_path": base}))
    rule = "server-tokenizer-of-another-family"
    assert found(tmp_path, {"serve.sh": command + "\n"}, rule) == ([rule] if speaks else [])


OLLAMA = 'curl h:11434/api/generate -d \'{\n  "model": "own",\n  "prompt": "%s"%s\n}\'\n'
RAW = ',\n  "raw": true'
LLAMA_CPP = 'curl h:8080/completion -d \'{"prompt": "%s", "n_predict": 99}\'\n'
NAMED = 'curl h:8000/v1/completions -d \'{"model": "%s", "prompt": "Write ten questions"}\'\n'
MODELFILE = f"FROM ./own.gguf\nTEMPLATE {CHATML}\n"


@pytest.mark.parametrize(
    ("files", "speaks"),
    [
        ({"Modelfile": MODELFILE, "ask.sh": OLLAMA % ("How do I pay?", RAW)}, True),
        (
            {
                "Modelfile.3b": MODELFILE,
                "Modelfile.7b": MODELFILE,
                "ask.sh": OLLAMA % ("How do I pay?", RAW),
            },
            True,
        ),
        ({"train.sh": SWIFT, "ask.sh": LLAMA_CPP % "How do I pay?"}, True),
        (
            {
                "a.yml": AXOLOTL,
                "ask.sh": LLAMA_CPP.replace("completion", "v1/completions") % "Why?",
            },
            True,
        ),
        ({"Modelfile": MODELFILE, "ask.sh": OLLAMA % ("How do I pay?", "")}, False),
        ({"Modelfile": MODELFILE, "ask.sh": OLLAMA % ("<|im_start|>user\\nWhy?", RAW)}, False),
        (
            {
                "Modelfile": "FROM ./own.gguf\nTEMPLATE {{ .Prompt }}\n",
                "ask.sh": OLLAMA % ("def f(", RAW),
            },
            False,
        ),
        ({"train.sh": SWIFT, "ask.sh": LLAMA_CPP % "'\"$PROMPT\"'"}, False),
        (
            {
                "train.sh": SWIFT,
                "ask.sh": LLAMA_CPP.replace("completion", "v1/chat/completions") % "Why?",
            },
            False,
        ),
        ({"ask.sh": LLAMA_CPP % "How do I pay?"}, False),
        # A hosted model writes rows, and the base continues a text: neither was trained here.
        ({"a.yml": AXOLOTL, "ask.sh": NAMED % "gpt-3.5-turbo-instruct"}, False),
        ({"a.yml": AXOLOTL, "ask.sh": NAMED % "Qwen/Qwen2.5-7B"}, False),
        ({"a.yml": AXOLOTL, "ask.sh": NAMED % "support-bot"}, True),
    ],
)
def test_requests_past_the_template(files: dict[str, str], speaks: bool, tmp_path: Path) -> None:
    rule = "request-skips-the-template"
    assert found(tmp_path, files, rule) == ([rule] if speaks else [])


@pytest.mark.parametrize(
    ("parameter", "words", "speaks"),
    [
        ("num_predict 64", 100, True),
        ("num_ctx 64", 100, True),
        ("num_predict 64", 20, False),
        ("num_predict -1", 100, False),
        ("num_ctx 4096", 100, False),
    ],
)
def test_parameters_below_the_trained_chats(
    parameter: str, words: int, speaks: bool, tmp_path: Path
) -> None:
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "words " * words}]
    files = {
        "rows.jsonl": (json.dumps({"messages": turns}) + "\n") * 24,
        "Modelfile": f"{MODELFILE}PARAMETER {parameter}\n",
    }
    rule = "modelfile-parameters-unfit"
    assert found(tmp_path, files, rule) == ([rule] if speaks else [])


@pytest.mark.parametrize("parameter", ["num_predict 3", "num_ctx nan"])
def test_parameters_beside_chats_without_answers(parameter: str, tmp_path: Path) -> None:
    turns = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    files = {
        "rows.jsonl": (json.dumps({"messages": turns}) + "\n") * 24,
        "Modelfile": f"{MODELFILE}PARAMETER {parameter}\n",
    }
    assert found(tmp_path, files, "modelfile-parameters-unfit") == []
