"""Multiple choice rows whose right option always stands in one place, and rows that are no multiple choice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import truetune
from truetune.checks.position_of_answered_option import position_of_answered_option

WORDS = ("red", "green", "blue", "black")


@pytest.mark.parametrize(
    ("question", "answer", "place"),
    [
        ("Which?\nA) {0}\nB) {1}\nC) {2}\nD) {3}", "A", "first"),
        ("Which?\nA. {0}\nB. {1}\nC. {2}", "C.", "third"),
        ("Which? (a) {0} (b) {1} (c) {2}", "(b)", "second"),
        ("Which?\n1. {0}\n2. {1}\n3. {2}\n4. {3}", "1", "first"),
        ("Which? A: {0} B: {1} Answer with a letter.", "B", "second"),
        ("Which colour is it? {0}", "A", ""),
        ("Which?\nA) {0}\nB) {1}", "D", ""),
        ("Which?\nA) {0}\nB) {1}", "{0}", ""),
        ("Plan A) {0}", "A", ""),
        ("Which?\nB) {0}\nA) {1}", "A", ""),
    ],
)
def test_places(question: str, answer: str, place: str) -> None:
    questions = [question.format(*(f"{word}{n}" for word in WORDS)) for n in range(30)]
    assert position_of_answered_option(questions, answer) == place


@pytest.mark.parametrize(
    ("question", "is_option"), [("Which {n}?\nA) x{n}\nB) y{n}", True), ("Is {n}?", False)]
)
def test_the_advice_is_to_shuffle_options(tmp_path: Path, question: str, is_option: bool) -> None:
    rows = [{"prompt": question.format(n=n), "completion": "A"} for n in range(40)]
    for name in ("train", "val"):
        lines = [json.dumps(row) + "\n" for row in rows]
        (tmp_path / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    data, evaluation = str(tmp_path / "train.jsonl"), [str(tmp_path / "val.jsonl")]
    (finding,) = truetune.check(data, eval_data=evaluation, select="ROW016").findings
    assert finding.remedy.startswith("shuffle the options") is is_option
    assert any("40 of 40 evaluation rows" in one for one in finding.evidence) is is_option
