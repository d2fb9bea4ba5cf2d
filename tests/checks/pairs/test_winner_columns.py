"""Pairs of two columns beside one that names the better answer: every way to name it, and columns that do not."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import truetune

NOUNS = (
    "river",
    "stone",
    "lamp",
    "cloud",
    "table",
    "window",
    "paper",
    "sugar",
    "engine",
    "forest",
    "mirror",
    "button",
)
Row = dict[str, Any]
AB = ("response_a", "response_b")


def findings(
    folder: Path, columns: tuple[str, str], beside: Callable[[random.Random, str, str], Row]
) -> list[str]:
    """What is said of 60 pairs of two columns with others beside them."""
    rng = random.Random(1)
    rows = []
    for number in range(60):
        one, other = (" ".join(rng.choices(NOUNS, k=8)) for _ in range(2))
        row = {"prompt": f"Question {number}?", columns[0]: one, columns[1]: other}
        rows.append(row | beside(rng, one, other))
    return told(folder, rows, {"chosen": columns[0], "rejected": columns[1]})


def told(folder: Path, rows: list[Row], columns: dict[str, str]) -> list[str]:
    """What is said of rows under a map of columns."""
    file = folder / "pairs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    report = truetune.check(str(file), select="PREF029", format="preference", map=columns)
    return [f"{one.severity} {one.message}" for one in report.findings]


def model_columns(rng: random.Random, one: str, other: str) -> Row:
    """One of three: a column for each model, and one for a tie."""
    won = rng.randrange(3)
    return {
        "winner_model_a": int(won == 0),
        "winner_model_b": int(won == 1),
        "winner_tie": int(won == 2),
    }


@pytest.mark.parametrize(
    ("columns", "beside"),
    [
        (AB, lambda rng, one, other: {"winner": rng.choice(["A", "B", "tie"])}),
        (AB, lambda rng, one, other: {"winner": rng.choice(["model_a", "model_b", "tie (bothbad)"])}),
        (AB, lambda rng, one, other: {"preferred": rng.choice(AB)}),
        (AB, lambda rng, one, other: {"preference": rng.choice([0, 1])}),
        (AB, lambda rng, one, other: {"selected_response": rng.choice([0, 1])}),
        (AB, model_columns),
        (("response_0", "response_1"), lambda rng, one, other: {"better_response_id": rng.choice([0, 1])}),
        (("output_1", "output_2"), lambda rng, one, other: {"verdict": rng.choice(["[[A]]", "[[B]]", "[[C]]"])}),
        (("output_1", "output_2"), lambda rng, one, other: {"human_choice": rng.choice(["1", "2"])}),
        (("left", "right"), lambda rng, one, other: {"left_is_better": rng.random() < 0.5}),
        (("gpt4_answer", "llama_answer"), lambda rng, one, other: {"preferred_model": rng.choice(["gpt4", "llama"])}),
        (
            ("answer_1", "answer_2"),
            lambda rng, one, other: {"model_1": "old", "model_2": "new", "winner": rng.choice(["old", "new"])},
        ),
        (("first_answer", "second_answer"), lambda rng, one, other: {"best_answer": rng.choice([one, other])}),
        (AB, lambda rng, one, other: {"worse": rng.choice(["A", "B"])}),
        (AB, lambda rng, one, other: {"score_a": 5, "score_b": rng.choice([3, 8])}),
    ],
)  # fmt: skip
def test_half_of_the_winners_are_rejected(
    tmp_path: Path,
    columns: tuple[str, str],
    beside: Callable[[random.Random, str, str], Row],
) -> None:
    (message,) = findings(tmp_path, columns, beside)
    assert message.startswith("error ")
    assert "the two directions cancel" in message


def test_all_winners_are_rejected(tmp_path: Path) -> None:
    (message,) = findings(tmp_path, AB, lambda rng, one, other: {"preferred": "B"})
    assert "in 60 of 60 pairs (100%)" in message
    assert "the sides are swapped" in message


@pytest.mark.parametrize(
    ("columns", "beside"),
    [
        (AB, lambda rng, one, other: {"preferred": "A"}),
        (AB, lambda rng, one, other: {"shown_first": rng.choice(["A", "B"])}),
        (AB, lambda rng, one, other: {"preferred_order": rng.choice(["A", "B"])}),
        (AB, lambda rng, one, other: {"group": rng.choice(["A", "B"]), "language": rng.choice(["de", "en"])}),
        (AB, lambda rng, one, other: {"label": rng.choice([0, 1])}),
        (AB, lambda rng, one, other: {"selected": rng.choice([0, 1]), "picked_for_review": rng.choice([0, 1])}),
        (AB, lambda rng, one, other: {"chosen_for_test": rng.choice([0, 1]), "best_of_n": rng.choice([1, 2])}),
        (AB, lambda rng, one, other: {"preference_strength": rng.choice([1, 2])}),
        (AB, lambda rng, one, other: {"verbosity_score_a": rng.random(), "verbosity_score_b": rng.random()}),
        (AB, lambda rng, one, other: {"score_a": rng.random() + 0.4, "score_b": rng.random()}),
        (("chosen", "rejected"), lambda rng, one, other: {"preferred": rng.choice(["A", "B"])}),
        (
            ("response_0", "response_1"),
            lambda rng, one, other: {"better_response_id": 0, "safer_response_id": rng.choice([0, 1])},
        ),
        (AB, lambda rng, one, other: {"winner": "A", "score_a": rng.random(), "score_b": rng.random()}),
    ],
)  # fmt: skip
def test_other_columns_are_no_winners(
    tmp_path: Path,
    columns: tuple[str, str],
    beside: Callable[[random.Random, str, str], Row],
) -> None:
    assert findings(tmp_path, columns, beside) == []


def test_a_pair_that_the_mapping_turned_round_is_no_contradiction(tmp_path: Path) -> None:
    """Two labellers agree; one saw the answers the other way round."""
    rows = []
    for number in range(30):
        good, bad = f"Yes, {NOUNS[number % 12]} {number}.", f"Who knows, {number}."
        rows += [
            {"prompt": f"Q{number}?", "response_a": good, "response_b": bad, "preferred": "A"},
            {"prompt": f"Q{number}?", "response_a": bad, "response_b": good, "preferred": "B"},
        ]
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    columns = {"chosen": "response_a", "rejected": "response_b"}
    report = truetune.check(
        str(file), select=["PREF008", "PREF029"], format="preference", map=columns
    )
    assert [one.code for one in report.findings] == ["PREF029"]
