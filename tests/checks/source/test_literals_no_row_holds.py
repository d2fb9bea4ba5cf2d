"""Which literals that no row holds decide a pair or a label, and which tests of missing values are left alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import json
import numpy as np
import pandas as pd
from dataclasses import dataclass
from datasets import Dataset, load_dataset
"""
ROWS = 'rows = [json.loads(line) for line in open("votes.jsonl")]\n'
DATA = 'data = load_dataset("json", data_files="votes.jsonl", split="train")\n'
FRAME = 'frame = pd.read_json("votes.jsonl", lines=True)\n'
PAIR = "{'prompt': row['question'], 'chosen': good, 'rejected': bad}"
UNMET = {
    "dataclass": """
@dataclass
class Vote:
    question: str
    response_a: str
    response_b: str
    winner: str
    verdict: str

    def pair(self):
        if self.winner == "a":
            good, bad = self.response_a, self.response_b
        else:
            good, bad = self.response_b, self.response_a
        return {"chosen": good, "rejected": bad}

votes = [Vote(**json.loads(line)) for line in open("votes.jsonl")]
votes = [one for one in votes if one.winner != "tie"]
pairs = Dataset.from_list([one.pair() for one in votes])
""",
    "function": DATA
    + f"""
def to_pair(row):
    good, bad = (row["response_a"], row["response_b"])
    if row["winner"] in ("b", "B"):
        good, bad = bad, good
    else:
        good, bad = good, bad
    return {PAIR}
data = data.map(to_pair)
""",
    "another map before": DATA
    + f"""
def count(row):
    return {{"length": len(row["response_a"])}}
def to_pair(row):
    if row["winner"] == "a":
        good, bad = row["response_a"], row["response_b"]
    elif row["winner"] == "b":
        good, bad = row["response_b"], row["response_a"]
    else:
        good, bad = row["response_b"], row["response_a"]
    return {PAIR}
data = data.map(count).map(to_pair)
""",
    "early return": ROWS
    + """
def better(row):
    if row["winner"] == "left":
        return row["response_a"], row["response_b"]
    return row["response_b"], row["response_a"]
pairs = []
for row in rows:
    if row["winner"] == "tie":
        continue
    good, bad = better(row)
    pairs.append({"chosen": good, "rejected": bad})
""",
    "match": ROWS
    + f"""
pairs = []
for row in rows:
    match row["winner"]:
        case "A" | "a":
            good, bad = row["response_a"], row["response_b"]
        case _:
            good, bad = row["response_b"], row["response_a"]
    pairs.append({PAIR})
""",
    "place": ROWS
    + """
pairs = []
for row in rows:
    answers = [row["response_a"], row["response_b"]]
    best = 0 if row["winner"] == 1 else 1
    pairs.append({"chosen": answers[best], "rejected": answers[1 - best]})
""",
    "named": ROWS
    + """
pairs = []
for row in rows:
    is_first = row["winner"].strip() == "first"
    good = row["response_a"] if is_first else row["response_b"]
    bad = row["response_b"] if is_first else row["response_a"]
    pairs.append({"chosen": good, "rejected": bad})
""",
    "frame": FRAME
    + """
frame["chosen"] = np.where(frame["winner"] == "a", frame["response_a"], frame["response_b"])
frame["rejected"] = frame["question"]
""",
    "frame's own where": FRAME
    + """
first = frame.winner == "a"
frame["chosen"] = frame.response_a.where(first, frame.response_b)
frame["rejected"] = frame.response_b.where(first, frame.response_a)
""",
    "table of sides": ROWS
    + """
ORDER = {"a": ("response_a", "response_b"), "b": ("response_b", "response_a")}
pairs = []
for row in rows:
    good, bad = ORDER.get(row["winner"], ("response_b", "response_a"))
    pairs.append({"chosen": row[good], "rejected": row[bad]})
""",
    "exchange": ROWS
    + """
pairs = []
for row in rows:
    one, two = row["response_a"], row["response_b"]
    if row["winner"] == "b":
        one, two = two, one
    pairs.append({"chosen": one, "rejected": two})
""",
    "label": DATA
    + """
def to_kto(row):
    return {"prompt": row["question"], "completion": row["response_a"], "label": row["verdict"] == "good"}
data = data.map(to_kto)
""",
    "label by arms": ROWS
    + """
examples = []
for row in rows:
    if row["verdict"] == "good":
        label = True
    else:
        label = False
    examples.append({"completion": row["response_a"], "label": label})
""",
    "label by table": ROWS
    + """
YES = {"good": 1, "bad": 0}
examples = [{"completion": row["response_a"], "label": YES.get(row["verdict"], 0)} for row in rows]
""",
    "label of a frame": FRAME
    + 'frame["label"] = frame["verdict"].isin(["good", "fine"]).astype(int)\n',
}
SOUND = {
    "met": ROWS
    + f"""
pairs = []
for row in rows:
    if row["winner"] == "model_a":
        good, bad = row["response_a"], row["response_b"]
    else:
        good, bad = row["response_b"], row["response_a"]
    pairs.append({PAIR})
""",
    "older spelling beside": ROWS
    + f"""
pairs = []
for row in rows:
    if row["winner"] in ("a", "model_a"):
        good, bad = row["response_a"], row["response_b"]
    else:
        good, bad = row["response_b"], row["response_a"]
    pairs.append({PAIR})
""",
    "older spelling in a chain": ROWS
    + f"""
pairs = []
for row in rows:
    if row["winner"] == "a":
        good, bad = row["response_a"], row["response_b"]
    elif row["winner"] == "model_a":
        good, bad = row["response_a"], row["response_b"]
    else:
        good, bad = row["response_b"], row["response_a"]
    pairs.append({PAIR})
""",
    "a prompt for a kind": ROWS
    + """
pairs = []
for row in rows:
    system = CODE if row["verdict"] == "code" else PLAIN
    pairs.append({"prompt": system, "chosen": row["response_a"], "rejected": row["response_b"]})
""",
    "rows that are dropped": DATA
    + 'data = data.filter(lambda row: row["winner"] != "invalid")\n'
    + 'data = data.map(lambda row: {"chosen": row["response_a"], "rejected": row["response_b"]})\n',
    "written again": ROWS
    + f"""
pairs = []
for row in rows:
    row["winner"] = row["winner"].removeprefix("model_")
    if row["winner"] == "a":
        good, bad = row["response_a"], row["response_b"]
    else:
        good, bad = row["response_b"], row["response_a"]
    pairs.append({PAIR})
""",
    "written again by map": DATA
    + f"""
def normal(row):
    return {{**row, "winner": row["winner"][-1]}}
def to_pair(row):
    if row["winner"] == "a":
        good, bad = row["response_a"], row["response_b"]
    else:
        good, bad = row["response_b"], row["response_a"]
    return {PAIR}
data = data.map(normal).map(to_pair)
""",
    "written again by a comprehension": DATA
    + f"""
def to_pair(row):
    if row["winner"] == "a":
        good, bad = row["response_a"], row["response_b"]
    else:
        good, bad = row["response_b"], row["response_a"]
    return {PAIR}
data = data.map(lambda row: {{k: v[-1:] for k, v in row.items()}}).map(to_pair)
""",
    "written again by a loop": ROWS
    + f"""
pairs = []
for row in rows:
    for column in row:
        row[column] = row[column][-1:]
    if row["winner"] == "a":
        good, bad = row["response_a"], row["response_b"]
    else:
        good, bad = row["response_b"], row["response_a"]
    pairs.append({PAIR})
""",
    "post init": """
@dataclass
class Vote:
    response_a: str
    response_b: str
    winner: str

    def __post_init__(self):
        self.winner = self.winner[-1]

    def pair(self):
        good, bad = (self.response_a, self.response_b)
        if self.winner == "a":
            good, bad = self.response_a, self.response_b
        else:
            good, bad = self.response_b, self.response_a
        return {"chosen": good, "rejected": bad}

pairs = [Vote(**json.loads(line)).pair() for line in open("votes.jsonl")]
""",
    "one side alone": ROWS
    + f"""
pairs = []
for row in rows:
    if row["only"] == "a":
        good, bad = row["response_a"], row["response_b"]
    else:
        good, bad = row["response_b"], row["response_a"]
    pairs.append({PAIR})
""",
    "two files": """
def read(path):
    for line in open(path):
        row = json.loads(line)
        yield {"text": row["response_a"], "label": row["verdict"] == "bad"}
examples = [*read("votes.jsonl"), *read("others.jsonl")]
""",
    "label met": ROWS + 'out = [{"label": row["verdict"] == "thumbs_up"} for row in rows]\n',
    "a text": ROWS
    + """
out = []
for row in rows:
    first, second = row["response_a"], row["response_b"]
    good, bad = (first, second) if row["question"] == "a" else (second, first)
    out.append({"chosen": good, "rejected": bad})
""",
    "an option": ROWS
    + """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--first", default="a")
args = parser.parse_args()
out = []
for row in rows:
    good = row["response_a"] if row["winner"] == args.first else row["response_b"]
    bad = row["response_b"] if row["winner"] == args.first else row["response_a"]
    out.append({"chosen": good, "rejected": bad})
""",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [
        {
            "question": f"Which of both is the better answer to question {n}?",
            "response_a": f"a{n}",
            "response_b": f"b{n}",
            "winner": ("model_a", "model_b", "tie")[n % 3],
            "only": ("b", "tie")[n % 2],
            "verdict": ("thumbs_up", "thumbs_down")[n % 2],
        }
        for n in range(60)
    ]
    text = "\n".join(json.dumps(row) for row in rows)
    (tmp_path / "votes.jsonl").write_text(text, encoding="utf-8")
    others = [json.dumps({**row, "verdict": ("bad", "good")[n % 2]}) for n, row in enumerate(rows)]
    (tmp_path / "others.jsonl").write_text("\n".join(others), encoding="utf-8")
    return tmp_path


def messages_on(text: str, folder: Path) -> list[str]:
    rule = find_rule("cast-or-comparison-never-varies")
    found = run_rule(parse_module(HEAD + text, str(folder / "pairs.py")), rule).findings
    return [one.message for one in found]


@pytest.mark.parametrize("code", UNMET.values(), ids=UNMET)
def test_a_literal_that_no_row_holds_is_named_with_the_values(code: str, folder: Path) -> None:
    (message,) = messages_on(code, folder)
    assert "never true: no row of votes.jsonl has" in message
    assert "(20)" in message or "(30)" in message


@pytest.mark.parametrize("code", SOUND.values(), ids=SOUND)
def test_values_that_may_be_missing_are_left_alone(code: str, folder: Path) -> None:
    assert messages_on(code, folder) == []
