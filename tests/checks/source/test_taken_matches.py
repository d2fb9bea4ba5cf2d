"""Which scripts take another match of their predictions than the answer, and which take the right one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

LOOP = """
import json, re, sys
ok = 0
for line in open(sys.argv[1]):
    row = json.loads(line)
"""
Rows = Sequence[Mapping[str, object]]
WORKED: Rows = [
    {
        "completion": f"{n} boxes of {n + 3} are {n * (n + 3)}. So the answer is {n * (n + 3)}.",
        "answer": n * (n + 3),
    }
    for n in range(11, 51)
]
CHECKED = [
    {
        "completion": f"{n * 3}\nBecause {n} times 3, which is 3 times {n + 1} less 3.",
        "gold": str(n * 3),
    }
    for n in range(11, 51)
]
MARKED = [
    {"pred": f"We add.\nAnswer: {n}", "ref": f"{n}", "question": f"What is {n - 1} and 1?"}
    for n in range(11, 51)
]
LETTERS = [
    {"output": f"A long look at B. The answer is ({'abcd'[n % 4]}).", "gold": "ABCD"[n % 4]}
    for n in range(40)
]
MONEY = [{"prediction": f"That is {n},500 euros", "label": f"{n}500"} for n in range(11, 51)]
CLASSES = [
    {
        "response": f"Label: Very {'good' if n % 2 else 'bad'}",
        "label": f"very {'good' if n % 2 else 'bad'}",
    }
    for n in range(40)
]
WEAK = [{"completion": f"I think {n} or {n + 1}", "answer": 7000 + n} for n in range(40)]
FIRST_RIGHT = [
    {"completion": f"{n}, since {n - 1} and 1 are {n}", "answer": str(n)} for n in range(11, 51)
]
CHECKED_LAST: Rows = [{"pred": f"It must be {n}", "gold": f"{n}"} for n in range(11, 51)]
MARKED_STOP: Rows = [{"pred": f"It must be {n}.", "ref": f"{n}"} for n in range(11, 51)]
TAKEN_WRONG: dict[str, tuple[Rows, str]] = {
    "first number": (
        WORKED,
        "m = re.search(r'\\d+', row['completion'])\n    ok += m and int(m.group()) == row['answer']",
    ),
    "first of all": (
        WORKED,
        "n = re.findall(r'\\d+', row['completion'])\n    ok += bool(n) and int(n[0]) == row['answer']",
    ),
    "in a function": (
        WORKED,
        "ok += read(row['completion']) == float(row['answer'])\n"
        "\n\ndef read(text):\n    if (m := re.search(r'(\\d+)', text)):\n"
        "        return float(m.group(1))",
    ),
    "last number": (
        CHECKED,
        "n = re.findall(r'\\d+', row['completion'])\n    ok += bool(n) and n[-1] == row['gold']",
    ),
    "whole match": (
        MARKED,
        "m = re.search(r'Answer: (\\d+)', row['pred'])\n    ok += m is not None and m.group(0) == row['ref']",
    ),
    "match for search": (
        MARKED,
        "m = re.match(r'.*Answer: (\\d+)', row['pred'])\n    ok += m is not None and m.group(1) == row['ref']",
    ),
    "case of a letter": (
        LETTERS,
        "m = re.search(r'answer is \\((\\w)\\)', row['output'])\n    ok += m is not None and m[1] == row['gold']",
    ),
    "flag": (
        LETTERS,
        "m = re.search(r'ANSWER IS \\((\\w)\\)', row['output'])\n"
        "    ok += m is not None and m[1].upper() == row['gold']",
    ),
    "thousands": (
        MONEY,
        "m = re.search(r'[\\d,]+', row['prediction'])\n    ok += m is not None and m.group() == row['label']",
    ),
    "first word": (CHECKED_LAST, "ok += row['pred'].split()[0] == row['gold']"),
    "last line": (
        CHECKED,
        "text = row['completion'].strip()\n    ok += text.splitlines()[-1] == row['gold']",
    ),
    "full stop": (MARKED_STOP, "ok += row['pred'].split()[-1] == row['ref']"),
    "compiled": (
        CLASSES,
        "m = LABEL.search(row['response'].strip())\n    ok += m is not None and m.group(1) == row['label']\n",
    ),
}
TAKEN_RIGHT: dict[str, tuple[Rows, str]] = {
    "last number": (
        WORKED,
        "n = re.findall(r'\\d+', row['completion'])\n    ok += bool(n) and int(n[-1]) == row['answer']",
    ),
    "first number": (
        FIRST_RIGHT,
        "m = re.search(r'\\d+', row['completion'])\n    ok += m is not None and m.group() == row['answer']",
    ),
    "weak model": (
        WEAK,
        "m = re.search(r'\\d+', row['completion'])\n    ok += m is not None and int(m.group()) == row['answer']",
    ),
    "behind a mark": (
        WORKED,
        "text = row['completion'].split('answer is')[-1]\n    m = re.search(r'\\d+', text)\n"
        "    ok += m is not None and int(m.group()) == row['answer']",
    ),
    "surer pattern first": (
        WORKED,
        "ok += read(row['completion']) == row['answer']\n\n\n"
        "def read(text):\n    m = re.search(r'answer is (\\d+)', text)\n"
        "    if m:\n        return int(m.group(1))\n"
        "    m = re.search(r'\\d+', text)\n    return int(m.group()) if m else None",
    ),
    "of the question": (
        MARKED,
        "m = re.search(r'\\d+', row['question'])\n    ok += int(m.group()) + 1 == int(row['ref'])",
    ),
    "lowered": (
        LETTERS,
        "m = re.search(r'answer is \\((\\w)\\)', row['output'])\n"
        "    ok += m is not None and m[1].upper() == row['gold']",
    ),
    "as numbers": (
        MONEY,
        "m = re.search(r'[\\d,]+', row['prediction'])\n"
        "    ok += float(m.group().replace(',', '')) == float(row['label'])",
    ),
    "last word": (CHECKED_LAST, "ok += row['pred'].split()[-1] == row['gold']"),
    "first line": (CHECKED, "ok += row['completion'].splitlines()[0] == row['gold']"),
    "few rows": (
        WORKED[:5],
        "m = re.search(r'\\d+', row['completion'])\n    ok += m and int(m.group()) == row['answer']",
    ),
    "changed by a helper": (
        WORKED,
        "m = re.search(r'\\d+', tail(row['completion']))\n    ok += m and int(m.group()) == row['answer']",
    ),
}
COMPILED = "LABEL = re.compile(r'label: (.+)', re.I)\n"


def found(folder: Path, rows: Rows, code: str) -> list[str]:
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "preds.jsonl").write_text(lines, encoding="utf-8")
    text = LOOP.replace("ok = 0\n", COMPILED + "ok = 0\n") + "    " + code
    module = parse_module(text, str(folder / "score.py"))
    rule = find_rule("pattern-takes-another-match")
    return [one.message for one in run_rule(module, rule).findings]


@pytest.mark.parametrize(("rows", "code"), TAKEN_WRONG.values(), ids=TAKEN_WRONG)
def test_another_match_than_the_answer_is_found(tmp_path: Path, rows: Rows, code: str) -> None:
    (message,) = found(tmp_path, rows, code)
    assert "Right answers count as wrong" in message


@pytest.mark.parametrize(("rows", "code"), TAKEN_RIGHT.values(), ids=TAKEN_RIGHT)
def test_the_answer_itself_is_left_alone(tmp_path: Path, rows: Rows, code: str) -> None:
    assert found(tmp_path, rows, code) == []


def test_predictions_of_another_form_are_named(tmp_path: Path) -> None:
    plain = "".join(json.dumps({**row, "completion": str(row["answer"])}) + "\n" for row in WORKED)
    (tmp_path / "base.jsonl").write_text(plain, encoding="utf-8")
    rows, code = TAKEN_WRONG["first number"]
    (tmp_path / "preds.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8"
    )
    module = parse_module(LOOP + "    " + code, str(tmp_path / "score.py"))
    (finding,) = run_rule(module, find_rule("pattern-takes-another-match")).findings
    assert "in base.jsonl the script gets 40 of 40 rows right" in " ".join(finding.evidence)


TABLE = """
import json, re
import pandas as pd
rows = [json.loads(line) for line in open("predictions.jsonl")]
df = pd.DataFrame(rows)
NUM = re.compile(r"\\d+")
def gold(text):
    return float(text.split("####")[-1])
def pred(text):
    found = NUM.FIND(text)
    return float(TAKEN) if found else None
df["ok"] = [pred(p) == gold(g) for p, g in zip(df.prediction, df.answer)]
"""


@pytest.mark.parametrize(
    ("search", "taken", "count"), [("search", "found.group()", 1), ("findall", "found[-1]", 0)]
)
def test_columns_of_a_table_and_worked_references_are_read(
    tmp_path: Path, search: str, taken: str, count: int
) -> None:
    texts = [f"{n} and 5 more of them are {n + 5}.\n#### {n + 5}" for n in range(10, 30)]
    rows = [json.dumps({"prediction": text, "answer": text}) for text in texts]
    (tmp_path / "predictions.jsonl").write_text("\n".join(rows), encoding="utf-8")
    code = TABLE.replace("FIND", search).replace("TAKEN", taken)
    module = parse_module(code, str(tmp_path / "score.py"))
    assert len(run_rule(module, find_rule("pattern-takes-another-match")).findings) == count
