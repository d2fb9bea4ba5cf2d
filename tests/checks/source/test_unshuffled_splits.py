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


READ = """
from pathlib import Path
def read(folder):
    texts, labels = [], []
    for number, name in enumerate(["neg", "pos"]):
        for file in sorted((Path(folder) / name).iterdir()):
            texts.append(file.read_text())
            labels.append(number)
    return texts, labels
texts, labels = read("reviews")
"""
HALVES = """
good, bad = open("good.txt").readlines(), open("bad.txt").readlines()
texts = good + bad
labels = [1] * len(good) + [0] * len(bad)
"""
ROWS = """
rows = []
for label, path in {"spam": "s.txt", "ham": "h.txt", "news": "n.txt"}.items():
    for line in open(path):
        rows.append({"text": line, "label": label})
"""
PAIRS = """
pairs = [(line, 0) for line in open("a.txt")]
pairs += [(line, 1) for line in open("b.txt")]
"""
SLICED = "n = int(0.8 * len({0}))\ntrain, test = {0}[:n], {0}[n:]"
SPLIT = "a, b, c, d = train_test_split(texts, labels, test_size=0.2, shuffle=False)"
IN_CLASS_ORDER = {
    "a reader of folders": READ + SPLIT,
    "slices of labels": HALVES
    + SLICED.format("texts")
    + "\nn = 80\nof_train, of_test = labels[:n], labels[n:]",
    "rows with labels": ROWS + SLICED.format("rows"),
    "a data set": ROWS
    + "from datasets import Dataset\nparts = Dataset.from_list(rows).train_test_split(0.1, shuffle=False)",
    "a frame of columns": HALVES
    + "frame = pd.DataFrame({'text': texts, 'y': labels})\ntrain, test = train_test_split(frame, shuffle=False)",
    "pairs": PAIRS + SLICED.format("pairs"),
    "sorted by label": "other = sorted(json.load(open('x.json')), key=lambda row: row['label'])\n"
    + SLICED.format("other"),
    "a sorted frame": "frame = pd.read_csv('x.csv').sort_values('intent')\n"
    "train, test = train_test_split(frame, shuffle=False)",
}
IN_NO_CLASS_ORDER = {
    "stratified": READ + SPLIT.replace("shuffle=False", "stratify=labels"),
    "shuffled in place": ROWS + "random.shuffle(rows)\n" + SLICED.format("rows"),
    "shuffled pairs": PAIRS + "random.Random(1).shuffle(pairs)\n" + SLICED.format("pairs"),
    "row by row": """
labels = []
for line in open("a.txt"):
    if "good" in line:
        labels.append(1)
    else:
        labels.append(0)
"""
    + SLICED.format("labels"),
    "two of each row": """
rows = []
for one, two in zip(open("a.txt"), open("b.txt")):
    rows.append({"text": one, "label": 1})
    rows.append({"text": two, "label": 0})
"""
    + SLICED.format("rows"),
    "a label that is read": """
rows = [{"text": line, "label": json.loads(line)["label"]} for line in open("a.jsonl")]
"""
    + SLICED.format("rows"),
    "split inside of each class": """
train, test = [], []
for label, path in {"spam": "s.txt", "ham": "h.txt"}.items():
    lines = open(path).readlines()
    n = int(0.8 * len(lines))
    train += [(line, label) for line in lines[:n]]
    test += [(line, label) for line in lines[n:]]
""",
    "sources": """
rows = []
for source, path in {"wiki": "w.txt", "news": "n.txt"}.items():
    for line in open(path):
        rows.append({"text": line, "source": source})
"""
    + SLICED.format("rows"),
    "sorted by date": "other = sorted(json.load(open('x.json')), key=lambda row: row['date'])\n"
    + SLICED.format("other"),
    "sorted by length": "other = sorted(json.load(open('x.json')), key=lambda row: len(row['target']))\n"
    + SLICED.format("other"),
}


@pytest.mark.parametrize("code", IN_CLASS_ORDER.values(), ids=IN_CLASS_ORDER)
def test_rows_that_the_script_puts_into_class_order(code: str, tmp_path: Path) -> None:
    (finding,) = findings_of(code, tmp_path)
    assert "and split in this order" in finding.message


@pytest.mark.parametrize("code", IN_NO_CLASS_ORDER.values(), ids=IN_NO_CLASS_ORDER)
def test_rows_in_no_class_order_are_left_alone(code: str, tmp_path: Path) -> None:
    assert findings_of(code, tmp_path) == []
