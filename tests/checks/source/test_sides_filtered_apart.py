"""Joins by position of two files that were each filtered by their own rows, and joins that are sound."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import json
import pandas as pd
from datasets import load_dataset
def read(path):
    with open(path) as file:
        return [json.loads(line) for line in file if line.strip()]
good = read("good.jsonl")
bad = read("bad.jsonl")
"""
FILTERED = """
good = [row for row in good if row["finish_reason"] == "stop"]
bad = [row for row in bad if row["finish_reason"] == "stop"]
"""
RECORDS = """
pairs = []
for g, b in zip(good, bad):
    pairs.append({"prompt": g["question"], "chosen": g["answer"], "rejected": b["answer"]})
"""
WRONG = {
    "two comprehensions": FILTERED + RECORDS,
    "tests of lengths": """
good = [row for row in good if len(row["answer"]) < 2000]
bad = [row for row in bad if row["answer"].strip() and len(row["answer"]) < 2000]
pairs = [{"chosen": g["answer"], "rejected": b["answer"]} for g, b in zip(good, bad)]
""",
    "loops": """
def kept(path):
    rows = []
    for line in open(path):
        row = json.loads(line)
        if row.get("error"):
            continue
        rows.append(row)
    return rows
good = kept("good.jsonl")
bad = kept("bad.jsonl")
"""
    + RECORDS,
    "columns": """
questions = [row["text"] for row in good if row["score"] > 3]
answers = [row["answer"] for row in bad if row["answer"]]
rows = [{"prompt": q, "completion": a} for q, a in zip(questions, answers)]
""",
    "scored": FILTERED + "hits = sum(g['answer'] == b['answer'] for g, b in zip(good, bad))\n",
    "with a number": FILTERED
    + """
for n, (g, b) in enumerate(zip(good, bad)):
    print({"n": n, "chosen": g["answer"], "rejected": b["answer"]})
""",
    "frames": """
one = pd.read_csv("good.csv").dropna()
two = pd.read_csv("bad.csv").dropna(subset=["answer"])
for g, b in zip(one["answer"], two["answer"]):
    print({"chosen": g, "rejected": b})
""",
    "frames side by side": """
one = pd.read_json("good.jsonl", lines=True).dropna().reset_index(drop=True)
two = pd.read_json("bad.jsonl", lines=True).dropna().reset_index(drop=True)
both = pd.concat([one, two], axis=1)
""",
    "data sets": """
one = load_dataset("json", data_files="good.jsonl", split="train").filter(lambda r: r["finish_reason"] == "stop")
two = load_dataset("json", data_files="bad.jsonl", split="train").filter(lambda r: r["finish_reason"] == "stop")
pairs = [{"chosen": g["answer"], "rejected": b["answer"]} for g, b in zip(one, two)]
""",
}
SOUND = {
    "no filter": RECORDS,
    "by an id": """
ids = {row["id"] for row in good} & {row["id"] for row in bad}
good = [row for row in good if row["id"] in ids and row["answer"]]
bad = [row for row in bad if row["id"] in ids]
"""
    + RECORDS,
    "filtered, then by an id": FILTERED
    + """
ids = {row["id"] for row in good} & {row["id"] for row in bad}
good = [row for row in good if row["id"] in ids]
bad = [row for row in bad if row["id"] in ids]
"""
    + RECORDS,
    "same part of both": """
good = [row for row in good if row["split"] == "test"]
bad = [row for row in bad if row["split"] == "test"]
"""
    + RECORDS,
    "by the question": """
good = [row for row in good if len(row["question"]) < 500]
bad = [row for row in bad if len(row["question"]) < 500]
"""
    + RECORDS,
    "mixed into one list": FILTERED
    + "rows = []\nfor g, b in zip(good, bad):\n    rows += [g, b]\n",
    "own records": FILTERED
    + """
rows = []
for g, b in zip(good, bad):
    rows.append({"text": g["text"]})
    rows.append({"text": b["text"]})
""",
    "distractors": FILTERED
    + 'rows = [{"document": g["text"], "distractor": b["text"]} for g, b in zip(good, bad)]\n',
    "joined first": """
pairs = [(g, b) for g, b in zip(good, bad) if g["answer"] and b["answer"]]
""",
    "lengths compared": FILTERED + "assert len(good) == len(bad)\n" + RECORDS,
    "strict": FILTERED + RECORDS.replace("zip(good, bad)", "zip(good, bad, strict=True)"),
    "questions compared": FILTERED
    + """
for g, b in zip(good, bad):
    if g["question"] != b["question"]:
        raise ValueError(g)
    print({"chosen": g["answer"], "rejected": b["answer"]})
""",
    "one side of a chosen part": """
good = [row for row in good if row["split"] == "test"]
hits = sum(g["answer"] == b["answer"] for g, b in zip(good, bad))
""",
    "frames by their index": """
one = pd.read_json("good.jsonl", lines=True).dropna()
two = pd.read_json("bad.jsonl", lines=True).dropna()
both = pd.concat([one, two], axis=1)
""",
}


def found(code: str) -> list[str]:
    module = parse_module(HEAD + code, "join.py")
    rule = find_rule("rows-joined-after-one-side-changed")
    return [one.message for one in run_rule(module, rule).findings]


@pytest.mark.parametrize("code", WRONG.values(), ids=WRONG)
def test_files_that_are_filtered_apart(code: str) -> None:
    (message,) = found(code)
    assert "filtered by its own field" in message


@pytest.mark.parametrize("code", SOUND.values(), ids=SOUND)
def test_joins_that_may_fit(code: str) -> None:
    assert found(code) == []
