"""Pairs beside the scores or ranks that they were built from, and labels beside the column that they were made of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import truetune

ANSWERS = [
    (f"Question {n}?", f"The good reply {n} is here.", f"A bad one {n} for you.") for n in range(40)
]


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def codes(path: Path) -> set[str]:
    return {finding.code for finding in truetune.check(str(path), select="PREF").findings}


@pytest.mark.parametrize(
    ("column", "good", "bad", "swapped", "is_told"),
    [
        ("rank", 1, 2, True, True),
        ("rank", 1, 2, False, False),
        ("score", 9, 3, True, True),
        ("score", 9, 3, False, False),
        ("position", 1, 2, True, False),
        ("tokens", 9, 3, True, False),
    ],
)
def test_sides_beside_the_scores_of_their_candidates(
    column: str, good: int, bad: int, swapped: bool, is_told: bool, tmp_path: Path
) -> None:
    candidates = [
        {"prompt": prompt, "response": text, column: value}
        for prompt, one, other in ANSWERS
        for text, value in ((one, good), (other, bad))
    ]
    write(tmp_path / "candidates.jsonl", candidates)
    pairs = [
        {
            "prompt": prompt,
            "chosen": other if swapped else one,
            "rejected": one if swapped else other,
        }
        for prompt, one, other in ANSWERS
    ]
    write(tmp_path / "pairs.jsonl", pairs)
    assert ("PREF002" in codes(tmp_path / "pairs.jsonl")) == is_told


@pytest.mark.parametrize("swapped", [True, False])
@pytest.mark.parametrize(
    ("good", "bad", "is_known"),
    [
        ({"ranks": {"ann_a": 1, "ann_b": 2}}, {"ranks": {"ann_a": 4, "ann_b": 3}}, True),
        ({"ranks": {"anna": 1, "bert": 2}}, {"ranks": {"anna": 4, "bert": 3}}, True),
        ({"ratings": {"r1": 5, "r2": 4}}, {"ratings": {"r1": 2, "r2": 1}}, True),
        ({"ratings": [5, 4, 5]}, {"ratings": [1, 2, 1]}, True),
        (
            {"votes": [{"by": "a", "rank": 1}, {"by": "b", "rank": 1}]},
            {"votes": [{"by": "a", "rank": 2}, {"by": "b", "rank": 2}]},
            True,
        ),
        ({"ratings": {"helpful": 5, "short": 4}}, {"ratings": {"helpful": 2, "short": 1}}, False),
        ({"sizes": {"s_a": 5, "s_b": 4}}, {"sizes": {"s_a": 2, "s_b": 1}}, False),
        ({"ratings": {"r1": 5, "r2": "n/a"}}, {"ratings": {"r1": 2, "r2": 1}}, False),
    ],
)
def test_ratings_of_several_people(
    good: dict[str, Any], bad: dict[str, Any], is_known: bool, swapped: bool, tmp_path: Path
) -> None:
    tasks = [
        {"question": prompt, "candidates": [{"text": other, **bad}, {"text": one, **good}]}
        for prompt, one, other in ANSWERS
    ]
    write(tmp_path / "annotations.jsonl", tasks)
    sides = ("rejected", "chosen") if swapped else ("chosen", "rejected")
    pairs = [{"prompt": prompt, sides[0]: one, sides[1]: other} for prompt, one, other in ANSWERS]
    write(tmp_path / "pairs.jsonl", pairs)
    assert ("PREF002" in codes(tmp_path / "pairs.jsonl")) == (is_known and swapped)


@pytest.mark.parametrize("swapped", [True, False])
def test_ranks_of_the_row(swapped: bool, tmp_path: Path) -> None:
    pairs = [
        {
            "prompt": p,
            "chosen": a,
            "rejected": b,
            "chosen_rank": 1 + swapped,
            "rejected_rank": 2 - swapped,
        }
        for p, a, b in ANSWERS
    ]
    write(tmp_path / "pairs.jsonl", pairs)
    assert ("PREF002" in codes(tmp_path / "pairs.jsonl")) == swapped


def test_labels_that_a_conversion_lost(tmp_path: Path) -> None:
    lines = [f"{p},{a},{n % 5 // 3}\n" for n, (p, a, _) in enumerate(ANSWERS)]
    (tmp_path / "votes.csv").write_text(
        "prompt,completion,thumbs\n" + "".join(lines), encoding="utf-8"
    )
    write(
        tmp_path / "kto.jsonl",
        [{"prompt": p, "completion": a, "label": True} for p, a, _ in ANSWERS],
    )
    (finding,) = truetune.check(str(tmp_path / "kto.jsonl"), select="PREF010").findings
    assert "`thumbs` of votes.csv" in finding.message
    assert "'0' (24)" in finding.message


def test_a_length_that_tells_all_pairs_leads_to_their_sides(tmp_path: Path) -> None:
    pairs = [{"prompt": p, "chosen": "Short.", "rejected": b * 4} for p, _, b in ANSWERS]
    write(tmp_path / "pairs.jsonl", pairs)
    (finding,) = truetune.check(str(tmp_path / "pairs.jsonl"), select="PREF003").findings
    assert any("swapped" in line for line in finding.evidence)


def test_scores_that_speak_for_the_sides_acquit_them(tmp_path: Path) -> None:
    scores = {"score_chosen": 8, "score_rejected": 3}
    pairs = [{"prompt": p, "chosen": b * 4, "rejected": "Short.", **scores} for p, _, b in ANSWERS]
    write(tmp_path / "pairs.jsonl", pairs)
    (finding,) = truetune.check(str(tmp_path / "pairs.jsonl"), select="PREF003").findings
    assert any("not swapped" in line for line in finding.evidence)
    assert not any("check whether" in line for line in finding.evidence)


@pytest.mark.parametrize("swapped", [True, False])
def test_a_stock_answer_has_another_worth_for_each_question(swapped: bool, tmp_path: Path) -> None:
    tasks = [
        {"question": prompt, "candidates": [
            {"text": one, "rank": 1}, {"text": "Ask your branch.", "rank": 2 + number % 3}
        ]}
        for number, (prompt, one, _) in enumerate(ANSWERS)
    ]  # fmt: skip
    write(tmp_path / "annotations.jsonl", tasks)
    sides = ("rejected", "chosen") if swapped else ("chosen", "rejected")
    pairs = [
        {"prompt": prompt, sides[0]: one, sides[1]: "Ask your branch."}
        for prompt, one, _ in ANSWERS
    ]
    write(tmp_path / "pairs.jsonl", pairs)
    assert ("PREF002" in codes(tmp_path / "pairs.jsonl")) == swapped


def test_lengths_of_exchanged_sides_are_a_note(tmp_path: Path) -> None:
    tasks = [
        {"text": text, "rank": rank}
        for _, one, other in ANSWERS
        for text, rank in ((f"{one} It is long and full.", 1), (other, 2))
    ]
    write(tmp_path / "ranks.jsonl", tasks)
    pairs = [
        {"prompt": prompt, "chosen": other, "rejected": f"{one} It is long and full."}
        for prompt, one, other in ANSWERS
    ]
    write(tmp_path / "pairs.jsonl", pairs)
    found = {one.code: one for one in truetune.check(str(tmp_path / "pairs.jsonl")).findings}
    assert found["PREF003"].severity == "info"
    assert "preference-pairs-swapped" in (found["PREF003"].remedy or "")
    (tmp_path / "ranks.jsonl").unlink()
    (alone,) = truetune.check(str(tmp_path / "pairs.jsonl"), select="PREF003").findings
    assert alone.severity == "warning"
    assert "swap the sides" in (alone.remedy or "")
