"""Scores beside columns that are called chosen and rejected already."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import truetune

ROWS = 60
Pairs = list[tuple[float, float]]
"""Scores of the chosen and the rejected side of each row"""


def _found(folder: Path, pairs: Pairs, names: tuple[str, str], sides: tuple[str, str]) -> list[Any]:
    rows = [
        {
            "prompt": f"What is {n}?",
            sides[0]: f"The number {n} is a number of its own.",
            sides[1]: f"No idea what {n} may be, ask again.",
            names[0]: good,
            names[1]: bad,
        }
        for n, (good, bad) in enumerate(pairs)
    ]
    path = folder / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    found = truetune.check(path, map=dict(zip(("chosen", "rejected"), sides, strict=True)))
    return [one for one in found.findings if one.code == "PREF029"]


def _marks(turned: int, good: float = 8, bad: float = 3) -> Pairs:
    """Scores of all rows, of which so many are the wrong way round."""
    return [(bad, good)] * turned + [(good, bad)] * (ROWS - turned)


def _rewards(exchanged: int) -> Pairs:
    """Rewards of a model with margins of 0.1 to 6; every `exchanged`-th pair is the wrong way round."""
    sound = [(2.03 + 0.02 * n, 1.93) for n in range(5 * ROWS)]
    return [
        (bad, good) if n % exchanged == 0 else (good, bad) for n, (good, bad) in enumerate(sound)
    ]


FAULTY: dict[str, tuple[Pairs, str]] = {
    "compared as texts": ([(9.0, 3.0), (3.0, 10.0), (8.5, 2.0)] * 20, "error"),
    "whole numbers as texts": ([(9, 2), (5, 10), (7, 4), (6, 1)] * 15, "error"),
    "a few rows": (_marks(6), "warning"),
    "many rows": (_marks(30), "error"),
    "rewards at any margin": (_rewards(5), "warning"),
}
HEALTHY: dict[str, Pairs] = {
    "all right": _marks(0),
    "ties": [(5, 5), (8, 3)] * 30,
    "a slip": _marks(1),
    "rewards that disagree on close answers": [
        (1.0, 1.0 + 0.11 * n) if n <= 12 else (1.0 + 0.11 * n, 1.0) for n in range(1, ROWS)
    ],
    "rewards of a model": [
        (0.1 * n, 0.1 * n + (0.037 if n % 4 == 0 else -0.053)) for n in range(1, ROWS)
    ],
}
NAMES = (
    (("score_chosen", "score_rejected"), ("chosen", "rejected")),
    (("chosen_rating", "rejected_rating"), ("chosen", "rejected")),
    (("judge_score_chosen", "judge_score_rejected"), ("chosen", "rejected")),
    (("better_avg_score", "worse_avg_score"), ("better", "worse")),
)


@pytest.mark.parametrize("name", FAULTY)
def test_scores_against_the_sides(name: str, tmp_path: Path) -> None:
    pairs, severity = FAULTY[name]
    (found,) = _found(tmp_path, pairs, *NAMES[0])
    assert found.severity == severity
    assert ("compared as text " in found.message) == ("texts" in name)


def test_scores_against_all_sides_are_one_finding(tmp_path: Path) -> None:
    assert not _found(tmp_path, _marks(ROWS), *NAMES[0])
    codes = [one.code for one in truetune.check(tmp_path / "pairs.jsonl").findings]
    assert "PREF002" in codes


@pytest.mark.parametrize("names", NAMES)
def test_names_of_scores(names: tuple[tuple[str, str], tuple[str, str]], tmp_path: Path) -> None:
    assert len(_found(tmp_path, _marks(12), *names)) == 1


@pytest.mark.parametrize("name", HEALTHY)
def test_scores_that_fit(name: str, tmp_path: Path) -> None:
    assert not _found(tmp_path, HEALTHY[name], *NAMES[0])


@pytest.mark.parametrize("names", [("tokens_chosen", "tokens_rejected"), ("helpfulness_a", "b")])
def test_other_numbers_say_nothing(names: tuple[str, str], tmp_path: Path) -> None:
    assert not _found(tmp_path, _marks(30), names, ("chosen", "rejected"))


def test_a_lower_rank_is_better(tmp_path: Path) -> None:
    names = ("chosen_rank", "rejected_rank")
    sides = ("chosen", "rejected")
    assert not _found(tmp_path, _marks(0, good=1, bad=4), names, sides)
    assert _found(tmp_path, _marks(12, good=1, bad=4), names, sides)
