"""Which splits leave labels to the test part alone, and which do not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from truetune.checks.findings import Finding
from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import json, random
import pandas as pd
from datasets import load_dataset
from sklearn.model_selection import train_test_split
data = load_dataset("json", data_files="rows.jsonl", split="train")
"""
ONE_SIDED = {
    "datasets": "parts = data.train_test_split(test_size=0.25, shuffle=False)",
    "settings": 'SPLIT = {"test_size": 0.25, "shuffle": False}\nparts = data.train_test_split(**SPLIT)',
    "sklearn": """
frame = pd.read_json("rows.jsonl", lines=True)
train, test = train_test_split(frame, test_size=0.25, shuffle=False)
""",
    "slices": """
rows = [json.loads(line) for line in open("rows.jsonl")]
n = int(0.75 * len(rows))
train, test = rows[:n], rows[n:]
""",
    "function": """
def split(rows, share=0.75):
    cut = int(len(rows) * share)
    return rows[:cut], rows[cut:]
train, test = split([json.loads(line) for line in open("rows.jsonl")])
""",
}
MIXED = {
    "shuffled split": "parts = data.train_test_split(test_size=0.2, seed=1)",
    "shuffled before": "parts = data.shuffle(seed=1).train_test_split(test_size=0.2, shuffle=False)",
    "shuffled list": """
rows = [json.loads(line) for line in open("rows.jsonl")]
random.shuffle(rows)
train, test = rows[:80], rows[80:]
""",
    "filtered": """
parts = data.filter(lambda row: row["lang"] == "en").train_test_split(test_size=0.2, shuffle=False)
""",
    "other file": """
other = load_dataset("json", data_files="mixed.jsonl", split="train")
parts = other.train_test_split(test_size=0.2, shuffle=False)
""",
    "no file": """
other = load_dataset("a/b", split="train")
parts = other.train_test_split(test_size=0.2, shuffle=False)
""",
    "only a head": "rows = [json.loads(line) for line in open('rows.jsonl')]\nfew = rows[:50]",
}


def findings_of(text: str, folder: Path) -> list[Finding]:
    rows = [{"text": f"t{n}", "label": "abcd"[n // 25], "lang": "en"} for n in range(100)]
    mixed = [{**row, "label": "abcd"[n % 4]} for n, row in enumerate(rows)]
    for name, given in (("rows", rows), ("mixed", mixed)):
        lines = "\n".join(json.dumps(row) for row in given)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    rule = find_rule("sorted-rows-split-in-order")
    return list(run_rule(parse_module(HEAD + text, str(folder / "split.py")), rule).findings)


@pytest.mark.parametrize("code", ONE_SIDED.values(), ids=ONE_SIDED)
def test_labels_of_the_test_part_alone_are_named(code: str, tmp_path: Path) -> None:
    (finding,) = findings_of(code, tmp_path)
    assert "'d' only in the 25 test rows" in finding.message


@pytest.mark.parametrize("code", MIXED.values(), ids=MIXED)
def test_mixed_parts_are_left_alone(code: str, tmp_path: Path) -> None:
    assert findings_of(code, tmp_path) == []
