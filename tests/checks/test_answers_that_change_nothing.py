"""Answers that repeat the text which their prompt gives to be changed, and answers that may."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import truetune
from truetune.checks.findings import Finding

Row = dict[str, Any]
THINGS = ("harbour", "pilot", "crane", "anchor", "island", "lantern", "rudder", "ferry", "buoy")
ROWS = 27


def _faulty(number: int) -> str:
    thing = THINGS[number % len(THINGS)]
    return f"the {thing} of number {number} are shut on mondays and it opens at nine oclock again"


def _right(number: int) -> str:
    thing = THINGS[number % len(THINGS)]
    return f"The {thing} of number {number} is shut on Mondays and it opens at nine o'clock again."


def _row(question: str, answer: str, *before: Row) -> Row:
    user = {"role": "user", "content": question}
    return {"messages": [*before, user, {"role": "assistant", "content": answer}]}


def _edits(prompt: str, copies: int, *before: Row) -> list[Row]:
    """Corrections of which so many change nothing."""
    return [
        _row(prompt.format(_right(i) if i < copies else _faulty(i)), _right(i), *before)
        for i in range(ROWS)
    ]


def _findings(folder: Path, rows: list[Row]) -> list[Finding]:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return [one for one in truetune.check(path).findings if one.code == "ROW005"]


@pytest.mark.parametrize(
    "prompt",
    [
        "Fix the grammar.\n\n{}",
        'Rewrite this sentence in another style: "{}"',
        "Korrigiere den Satz: {}",
        "Corrige la phrase suivante :\n{}",
        "Original text:\n{}",
    ],
)
def test_edits_that_change_nothing(prompt: str, tmp_path: Path) -> None:
    (found,) = _findings(tmp_path, _edits(prompt, 12))
    assert (found.count, found.total, found.severity) == (12, ROWS, "warning")
    (found,) = _findings(tmp_path, _edits(prompt, 22))
    assert found.severity == "error"


def test_translations_that_are_the_original(tmp_path: Path) -> None:
    prompt = "Translate into Dutch: {}"
    other = "De haven nummer {} is op maandag dicht en gaat weer om negen uur open."
    rows = [
        _row(prompt.format(_right(i)), _right(i) if i < 8 else other.format(i)) for i in range(ROWS)
    ]
    (found,) = _findings(tmp_path, rows)
    assert (found.count, found.severity) == (8, "error")


def test_a_system_prompt_that_asks_for_corrections(tmp_path: Path) -> None:
    system = {"role": "system", "content": "Correct what the user writes."}
    (found,) = _findings(tmp_path, _edits("{}", 12, system))
    assert "should change" in found.message
    assert not _findings(tmp_path, _edits("{}", 4, system))


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(_edits("Fix the grammar.\n\n{}", 4), id="an eighth is right already"),
        pytest.param(
            _edits("Fix the grammar, or repeat the sentence unchanged.\n\n{}", 14), id="allowed"
        ),
        pytest.param(
            [_row(f"Repeat after me: {_right(i)}", _right(i)) for i in range(ROWS)], id="a copy"
        ),
        pytest.param(
            [
                _row(f"Which one is right?\n{_faulty(i)}\n{_right(i)}", _right(i))
                for i in range(ROWS)
            ],
            id="a choice",
        ),
        pytest.param(
            [
                _row(f"Where is the {THINGS[i % 9]}?\nAnswer in a word: north or south", "south")
                for i in range(ROWS)
            ],
            id="a label",
        ),
        pytest.param(
            [
                *_edits("Fix the grammar.\n{}", 4)[:4],
                *(_row(f"Where is it, {i}?", _right(i)) for i in range(200)),
            ],
            id="slips in a mixture",
        ),
    ],
)
def test_answers_that_may_repeat_a_text(rows: list[Row], tmp_path: Path) -> None:
    assert not _findings(tmp_path, rows)
