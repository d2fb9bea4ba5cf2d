"""Generations that run once for each row, as the symbolic run sees them (SRC043)."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

HEAD = """
import pandas as pd
import torch
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer
tok = AutoTokenizer.from_pretrained("m")
model = AutoModelForCausalLM.from_pretrained("m").cuda()
rows = load_dataset("json", data_files="test.jsonl", split="train")
prompts = open("prompts.txt").read().splitlines()
"""
ANSWER = """
def answer(row):
    ids = tok(row["question"], return_tensors="pt").to("cuda")
    return {"answer": tok.decode(model.generate(**ids, max_new_tokens=90)[0])}
"""
ASK = """
def ask(question):
    ids = tok(question, return_tensors="pt").to("cuda")
    return tok.decode(model.generate(**ids, max_new_tokens=90)[0])
"""
OBJECT = """
class Answers:
    def __init__(self, limit):
        self.limit = limit
    def __call__(self, row):
        ids = tok(row["question"], return_tensors="pt").to("cuda")
        return {"answer": tok.decode(model.generate(**ids, max_new_tokens=self.limit)[0])}
"""
BATCHES = """
def collate(part):
    return tok([one["q"] for one in part], return_tensors="pt")
for batch in DataLoader(rows, batch_size={size}, collate_fn=collate):
    model.generate(**batch.to("cuda"), max_new_tokens=90)
"""
SLICES = """
SIZE = {size}
for start in range(0, len(prompts), SIZE):
    part = tok(prompts[start : start + SIZE], padding=True, return_tensors="pt").to("cuda")
    model.generate(**part, max_new_tokens=90)
"""
FRAME = 'frame = pd.read_csv("test.csv"){behind}\n'


def severities(text: str, folder: Path) -> list[str]:
    path = folder / "answer.py"
    path.write_text(HEAD + text, encoding="utf-8")
    return [one.severity for one in lint([path], select=["generation-row-by-row"]).findings]


@pytest.mark.parametrize(
    "text",
    [
        ANSWER + "rows.map(answer)\n",
        OBJECT + "rows.map(Answers(90))\n",
        ASK + FRAME.format(behind="") + 'frame["answer"] = frame["question"].apply(ask)\n',
        ASK + FRAME.format(behind="") + "for row in frame.itertuples():\n    ask(row.question)\n",
        ASK + "answers = list(map(ask, prompts))\n",
        BATCHES.format(size=1),
        SLICES.format(size=1),
    ],
)
def test_generations_of_one_row_are_found(text: str, tmp_path: Path) -> None:
    assert severities(text, tmp_path) == ["warning"]


@pytest.mark.parametrize(
    "text",
    [
        ANSWER.replace('tok(row["question"]', 'tok(row["question"], padding=True')
        + "rows.map(answer, batched=True, batch_size=16)\n",
        BATCHES.format(size=16),
        BATCHES.format(size="int(input())"),
        SLICES.format(size=16),
        ASK + FRAME.format(behind=".head(5)") + 'for one in frame["question"]:\n    ask(one)\n',
        ASK + "for one in prompts[:4]:\n    ask(one)\n",
        ASK.replace("max_new_tokens=90", "num_return_sequences=16, do_sample=True")
        + "for one in prompts:\n    ask(one)\n",
    ],
)
def test_batches_and_a_few_rows_are_left_alone(text: str, tmp_path: Path) -> None:
    assert severities(text, tmp_path) == []
