"""Faults whose parts stand apart: in settings, in objects of a project's classes, in helpers and in other files."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

HEAD = """
from transformers import AutoModelForCausalLM, AutoTokenizer
tok = AutoTokenizer.from_pretrained("out", padding_side="left")
model = AutoModelForCausalLM.from_pretrained("out").eval()
"""
ANSWERS = (
    HEAD
    + """
def ask(prompts):
    inputs = tok(prompts, return_tensors="pt", padding=True)
    out = model.generate(**inputs, max_new_tokens=9)
    return {decoded}
{after}
"""
)
WHOLE = "tok.batch_decode(out, skip_special_tokens=True)"
CUT = 'tok.batch_decode(out[:, inputs["input_ids"].shape[1]:])'
KEPT = """
answers = []
for part in parts:
    answers += ask(part)
    print(len(answers))
rows = [{"question": q, "answer": a} for q, a in zip(questions, answers)]
"""
PIPE = """
from transformers import pipeline
pipe = pipeline("text-generation", model="out"{made})
prompts = [f"Is this good or bad? {{text}}" for text in texts]
def label(text):
    return "good" if "good" in text.lower() else "bad"
labels = [label(one[0]["generated_text"]) for one in pipe(prompts{asked})]
"""
LLAMA = """
from llama_cpp import Llama
llm = Llama(model_path="model.gguf")
result = llm("Q: why?\\nA:", max_tokens={tokens}, echo={echo})
row = {{"answer": result["choices"][0]["text"].strip()}}
"""
PROMPTS = {
    "kept in a list": ({"job.py": ANSWERS.format(decoded=WHOLE, after=KEPT)}, 1),
    "each decoded": (
        {"job.py": ANSWERS.format(decoded="[tok.decode(one) for one in out]", after=KEPT)},
        1,
    ),
    "cut before": ({"job.py": ANSWERS.format(decoded=CUT, after=KEPT)}, 0),
    "cut later": (
        {
            "job.py": ANSWERS.format(
                decoded=WHOLE, after=KEPT + 'for row in rows:\n    row["answer"].split("A:")\n'
            )
        },
        0,
    ),
    "searched for its own word": ({"job.py": PIPE.format(made="", asked="")}, 1),
    "the answer alone": ({"job.py": PIPE.format(made="", asked=", return_full_text=False")}, 0),
    "the answer alone by the pipeline": (
        {"job.py": PIPE.format(made=", return_full_text=False", asked="")},
        0,
    ),
    "echoed": ({"job.py": LLAMA.format(tokens=99, echo=True)}, 1),
    "not echoed": ({"job.py": LLAMA.format(tokens=99, echo=False)}, 0),
    "scored, not read": ({"job.py": LLAMA.format(tokens=0, echo=True)}, 0),
    "in an object of another file": (
        {
            "asker.py": "class Asker:\n    def __init__(self, model, tok):\n"
            "        self.model, self.tok = model, tok\n"
            "    def __call__(self, texts):\n"
            '        inputs = self.tok(texts, return_tensors="pt", padding=True)\n'
            "        return self.tok.batch_decode(self.model.generate(**inputs))\n",
            "job.py": HEAD + "import evaluate\nfrom asker import Asker\nask = Asker(model, tok)\n"
            'rouge = evaluate.load("rouge")\nrouge.add_batch(predictions=ask(texts), references=gold)\n',
        },
        1,
    ),
}
CACHE = (
    HEAD
    + """
from transformers import GenerationConfig
import yaml
cfg = yaml.safe_load(open("{file}"))
config = GenerationConfig(**cfg["decoding"])
for row in rows:
    model.generate(**tok(row, return_tensors="pt"), generation_config=config)
"""
)
LOOP = """
from transformers import AutoModelForCausalLM, AutoTokenizer
tok = AutoTokenizer.from_pretrained("some/base")
model = AutoModelForCausalLM.from_pretrained("some/base")
model.gradient_checkpointing_enable()
model.train()
for batch in batches:
    {before}
    out = model.generate(**tok(batch, return_tensors="pt"), max_new_tokens=9)
    {behind}
    model(input_ids=out, labels=out).loss.backward()
    optimizer.step()
"""
CACHES = {
    "switched off in settings": (
        {"job.py": CACHE.format(file="a.yaml"), "a.yaml": "decoding:\n  use_cache: false\n"},
        1,
    ),
    "left on in settings": (
        {"job.py": CACHE.format(file="a.yaml"), "a.yaml": "decoding:\n  top_k: 5\n"},
        0,
    ),
    "settings of another name": (
        {"job.py": CACHE.format(file="b.yaml"), "a.yaml": "decoding:\n  use_cache: false\n"},
        0,
    ),
    "saved with the model": (
        {
            "job.py": HEAD + 'model.generate(**tok("Hi", return_tensors="pt"))',
            "out/generation_config.json": '{"use_cache": false}',
        },
        1,
    ),
    "saved and overruled": (
        {
            "job.py": HEAD + 'model.generate(**tok("Hi", return_tensors="pt"), use_cache=True)',
            "out/generation_config.json": '{"use_cache": false}',
        },
        0,
    ),
    "between training steps": ({"job.py": LOOP.format(before="pass", behind="pass")}, 1),
    "in eval mode between training steps": (
        {"job.py": LOOP.format(before="model.eval()", behind="model.train()")},
        0,
    ),
}
CALLBACK = """
from transformers import AutoTokenizer, TrainerCallback
tok = AutoTokenizer.from_pretrained("some/base", padding_side="{side}")
class Look({base}):
    def on_evaluate(self, args, state, control, model=None, processing_class=None, **kwargs):
        batch = tok(["Hi", "How are you?"], padding=True, return_tensors="pt")
        for ids in model.generate(**batch, max_new_tokens=9):
            print(tok.decode(ids))
"""
LIGHTNING = {
    "net.py": "import lightning as L\nfrom transformers import AutoModelForCausalLM\n"
    "class Net(L.LightningModule):\n    def __init__(self):\n"
    '        self.model = AutoModelForCausalLM.from_pretrained("some/base")\n'
    "    def predict_step(self, batch, _):\n"
    "        return self.model.generate(**batch, max_new_tokens=9)\n",
    "job.py": "from net import Net\nfrom rows import Rows\nprint(Net(), Rows())\n",
}
ROWS = (
    "import lightning as L\nfrom torch.utils.data import DataLoader\nfrom transformers import AutoTokenizer\n"
    "class Rows(L.LightningDataModule):\n    def __init__(self):\n"
    '        self.tok = AutoTokenizer.from_pretrained("some/base", padding_side="{side}")\n'
    '    def pad(self, rows):\n        return self.tok(rows, padding=True, return_tensors="pt")\n'
    "    def predict_dataloader(self):\n        return DataLoader(texts, 8, collate_fn=self.pad)\n"
)
PADS = {
    "in a callback": ({"job.py": CALLBACK.format(side="right", base="TrainerCallback")}, 1),
    "on the left in a callback": (
        {"job.py": CALLBACK.format(side="left", base="TrainerCallback")},
        0,
    ),
    "in no callback of a trainer": ({"job.py": CALLBACK.format(side="right", base="object")}, 0),
    "in a data module": ({**LIGHTNING, "rows.py": ROWS.format(side="right")}, 1),
    "on the left in a data module": ({**LIGHTNING, "rows.py": ROWS.format(side="left")}, 0),
}
REQUEST = """
from openai import OpenAI
client = OpenAI(base_url="http://localhost:8000/v1")
SETTINGS = {{"model": "tuned", "extra_body": {body}}}
client.chat.completions.create(messages=[{{"role": "user", "content": "Hi"}}], **SETTINGS)
"""
RENDER = """
def render(tok, row, with_answer=True):
    messages = [{"role": "user", "content": row["q"]}]
    if with_answer:
        messages.append({"role": "assistant", "content": row["a"]})
    return messages
def text_of(tok, row, with_answer=True):
    return tok.apply_chat_template(render(tok, row, with_answer), tokenize=False%s)
"""
ASKED = (
    HEAD
    + """
from chats import text_of
for row in rows:
    inputs = tok(text_of(tok, row, {given}), return_tensors="pt")
    print(model.generate(**inputs, max_new_tokens=9))
"""
)
HEADERS = {
    "left out of a request": (
        {"job.py": REQUEST.format(body='{"add_generation_prompt": False}')},
        1,
    ),
    "of a begun answer": (
        {
            "job.py": REQUEST.format(
                body='{"add_generation_prompt": False, "continue_final_message": True}'
            )
        },
        0,
    ),
    "asked for in a request": (
        {"job.py": REQUEST.format(body='{"add_generation_prompt": True}')},
        0,
    ),
    "left out by a helper": (
        {"job.py": ASKED.format(given="with_answer=False"), "chats.py": RENDER % ""},
        1,
    ),
    "of a whole chat": (
        {"job.py": ASKED.format(given="with_answer=True"), "chats.py": RENDER % ""},
        0,
    ),
    "written by a helper": (
        {
            "job.py": ASKED.format(given="with_answer=False"),
            "chats.py": RENDER % ", add_generation_prompt=not with_answer",
        },
        0,
    ),
}
TRIAGE = """
import argparse
from transformers import AutoModelForCausalLM, AutoTokenizer
parser = argparse.ArgumentParser()
parser.add_argument("--base_model", default="Qwen/Qwen2.5-3B-Instruct")
parser.add_argument("--adapter_dir", required=True)
args = parser.parse_args()
tok = AutoTokenizer.from_pretrained(args.adapter_dir)
model = AutoModelForCausalLM.from_pretrained(args.{model})
{loaded}
print(model.generate(**tok("Hi", return_tensors="pt"), max_new_tokens=9))
"""
ENGINE = """
import yaml
from vllm import LLM
cfg = yaml.safe_load(open("train.yml"))
engine = LLM(model=cfg["base_model"])
print(engine.generate(["Hi"]))
"""
SETTINGS = "base_model: some/base\noutput_dir: out\nadapter: {}\n"
BASES = {
    "beside the tokenizer of an adapter": (
        {"job.py": TRIAGE.format(model="base_model", loaded="")},
        1,
    ),
    "with the adapter on it": (
        {
            "job.py": TRIAGE.format(
                model="base_model", loaded="model.load_adapter(args.adapter_dir)"
            )
        },
        0,
    ),
    "loaded by the adapter": ({"job.py": TRIAGE.format(model="adapter_dir", loaded="")}, 0),
    "of the settings of an adapter": (
        {"job.py": ENGINE, "train.yml": SETTINGS.format("lora")},
        1,
    ),
    "of the settings of a full training": (
        {"job.py": ENGINE, "train.yml": "base_model: some/base\noutput_dir: out\n"},
        0,
    ),
}
MERGES = """
from peft import PeftModel
from transformers import AutoModelForCausalLM
def merge(name, adapter):
    tuned = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(name), adapter)
    merged = tuned.merge_and_unload()
    {saved}
    return merged
base = AutoModelForCausalLM.from_pretrained("some/base")
{called}
base.save_pretrained("merged")
"""
DROPPED = {
    "by a helper": ({"job.py": MERGES.format(saved="pass", called='merge("some/base", "out")')}, 1),
    "kept": ({"job.py": MERGES.format(saved="pass", called='base = merge("some/base", "out")')}, 0),
    "saved by the helper": (
        {"job.py": MERGES.format(saved='merged.save_pretrained("m")', called='merge("b", "out")')},
        0,
    ),
}
OLLAMA = "import ollama\nollama.chat(model={!r}, messages=[{{'role': 'user', 'content': 'Hi'}}])\n"
MODELFILE = {
    "Modelfile": "FROM llama3.1:8b\nADAPTER ./out\n",
    "make.sh": "ollama create helper -f Modelfile\n",
}
CLIENTS = {
    "the base": ({"job.py": OLLAMA.format("llama3.1:8b"), **MODELFILE}, 1),
    "the adapter": ({"job.py": OLLAMA.format("helper"), **MODELFILE}, 0),
    "another model": ({"job.py": OLLAMA.format("gemma2:9b"), **MODELFILE}, 0),
    "a Modelfile without adapter": (
        {"job.py": OLLAMA.format("llama3.1:8b"), "Modelfile": "FROM llama3.1:8b\n"},
        0,
    ),
}
KEPT_TOKENIZER = """
from torch.utils.data import Dataset
class Rows(Dataset):
    def __init__(self, rows, tok):
        self.rows, self.tok = rows, tok
    def __getitem__(self, number):
        row = self.rows[number]
        prompt = self.tok(f"Question: {{row['q']}}\\nAnswer:")["input_ids"]
        answer = self.tok(" " + row["a"])["input_ids"]{end}
        return {{"input_ids": prompt + answer, "labels": [-100] * len(prompt) + answer}}
"""
TRAIN = """
from rows import Rows
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer
tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-1.5B")
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B")
Trainer(model=model, train_dataset=Rows(rows, tok)).train()
"""
ENDS = {
    "by a tokenizer that an object keeps": (
        {"job.py": TRAIN, "rows.py": KEPT_TOKENIZER.format(end="")},
        1,
    ),
    "with EOS": (
        {"job.py": TRAIN, "rows.py": KEPT_TOKENIZER.format(end=" + [self.tok.eos_token_id]")},
        0,
    ),
}
CASES = [
    (rule, name, files, count)
    for rule, table in (
        ("SRC076", PROMPTS),
        ("SRC044", CACHES),
        ("SRC042", PADS),
        ("SRC071", HEADERS),
        ("SRC036", BASES),
        ("SRC048", DROPPED),
        ("SRC035", CLIENTS),
        ("SRC138", ENDS),
    )
    for name, (files, count) in table.items()
]


@pytest.mark.parametrize(
    ("rule", "name", "files", "count"), CASES, ids=[f"{case[0]}-{case[1]}" for case in CASES]
)
def test_parts_that_stand_apart(
    rule: str, name: str, files: dict[str, str], count: int, tmp_path: Path
) -> None:
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    found = lint([tmp_path], select=[rule], allow_unjudged=True).findings
    assert len(found) == count, (name, [one.message for one in found])
