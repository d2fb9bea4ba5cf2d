"""Prompts that do not say which answer is wanted; and several answers that were drawn for one prompt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.checks.pages.data import DEMO
from tests.parts import data
from truetune.checks.check_data import check
from truetune.settings.run_spec import RunSpec

ALPACA = "llamafactory/alpaca_en_demo.json"
RULE = "same-prompt-unrelated-answers"
FOLLOW_UPS = (
    "And its output?",
    "Can you give an example of it?",
    "Please write that in other words.",
    "Why does that matter so much?",
    "What else is to be said here?",
    "Show me how it is done.",
)
HARD_TO_MISS = (
    "Continue.",
    "Give me a few more.",
    "Now make it shorter, please",
    "That is wrong.",
    "Please translate it into German.",
    "Tell me more about the second point.",
    "Try again",
    "Rewrite this in a friendly tone.",
)
WHOLE_QUESTIONS = (
    "Give me three tips for staying healthy.",
    "What about the ferry to Oslo on Monday?",
    "Explain the second law of thermodynamics.",
    "Make a list of rivers in France.",
    "Write another word for happy.",
    "Why is the sky blue?",
    "Tell me about the first president of Kenya.",
    "Translate 'good morning' into German.",
)


def published() -> list[dict[str, Any]]:
    """Rows with an instruction alone, and an answer of some words."""
    rows: list[dict[str, Any]] = json.loads(data(ALPACA).read_text(encoding="utf-8"))
    return [row for row in rows if not row["input"] and len(row["output"].split()) > 20][:300]


def found(folder: Path, rows: list[dict[str, Any]], rule: str = RULE) -> list[str]:
    """What one rule says of rows."""
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    spec = RunSpec(data=(str(path),), tokenizer=str(DEMO), select=(rule,))
    return [one.message for one in check(spec).findings]


def test_turns_that_became_rows(tmp_path: Path) -> None:
    """A third of the first questions are follow-ups, each with the answer to another row's question."""
    rows = published()
    for number, row in enumerate(rows):
        if number % 3 == 0:
            row["instruction"] = FOLLOW_UPS[number // 3 % len(FOLLOW_UPS)]
    (message,) = found(tmp_path, rows)
    assert message.startswith("100 of ")


def test_texts_that_were_lost(tmp_path: Path) -> None:
    """What is left of prompts is one of a few instructions."""
    tasks = [f"Summarize the text in {words} words." for words in range(20, 100, 10)]
    rows = [{**row, "instruction": tasks[i % len(tasks)]} for i, row in enumerate(published())]
    assert len(found(tmp_path, rows)) == 1


def draw_answers(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Four answers for each prompt, each of most of the sentences."""
    drawn = []
    for row in rows[:80]:
        words = row["output"].split()
        drawn += [{**row, "output": " ".join(words[k:] + words[:k][::-1])} for k in (0, 3, 5, 7)]
    return drawn


@pytest.mark.parametrize(
    "edit",
    [
        lambda rows: rows,
        draw_answers,
        lambda rows: rows + rows,
        lambda rows: [{**row, "instruction": "Tell me a joke."} for row in rows],
        lambda rows: [{**row, "output": "yes"} for row in rows for _ in range(3)],
    ],
    ids=["published", "drawn", "twice", "open request", "labels"],
)
def test_prompts_that_say_what_is_wanted(tmp_path: Path, edit: Any) -> None:
    assert found(tmp_path, edit(published())) == []


@pytest.mark.parametrize(("prompts", "count"), [(HARD_TO_MISS, 1), (WHOLE_QUESTIONS, 0)])
def test_first_questions_that_go_on_with_a_turn_before(
    tmp_path: Path, prompts: tuple[str, ...], count: int
) -> None:
    rows = published()
    for number, row in enumerate(rows):
        if number % 5 == 0:
            row["instruction"] = prompts[number // 5 % len(prompts)]
    assert len(found(tmp_path, rows, "instructions-lack-their-text")) == count
