"""Rows of a full step, where the last step of an epoch is short."""

from __future__ import annotations

import pytest

from truetune.logs.rows_and_steps_of_sibling_runs import rows_per_full_step_as_text


@pytest.mark.parametrize(
    ("rows", "steps", "epochs", "words"),
    [
        (900.0, 9, 3.0, "100 to 149"),
        (900.4, 57, 3.0, "16"),
        (1200.0, 75, 1.0, "16"),
        (300.0, 3, 3.0, "100 or more"),
        (1000.0, 40, 2.0, "25 to 26"),
        (640.0, 10, 0.5, "about 64"),
        (900.0, 10, 3.0, "about 90"),
        (900.0, 9, 0.0, "about 100"),
    ],
)
def test_words(rows: float, steps: int, epochs: float, words: str) -> None:
    assert rows_per_full_step_as_text(rows, steps, epochs) == words
