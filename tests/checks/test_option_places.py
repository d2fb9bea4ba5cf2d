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


FORMS = {
    "letter and text": "{letter}. {text}\n\nIt is {text}, as the book says.",
    "answer": "Answer: {letter} ({text})",
    "sentence": "Of these, A is too old. The answer is {letter}.",
    "bold": "**{letter})** {text}",
    "small": "({small}) {text}",
    "letter": "{letter}",
}


def quiz(form: str, places: list[int], options: tuple[str, ...], *, is_class: bool = False) -> str:
    """Rows of multiple choice whose right options stand in these places."""
    rows = []
    for n, place in enumerate(places):
        texts = options if is_class else [f"{word} {n}" for word in options]
        lines = "\n".join(f"{'ABCD'[i]}. {text}" for i, text in enumerate(texts))
        letter = "ABCD"[place]
        answer = form.format(letter=letter, small=letter.lower(), text=texts[place])
        rows.append(json.dumps({"prompt": f"Which is number {n}?\n{lines}", "completion": answer}))
    return "\n".join(rows)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_most_right_options_stand_in_one_place(tmp_path: Path, form: str) -> None:
    path = tmp_path / "train.jsonl"
    skewed = [1] * 46 + [0, 2, 3, 0]
    path.write_text(quiz(form, skewed, WORDS), encoding="utf-8")
    (finding,) = truetune.check(str(path), select="ROW016").findings
    assert "46 of 50" in finding.message
    assert "second (B)" in finding.message
    assert finding.severity == "error"
    assert finding.remedy.startswith("shuffle the options")


def test_answers_that_list_points_name_no_option(tmp_path: Path) -> None:
    rows = [
        {
            "prompt": f"Explain the steps of plan {n}:\n1. mix {n} eggs\n2. bake them",
            "completion": f"1. Break {n} eggs into a bowl.\n2. Heat the oven.",
        }
        for n in range(60)
    ]
    path = tmp_path / "train.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    assert truetune.check(str(path), select="ROW016").findings == ()


@pytest.mark.parametrize(
    ("places", "options", "is_class"),
    [
        ([n % 4 for n in range(60)], WORDS, False),
        ([1] * 25 + [0, 2, 3] * 10, WORDS, False),
        ([0] * 45 + [1] * 15, ("yes", "no"), False),
        # Lettered classes that are the same in every row: how many rows each has is another question.
        ([1] * 50 + [0, 2, 3] * 3, WORDS, True),
    ],
    ids=["spread", "a little skewed", "two options", "classes"],
)
def test_spread_places_are_silent(
    tmp_path: Path, places: list[int], options: tuple[str, ...], is_class: bool
) -> None:
    path = tmp_path / "train.jsonl"
    form = FORMS["letter and text"]
    path.write_text(quiz(form, places, options, is_class=is_class), encoding="utf-8")
    found = truetune.check(str(path), select="ROW016").findings
    assert not any("option that is" in finding.message for finding in found)


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
