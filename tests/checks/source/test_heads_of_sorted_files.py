"""Which evaluations of the first rows of a file leave labels out, and which do not."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import argparse, csv, json, os, random
from itertools import islice
import pandas as pd
from datasets import load_dataset
from openai import OpenAI
client = OpenAI()
p = argparse.ArgumentParser()
p.add_argument("--limit", type=int, default=40)
args = p.parse_args()
def ask(text):
    return client.chat.completions.create(model="m", messages=[{"role": "user", "content": text}])
def score(rows):
    return sum(ask(row["text"]) == row["label"] for row in rows)
"""
DATA = 'data = load_dataset("csv", data_files="sorted.csv", split="train")\n'
LIST = 'rows = [json.loads(line) for line in open("sorted.jsonl")]\n'
ONE_LABEL = {
    "select": DATA + "score(data.select(range(40)))",
    "option": DATA + "data = data.select(range(min(args.limit, len(data))))\nscore(data)",
    "under a test": DATA + "if args.limit:\n    data = data.select(range(args.limit))\nscore(data)",
    "slice": LIST + "score(rows[:50])",
    "slice of a constant": "N = 30\n"
    + LIST
    + "for row in rows[:N]:\n    ask(row['text']) == row['label']",
    "islice": LIST + "score(islice(rows, 40))",
    "DictReader": 'rows = list(csv.DictReader(open("sorted.csv")))[:40]\nscore(rows)',
    "frame": 'frame = pd.read_csv("sorted.csv").head(40)\nfor row in frame.itertuples():\n    row.label',
    "nrows": 'frame = pd.read_csv("sorted.csv", nrows=40)\nprint((frame.label == "a").mean())',
    "split": 'score(load_dataset("json", data_files="sorted.jsonl", split="train[:40]"))',
    "break": LIST
    + "for n, row in enumerate(rows):\n    if n >= args.limit:\n        break\n    ask(row['text'])\n",
    "three labels": 'rows = [json.loads(line) for line in open("three.jsonl")]\nscore(rows[:45])',
}
FINE = {
    "all": DATA + "score(data)",
    "shuffled": DATA + "score(data.shuffle(seed=1).select(range(40)))",
    "shuffled list": LIST + "random.shuffle(rows)\nscore(rows[:40])",
    "drawn": DATA + "score(data.select(random.sample(range(len(data)), 40)))",
    "sample of a frame": 'frame = pd.read_csv("sorted.csv").sample(40)\nframe.label',
    "mixed file": 'rows = [json.loads(line) for line in open("mixed.jsonl")]\nscore(rows[:40])',
    "filtered": LIST + "rows = [row for row in rows if row['label'] == 'a']\nscore(rows[:40])",
    "examples of a prompt": LIST + "shots = rows[:8]\nscore(rows)",
    "two parts": LIST + "n = 40\ntrain, test = rows[:n], rows[n:]\nscore(test)",
    "batches": LIST + "for i in range(0, len(rows), 40):\n    score(rows[i:i + 40])",
    "every second": LIST + "score(rows[::2])",
    "more than the file": LIST + "score(rows[:500])",
    "both labels": LIST + "score(rows[:70])",
    "no file": 'data = load_dataset("org/data", split="test")\nscore(data.select(range(40)))',
    "break for another reason": LIST
    + "for n, row in enumerate(rows):\n    if n == 40 and stop:\n        break\n    ask(row['label'])\n",
    "rare label": 'rows = [json.loads(line) for line in open("rare.jsonl")]\nscore(rows[:40])',
    "column that is not read": LIST.replace("sorted", "grouped") + "score(rows[:40])",
    "training": DATA
    + "from trl import SFTTrainer\nSFTTrainer('m', train_dataset=data.select(range(40)))",
}


def write_rows(folder: Path) -> None:
    """Files of 100 rows: sorted by label, mixed, with a rare label, and sorted by a column that is no label."""
    labels = {
        "sorted": ["a"] * 60 + ["b"] * 40,
        "three": ["a"] * 30 + ["b"] * 30 + ["c"] * 40,
        "mixed": random.Random(1).sample(["a", "b"] * 50, 100),
        "rare": ["a"] * 98 + ["b"] * 2,
    }
    for name, column in labels.items():
        rows = [{"id": n, "text": f"text {n}", "label": one} for n, one in enumerate(column)]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    grouped = [
        {"text": f"text {n}", "label": "ab"[n % 2], "topic": "x" if n < 60 else "y"}
        for n in range(100)
    ]
    lines = "".join(json.dumps(row) + "\n" for row in grouped)
    (folder / "grouped.jsonl").write_text(lines, encoding="utf-8")
    with (folder / "sorted.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        writer.writerows([[f"text {n}", one] for n, one in enumerate(labels["sorted"])])


def found(folder: Path, code: str) -> list[str]:
    write_rows(folder)
    module = parse_module(HEAD + code, str(folder / "score.py"))
    rule = find_rule("head-of-a-sorted-file-evaluated")
    return [one.message for one in run_rule(module, rule).findings]


@pytest.mark.parametrize("code", ONE_LABEL.values(), ids=ONE_LABEL)
def test_a_head_without_labels_is_found(tmp_path: Path, code: str) -> None:
    (message,) = found(tmp_path, code)
    assert "never tested" in message


@pytest.mark.parametrize("code", FINE.values(), ids=FINE)
def test_other_heads_are_left_alone(tmp_path: Path, code: str) -> None:
    assert found(tmp_path, code) == []


TRAINING = """
import argparse, json, random
from itertools import islice
import pandas as pd
import torch
from datasets import Dataset, load_dataset
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
from trl import SFTConfig, SFTTrainer
p = argparse.ArgumentParser()
p.add_argument("--debug", action="store_true")
p.add_argument("--max_eval", type=int, default=50)
args = p.parse_args()
FILES = {"train": "train.jsonl", "validation": "valid.jsonl"}
def read(path):
    return [json.loads(line) for line in open(path)]
def train(rows, held):
    SFTTrainer("m", args=SFTConfig(), train_dataset=rows, eval_dataset=held).train()
"""
LOADED = 'data = load_dataset("json", data_files=FILES)\n'
OF_ONE_KIND = {
    "select": LOADED + 'train(data["train"], data["validation"].select(range(50)))',
    "min": LOADED
    + 'held = data["validation"]\nheld = held.select(range(min(args.max_eval, len(held))))\n'
    + 'train(data["train"].shuffle(seed=1), held.map(lambda row: row))',
    "split": 'train(load_dataset("json", data_files=FILES, split="train"),'
    + ' load_dataset("json", data_files=FILES, split="validation[:50]"))',
    "percent": 'train(load_dataset("json", data_files=FILES, split="train"),'
    + ' load_dataset("json", data_files=FILES, split="validation[:25%]"))',
    "list": 'rows = read("train.jsonl")\nrandom.shuffle(rows)\n'
    + 'train(Dataset.from_list(rows), Dataset.from_list(read("valid.jsonl")[:50]))',
    "own loop": 'rows = read("train.jsonl")\nheld = read("valid.jsonl")[:50]\n'
    + 'model = AutoModelForCausalLM.from_pretrained("m")\n'
    + "for row in rows:\n    model(**row).loss.backward()\nfor row in held:\n    model(**row).loss",
    "evaluate": LOADED
    + 'held = data["validation"].take(60)\ntrainer = Trainer("m",'
    + ' TrainingArguments("out"), train_dataset=data["train"])\ntrainer.train()\ntrainer.evaluate(held)',
    "head of the training rows": LOADED
    + 'train(data["train"].select(range(50, 400)), data["train"].select(range(50)))',
    "Subset": 'held = torch.utils.data.Subset(read("valid.jsonl"), list(range(50)))\n'
    + 'train(read("train.jsonl"), held)',
    "nested": 'train(read("train.jsonl"), read("nested_valid.jsonl")[:50])',
    "systems": 'train(read("train.jsonl"), read("systems_valid.jsonl")[:50])',
    "lengths": 'train(read("train.jsonl"), read("lengths_valid.jsonl")[:50])',
}
WHOLE_OR_MIXED = {
    "all": LOADED + 'train(data["train"], data["validation"])',
    "shuffled": LOADED
    + 'train(data["train"], data["validation"].shuffle(seed=3).select(range(50)))',
    "shuffled list": 'held = read("valid.jsonl")\nrandom.shuffle(held)\ntrain(read("train.jsonl"), held[:50])',
    "training rows": LOADED + 'train(data["train"].select(range(50)), data["validation"])',
    "debugging": LOADED
    + 'held = data["validation"]\nif args.debug:\n    held = held.select(range(50))\ntrain(data["train"], held)',
    "kinds in turn": 'train(read("train.jsonl"), read("mixed_valid.jsonl")[:50])',
    "sorted by a date": 'train(read("train.jsonl"), read("dated_valid.jsonl")[:50])',
    "few rows to print": LOADED
    + 'print(data["validation"].select(range(5)))\ntrain(data["train"], data["validation"])',
    "every kind": LOADED + 'train(data["train"], data["validation"].select(range(190)))',
    "drawn": LOADED
    + 'held = data["validation"]\ntrain(data["train"], held.select(random.sample(range(len(held)), 50)))',
}


def write_kinds(folder: Path) -> None:
    """Files of 200 rows of four tasks: sorted by task in several shapes, in turn, and sorted by a date."""
    tasks = [task for task in ("classify", "extract", "rewrite", "tell") for _ in range(50)]
    chats = [
        {
            "messages": [
                {"role": "user", "content": f"{n}?"},
                {"role": "assistant", "content": "a b"},
            ]
        }
        for n in range(200)
    ]
    systems = [
        {"messages": [{"role": "system", "content": f"Do {task}."}, *chat["messages"]]}
        for task, chat in zip(tasks, chats, strict=True)
    ]
    plain = [{"prompt": f"{n}?", "completion": "a b"} for n in range(200)]
    answers = [
        "yes" if n < 60 else f"It took {n} days until the whole order came to us."
        for n in range(200)
    ]
    files: dict[str, Sequence[Mapping[str, object]]] = {
        "train": [{**row, "task": task} for row, task in zip(plain, tasks, strict=True)],
        "valid": [{**row, "task": task} for row, task in zip(plain, tasks, strict=True)],
        "nested_valid": [
            {**row, "meta": {"task": one}} for row, one in zip(chats, tasks, strict=True)
        ],
        "systems_valid": systems,
        "lengths_valid": [{"prompt": f"{n}?", "completion": one} for n, one in enumerate(answers)],
        "mixed_valid": [{**row, "task": tasks[n * 50 % 200]} for n, row in enumerate(plain)],
        "dated_valid": [{**row, "date": f"2024-0{n // 50 + 1}"} for n, row in enumerate(plain)],
    }
    for name, rows in files.items():
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")


def found_in_training(folder: Path, code: str) -> list[str]:
    write_kinds(folder)
    module = parse_module(TRAINING + code, str(folder / "train.py"))
    rule = find_rule("head-of-a-sorted-file-evaluated")
    return [one.message for one in run_rule(module, rule).findings]


@pytest.mark.parametrize("code", OF_ONE_KIND.values(), ids=OF_ONE_KIND)
def test_a_validation_of_one_kind_is_found(tmp_path: Path, code: str) -> None:
    (message,) = found_in_training(tmp_path, code)
    assert "never tested" in message


@pytest.mark.parametrize("code", WHOLE_OR_MIXED.values(), ids=WHOLE_OR_MIXED)
def test_other_validations_are_left_alone(tmp_path: Path, code: str) -> None:
    assert found_in_training(tmp_path, code) == []
