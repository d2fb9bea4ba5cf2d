"""JSON answers beside their references field by field, and labels that stand in one another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from truetune.evaluation.score_predictions import ScoreReport, score
from truetune.generation.json_field_scores import score_fields, share_of_right_fields

FIELDS, PART, MISSED = "ANS031", "ANS032", "ANS017"
GOLD = [
    {"no": f"A-{n}", "total": 10 + n, "due": f"2026-0{n % 9 + 1}-01", "buyer": {"name": f"B{n}"}}
    for n in range(20)
]


def report(answers: list[Any], references: list[Any]) -> ScoreReport:
    """The report on answers and references, each as JSON."""
    texts = [[json.dumps(one) for one in side] for side in (answers, references)]
    return score(texts[0], [f"invoice {n}" for n in range(len(answers))], texts[1])


def codes(answers: list[Any], references: list[Any]) -> set[str]:
    """What is found of these."""
    return {one.code for one in report(answers, references).findings}


def without(*names: str) -> list[dict[str, Any]]:
    """The answers without these fields in every second row."""
    return [
        {k: v for k, v in row.items() if number % 2 or k not in names}
        for number, row in enumerate(GOLD)
    ]


@pytest.mark.parametrize(
    "answers",
    [
        without("due"),
        without("buyer"),
        [{**row, "due": None} if number % 3 == 0 else row for number, row in enumerate(GOLD)],
        [{**row, "buyer": {"name": ""}} for row in GOLD],
        [{**row, "vat": 7} for row in GOLD],
    ],
)
def test_fields_left_out_or_added(answers: list[Any]) -> None:
    found = codes(answers, GOLD)
    assert FIELDS in found
    assert MISSED not in found


@pytest.mark.parametrize(
    "answers",
    [
        GOLD,
        [{**row, "total": f"{row['total']}.00"} for row in GOLD],
        [{**row, "total": 0} for row in GOLD],
        [{k: v for k, v in row.items() if n or k != "due"} for n, row in enumerate(GOLD)],
        [{**row, "note": None} for row in GOLD],
        ["no JSON at all" for _ in GOLD],
    ],
)
def test_fields_that_are_all_given(answers: list[Any]) -> None:
    assert FIELDS not in codes(answers, GOLD)


def test_shares_over_given_fields_and_over_those_of_the_references() -> None:
    texts = [[json.dumps(one) for one in side] for side in (without("due", "total"), GOLD)]
    scores = score_fields(*texts)
    assert scores is not None
    assert (scores.precision, scores.recall) == (1.0, 0.75)
    assert scores.missing == {"due": 10, "total": 10}


def test_mostly_right_objects_are_those_of_their_rows() -> None:
    answers = [{**row, "total": 0} for row in GOLD]
    assert share_of_right_fields(json.dumps(answers[3]), json.dumps(GOLD[3])) == 0.75
    assert MISSED not in codes(answers, GOLD)
    assert MISSED in codes([{"x": f"?{n}", "y": n * n} for n in range(20)], GOLD)


LABELS = ["safe", "safe", "unsafe"] * 10


def test_label_inside_another() -> None:
    found = score(["unsafe"] * 30, None, LABELS).findings
    assert [one.severity for one in found if one.code == PART] == ["info"]


@pytest.mark.parametrize("name", ["score.log", "metrics.json"])
def test_figure_beside_that_counts_parts(tmp_path: Path, name: str) -> None:
    rows = [{"output": "unsafe: spam", "label": one} for one in LABELS]
    path = tmp_path / "preds.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    text = "rows 30\naccuracy 1.000\n" if name.endswith("log") else '{"accuracy": 1.0}'
    (tmp_path / name).write_text(text, encoding="utf-8")
    found = [one for one in score(path).findings if one.code == PART]
    assert [one.severity for one in found] == ["warning"]
    assert name in found[0].evidence[-1]
    (tmp_path / name).write_text(text.replace("1.0", "0.33"), encoding="utf-8")
    assert [one.severity for one in score(path).findings if one.code == PART] == ["info"]


@pytest.mark.parametrize(
    "answers",
    [LABELS, [{"safe": "unsafe"}.get(one, one) if n < 2 else one for n, one in enumerate(LABELS)]],
)
def test_labels_that_are_right(answers: list[str]) -> None:
    assert PART not in {one.code for one in score(answers, None, LABELS).findings}


def test_labels_apart() -> None:
    references = ["yes", "yes", "no"] * 10
    assert PART not in {one.code for one in score(["no"] * 30, None, references).findings}
