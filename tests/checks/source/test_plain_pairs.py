"""Which scripts train a chat model on plain strings that are asked for through its template."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from truetune.checks.lint import lint

RULE = "plain-pairs-for-chat-model"
TRAIN = """
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer
name = "{name}"
tok = AutoTokenizer.from_pretrained(name)
model = AutoModelForCausalLM.from_pretrained(name)
rows = load_dataset("json", data_files="pairs.jsonl", split="train"){shape}
trainer = DPOTrainer(model, args=DPOConfig("out"), train_dataset=rows, processing_class=tok)
trainer.train()
"""
INSTRUCT = "Qwen/Qwen2.5-1.5B-Instruct"
RENAMED = '.map(lambda row: {"prompt": row["q"], "chosen": row["a"], "rejected": row["b"]})'
AS_CHAT = (
    '.map(lambda row: {"prompt": [{"role": "user", "content": row["q"]}],'
    ' "chosen": [{"role": "assistant", "content": row["a"]}],'
    ' "rejected": [{"role": "assistant", "content": row["b"]}]})'
)
RENDERED = (
    '.map(lambda row: {"prompt": "<|im_start|>user\\\\n" + row["q"] + "<|im_end|>\\\\n<|im_start|>assistant\\\\n",'
    ' "chosen": row["a"], "rejected": row["b"]})'
)
TEMPLATE = (
    "ids = tok.apply_chat_template(chat, add_generation_prompt=True)\nprint(model.generate(ids))\n"
)
CLIENT = 'reply = client.chat.completions.create(model="m", messages=messages)\n'
BARE = 'print(model.generate(**tok("How are you?", return_tensors="pt")))\n'


def count_of(folder: Path, name: str, shape: str, asks: str) -> int:
    rows = [{"q": f"When is shop {n} open?", "a": f"At {n}.", "b": "Who knows."} for n in range(9)]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "train.py").write_text(TRAIN.replace("{name}", name).replace("{shape}", shape))
    if asks:
        (folder / "ask.py").write_text(asks)
    return len(lint([folder / "train.py"], select=(RULE,)).findings)


@pytest.mark.parametrize("asks", [TEMPLATE, CLIENT])
def test_plain_pairs_of_a_chat_model(asks: str, tmp_path: Path) -> None:
    assert count_of(tmp_path, INSTRUCT, RENAMED, asks) == 1


@pytest.mark.parametrize(
    ("name", "shape", "asks"),
    [
        (INSTRUCT, AS_CHAT, TEMPLATE),
        (INSTRUCT, RENDERED, TEMPLATE),
        (INSTRUCT, RENAMED, BARE),
        (INSTRUCT, RENAMED, ""),
        ("Qwen/Qwen2.5-1.5B", RENAMED, TEMPLATE),
    ],
)
def test_pairs_that_are_asked_for_as_they_are_trained(
    name: str, shape: str, asks: str, tmp_path: Path
) -> None:
    assert count_of(tmp_path, name, shape, asks) == 0
