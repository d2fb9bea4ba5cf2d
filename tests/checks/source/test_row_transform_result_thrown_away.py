"""Which transformations whose result is thrown away are found, and which statements are left alone."""

from __future__ import annotations

import json

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import pandas as pd
from datasets import Dataset, concatenate_datasets, load_dataset
from trl import SFTTrainer
from transformers import AutoTokenizer, AutoModelForCausalLM
tok = AutoTokenizer.from_pretrained("m")
model = AutoModelForCausalLM.from_pretrained("m")
data = load_dataset("json", data_files="a.jsonl", split="train")
frame = pd.read_csv("a.csv")
def to_text(row):
    return {"text": row["q"] + row["a"]}
"""
TRAIN = "\nSFTTrainer(model=model, train_dataset=data).train()\n"
TRAIN_FRAME = "\nSFTTrainer(model=model, train_dataset=Dataset.from_pandas(frame)).train()\n"
DROPPED = {
    "map": "data.map(to_text)" + TRAIN,
    "filter": "data.filter(lambda row: len(row['a']) > 3)" + TRAIN,
    "chain": "data.map(to_text).remove_columns(['q'])" + TRAIN,
    "split": "data.train_test_split(test_size=0.1)" + TRAIN,
    "rename": "data.rename_column('q', 'prompt')" + TRAIN,
    "concatenate": "more = load_dataset('a/b', split='train')\nconcatenate_datasets([data, more])"
    + TRAIN,
    "of a dict": (
        "sets = load_dataset('a/b')\nsets['train'].map(to_text)\n"
        "SFTTrainer(model=model, train_dataset=sets['train']).train()\n"
    ),
    "loop over splits": (
        "sets = load_dataset('a/b')\nfor name in sets:\n    sets[name].rename_columns({'q': 'prompt'})\n"
        "SFTTrainer(model=model, train_dataset=sets['train']).train()\n"
    ),
    "in a function": (
        "def prepare(rows):\n    rows.map(to_text, batched=False, remove_columns=['q'])\n    return rows\n"
        "data = prepare(data)" + TRAIN
    ),
    "in a class": (
        "class Rows:\n    def __init__(self):\n        self.rows = load_dataset('a/b', split='train')\n"
        "    def prepare(self):\n        self.rows.remove_columns(['q'])\n        return self.rows\n"
        "data = Rows().prepare()" + TRAIN
    ),
    "table": "frame.dropna(subset=['a'])" + TRAIN_FRAME,
    "column": "frame['a'].str.replace('x', 'y')" + TRAIN_FRAME,
    "column alone": "frame['a'].fillna('')" + TRAIN_FRAME,
    "not in place": "frame.drop_duplicates(inplace=False)" + TRAIN_FRAME,
    "text": (
        "def write(row):\n    text = '### ' + row['q']\n    text.replace('###', '')\n    return {'text': text}\n"
        "data = data.map(write)" + TRAIN
    ),
    "function without result": (
        "def write(row):\n    row['text'] = row['q'] + row['a']\ndata = data.map(write)" + TRAIN
    ),
}
KEPT = {
    "assigned": "data = data.map(to_text)" + TRAIN,
    "returned": "def prepare(rows):\n    return rows.map(to_text)\ndata = prepare(data)" + TRAIN,
    "named _": "_ = data.map(to_text)" + TRAIN,
    "chained into a file": "data.map(to_text).to_json('b.jsonl')" + TRAIN,
    "in place": "frame.dropna(inplace=True)" + TRAIN_FRAME,
    "format": "data.set_format('torch')" + TRAIN,
    "counts": "seen = []\ndef count(row):\n    seen.append(len(row['q']))\ndata.map(count)" + TRAIN,
    "prints": "data.map(lambda row: print(row['q']))" + TRAIN,
    "fills a cache": "data.map(to_text)\ndata = data.map(to_text)" + TRAIN,
    "never used again": "rows = load_dataset('a/b', split='train')\nrows.map(to_text)" + TRAIN,
    "only printed": "rows = load_dataset('a/b', split='train')\nrows.map(to_text)\nprint(rows)" + TRAIN,
    "assigned behind": "data.map(to_text)\ndata = load_dataset('c/d', split='train')" + TRAIN,
    "pool": "pool.map(to_text, data)" + TRAIN,
    "tokens": "tok.add_special_tokens({'pad_token': '<pad>'})\nmodel.to('cuda')\nmodel.half()" + TRAIN,
    "path": "from pathlib import Path\npath = Path('a')\npath.replace('b')\nprint(path.name)\nopen(path)" + TRAIN,
    "own class": (
        "class Set:\n    def remove_columns(self, names):\n        self.names = names\n"
        "rows = Set()\nrows.remove_columns(['q'])\nSFTTrainer(model=model, train_dataset=rows).train()\n"
    ),
    "tried": "try:\n    data.remove_columns(['q'])\nexcept ValueError:\n    raise SystemExit('no q')" + TRAIN,
    "list": "rows = [1, 2]\nrows.sort()\nprint(sum(rows))" + TRAIN,
    "dictionary": "options = {'a': 1}\noptions.update(b=2)\noptions.pop('a')\nuse(options)" + TRAIN,
    "function with result": "def write(row):\n    row['t'] = row['q']\n    return row\ndata = data.map(write)" + TRAIN,
}  # fmt: skip


def count_findings(text: str, path: str = "train.py") -> int:
    rule = find_rule("row-transform-result-thrown-away")
    return len(run_rule(parse_module(text, path), rule).findings)


def notebook_of(*cells: str) -> str:
    code = [
        {"cell_type": "code", "metadata": {}, "execution_count": 1, "outputs": [], "source": cell}
        for cell in cells
    ]
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": code})


@pytest.mark.parametrize("body", DROPPED.values(), ids=DROPPED)
def test_dropped_results_are_found(body: str) -> None:
    assert count_findings(HEAD + body) == 1


@pytest.mark.parametrize("body", KEPT.values(), ids=KEPT)
def test_other_statements_are_left_alone(body: str) -> None:
    assert count_findings(HEAD + body) == 0


def test_the_last_line_of_a_cell_may_show_rows() -> None:
    shown = (
        "data.shuffle().select(range(3))",
        "frame.sample(5)",
        "data.filter(lambda row: row['a'])",
    )
    for line in shown:
        assert count_findings(notebook_of(HEAD, line, TRAIN), "a.ipynb") == 0
    assert count_findings(notebook_of(HEAD, "data.map(to_text)", TRAIN), "a.ipynb") == 1
    assert (
        count_findings(
            notebook_of(HEAD, "data.map(to_text)", "data = data.map(to_text)" + TRAIN), "a.ipynb"
        )
        == 0
    )
