"""Which casts and comparisons give one result for all rows, and which do not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import csv, json
import pandas as pd
from datasets import load_dataset
"""
JSON_ROWS = 'data = load_dataset("json", data_files="rows.jsonl", split="train")\n'
CONSTANT = {
    "map": JSON_ROWS + 'data = data.map(lambda row: {"label": bool(row["label"])})',
    "function": JSON_ROWS
    + """
def to_kto(row):
    return {"prompt": row["q"], "completion": row["a"], "label": bool(row["label"])}
data = data.map(to_kto)
""",
    "lines": """
rows = []
with open("rows.jsonl") as file:
    for line in file:
        row = json.loads(line)
        rows.append({"label": bool(row["label"])})
""",
    "frame": 'frame = pd.read_json("rows.jsonl", lines=True)\nframe["label"] = frame["label"].astype(bool)',
    "filter by number": JSON_ROWS + 'data = data.filter(lambda row: row["label"] == 1)',
    "comprehension": """
rows = [json.loads(line) for line in open("rows.jsonl")]
good = [row for row in rows if row["label"] == True]
""",
    "not equal": JSON_ROWS + 'data = data.filter(lambda row: row.get("label") != 0)',
    "one of": JSON_ROWS + 'data = data.filter(lambda row: row["label"] in (1, True))',
    "text of a number": JSON_ROWS + 'data = data.filter(lambda row: row["grade"] == "5")',
    "other case": JSON_ROWS + 'data = data.filter(lambda row: row["state"] == "good")',
    "csv": """
rows = [row for row in csv.DictReader(open("elsewhere.csv")) if row["score"] == 1]
""",
    "csv label": """
class Votes:
    def __init__(self, path):
        with open(path) as file:
            self.rows = list(csv.DictReader(file))
    def __getitem__(self, i):
        return {"label": bool(self.rows[i]["label"].strip())}
votes = Votes("elsewhere.csv")
votes[0]
""",
    "or": JSON_ROWS + 'data = data.filter(lambda row: row["state"] == "Good" or "Fair")',
}
VARYING = {
    "by text": JSON_ROWS + 'data = data.map(lambda row: {"label": row["label"] == "1"})',
    "by number": JSON_ROWS + 'data = data.map(lambda row: {"label": bool(int(row["label"]))})',
    "one of texts": JSON_ROWS + 'data = data.filter(lambda row: row["label"] in ("1", "true"))',
    "same case": JSON_ROWS + 'data = data.filter(lambda row: row["state"].lower() == "good")',
    "number": JSON_ROWS + 'data = data.filter(lambda row: row["grade"] == 5)',
    "not empty": JSON_ROWS
    + 'data = data.filter(lambda row: bool(row["a"].strip()) and row["a"] != "")',
    "frame of numbers": 'frame = pd.read_csv("rows.csv")\nframe["label"] = frame["label"].astype(bool)',
    "frame compared": 'frame = pd.read_csv("rows.csv")\nframe = frame[frame["label"] == 1]',
    "never there": JSON_ROWS + 'data = data.filter(lambda row: row["state"] != "deleted")',
    "csv cast": 'rows = [row for row in csv.DictReader(open("x.csv")) if int(row["score"]) == 1]',
    "other file": 'rows = [r for r in json.load(open("none.json")) if r["label"] == 1]',
    "or": JSON_ROWS
    + 'data = data.filter(lambda row: row["state"] == "Good" or row["state"] == "Fair")',
    "default": 'name = options.get("name") or "model"',
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [
        {
            "q": f"q{n}",
            "a": f"a{n}",
            "label": str(n % 2),
            "grade": n % 6,
            "state": ("Good", "Bad")[n % 2],
        }
        for n in range(60)
    ]
    text = "\n".join(json.dumps(row) for row in rows)
    (tmp_path / "rows.jsonl").write_text(text, encoding="utf-8")
    table = "\n".join(["q,label", *(f"{row['q']},{row['label']}" for row in rows)])
    (tmp_path / "rows.csv").write_text(table, encoding="utf-8")
    return tmp_path


def count_findings(text: str, folder: Path) -> int:
    rule = find_rule("cast-or-comparison-never-varies")
    return len(run_rule(parse_module(HEAD + text, str(folder / "train.py")), rule).findings)


@pytest.mark.parametrize("code", CONSTANT.values(), ids=CONSTANT)
def test_constant_results_are_found(code: str, folder: Path) -> None:
    assert count_findings(code, folder) == 1


@pytest.mark.parametrize("code", VARYING.values(), ids=VARYING)
def test_results_that_vary_are_left_alone(code: str, folder: Path) -> None:
    assert count_findings(code, folder) == 0
