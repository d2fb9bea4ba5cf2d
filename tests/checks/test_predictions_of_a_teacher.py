"""Stored predictions of a teacher beside token ids: those that fit, and those that do not."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from truetune.checks.judge_predictions_of_teacher import judge_predictions_of_teacher
from truetune.settings.run_spec import RunSpec

DRAW = random.Random(3)
ROWS = [[DRAW.randrange(5, 900) for _ in range(20)] for _ in range(8)]
LOGARITHMS = [-0.3, -2.0, -3.0]


def row(
    ids: list[int], shift: int = 1, *, predicted: list[int] | None = None, drop: int = 0
) -> dict[str, Any]:
    """A row whose teacher knows the next token (or the token itself, without a shift)."""
    known = (predicted or ids)[shift:]
    tokens = [[token, DRAW.randrange(5, 900), DRAW.randrange(5, 900)] for token in known][drop:]
    return {
        "input_ids": ids,
        "teacher_topk_ids": tokens,
        "teacher_logprobs": [LOGARITHMS] * len(tokens),
    }


def messages(rows: list[dict[str, Any]], folder: Path) -> list[str]:
    """What is found in these rows."""
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")
    return [one.message for one in judge_predictions_of_teacher(str(path), RunSpec()).findings]


@pytest.mark.parametrize("shift", [0, 1])
def test_predictions_of_either_form_are_fine(shift: int, tmp_path: Path) -> None:
    assert messages([row(ids, shift) for ids in ROWS], tmp_path) == []


def test_an_empty_entry_for_the_first_token_is_fine(tmp_path: Path) -> None:
    rows = [row(ids) for ids in ROWS]
    for one in rows:
        one["teacher_topk_ids"].insert(0, None)
        one["teacher_logprobs"].insert(0, None)
    assert messages(rows, tmp_path) == []


def test_missing_entries_are_found(tmp_path: Path) -> None:
    (text,) = messages([row(ids, drop=3 * (n == 2)) for n, ids in enumerate(ROWS)], tmp_path)
    assert text.startswith("1 of 8 rows have another number of predictions")


def test_predictions_of_the_next_row_are_found(tmp_path: Path) -> None:
    rows = [
        row(ids, predicted=other) for ids, other in zip(ROWS, [*ROWS[1:], ROWS[0]], strict=True)
    ]
    (text,) = messages(rows, tmp_path)
    assert "they are predictions for other texts" in text


def test_probabilities_under_the_name_of_logarithms_are_found(tmp_path: Path) -> None:
    rows = [{**row(ids), "teacher_logprobs": [[0.7, 0.2, 0.05]] * 19} for ids in ROWS]
    (text,) = messages(rows, tmp_path)
    assert "values in teacher_logprobs that are no log-probabilities" in text
    renamed = [{**one, "teacher_probs": one["teacher_logprobs"]} for one in rows]
    for one in renamed:
        del one["teacher_logprobs"]
    assert messages(renamed, tmp_path) == []


def test_rows_without_a_teacher_are_left_alone(tmp_path: Path) -> None:
    assert messages([{"input_ids": ids, "labels": ids} for ids in ROWS], tmp_path) == []
