"""Words for nothing in prompts: found on lines of their own, silent where people mean them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import truetune

ROWS = 20


def _findings(folder: Path, rows: list[dict[str, Any]]) -> list[Any]:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return [one for one in truetune.check(path).findings if one.code == "ROW070"]


def _alpaca(value: str, n: int) -> dict[str, str]:
    return {"instruction": f"Say when shop {n} opens.", "input": value, "output": f"At {n} sharp."}


def _chat(question: str, n: int) -> dict[str, Any]:
    turns = [("user", question), ("assistant", f"Shop {n} opens at nine.")]
    return {"messages": [{"role": role, "content": text} for role, text in turns]}


@pytest.mark.parametrize(
    "question",
    [
        "nan",
        "Context: nan\n\nWhen does shop {n} open?",
        "### Question:\nWhen does shop {n} open?\n\n### Input:\nnan\n",
        "**Notes:** undefined\nWhen does shop {n} open?",
        "Customer: A. Berg\nDate: NaT\nWhen does shop {n} open?",
        "Profile: [object Object]\nWhen does shop {n} open?",
    ],
)
def test_a_line_of_the_prompt(question: str, tmp_path: Path) -> None:
    rows = [_chat(question.replace("{n}", str(n)), n) for n in range(ROWS)]
    (found,) = _findings(tmp_path, rows)
    assert found.severity == "warning"
    assert found.count == ROWS


@pytest.mark.parametrize(
    ("value", "severity"),
    [("nan", "warning"), ("None", "info"), ("<noinput>", "warning"), ("No input", "warning")],
)
def test_a_field_of_the_row(value: str, severity: str, tmp_path: Path) -> None:
    rows = [_alpaca(value if n % 2 else f"Shop {n} is in the park.", n) for n in range(ROWS)]
    (found,) = _findings(tmp_path, rows)
    assert (found.severity, found.count) == (severity, ROWS // 2)


@pytest.mark.parametrize(
    "question",
    [
        "What does NaN mean in column {n}?",
        "Column {n} of my table says:\nnan\nWhy is it nan?",
        "| a | b |\n|---|---|\nnan\n| 1 | {n} |",
        "```python\nx = float('nan')\nprint(x + {n})\n```\nWhat is printed?",
        "Allergies: None\nWhat may guest {n} eat?",
        "Is the value undefined or {n}?",
        "My Nan is {n} years old. What shall we bake?",
    ],
)
def test_what_people_mean(question: str, tmp_path: Path) -> None:
    rows = [_chat(question.replace("{n}", str(n)), n) for n in range(ROWS)]
    assert not _findings(tmp_path, rows)


def test_one_row_of_many_is_no_fault_of_the_data(tmp_path: Path) -> None:
    rows = [_alpaca("nan" if n == 3 else f"Shop {n} is in the park.", n) for n in range(ROWS)]
    assert not _findings(tmp_path, rows)
