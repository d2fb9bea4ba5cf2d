"""Which label an answer says, and whether it gives its reference."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import truetune
from truetune.generation.labels_said_by_answers import gives_reference, score_labels

LABELS = ["supported", "not supported", "unsupported"]


@pytest.mark.parametrize(
    ("answer", "reference", "gives"),
    [
        ("Supported: 77 patients were followed", "supported", True),
        ("unsupported: no trial", "supported", False),
        ("It is not supported.", "supported", False),
        ("Either supported or unsupported", "supported", None),
        ("I cannot tell", "supported", False),
        ("We add: 30 + 16 = 46", "46", True),
        ("We add: 30 + 16 = 47", "46", False),
        ("The answer is B.", "B", True),
        ("It must be a good one here", "B", None),
        ("Sure. The cat sat on the mat all day long", "The cat sat on the mat all day long", True),
        ("A dog lay there", "The cat sat on the mat all day long", None),
    ],
)
def test_an_answer_gives_its_reference(answer: str, reference: str, gives: bool | None) -> None:
    assert gives_reference(answer, reference, LABELS) is gives


def test_labels_are_counted_by_their_readings() -> None:
    references = ["supported"] * 6 + ["unsupported"] * 4
    answers = ["Unsupported: no."] * 5 + ["Supported."] * 3 + ["Unsupported, not supported."] * 2
    scores = score_labels(answers, references)
    assert scores is not None
    assert scores.right_count_by_first_label == 1 + 2
    assert scores.right_count_by_substring == 6 + 2
    assert scores.right_and_row_counts_by_label == {"supported": (1, 6), "unsupported": (2, 4)}


def test_score_says_what_a_figure_beside_counts(tmp_path: Path) -> None:
    rows = [
        {
            "prompt": f"Claim {n}?",
            "reference": "supported" if n % 3 else "unsupported",
            "prediction": f"Unsupported: {n} patients." if n % 10 else f"Supported: {n} patients.",
        }
        for n in range(90)
    ]
    path = tmp_path / "predictions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    in_text = sum(row["reference"] in row["prediction"].lower() for row in rows) / 90
    (tmp_path / "metrics.json").write_text(json.dumps({"accuracy": in_text}), encoding="utf-8")
    report = truetune.score(path)
    assert "most-answers-are-wrong" in {finding.rule for finding in report.findings}
    notes = " ".join(report.notes)
    assert "metrics.json says accuracy" in notes
    assert "which is what `reference in answer` gives" in notes
    # What one label inside of another does to the figure is a finding of its own.
    within = next(f for f in report.findings if f.rule == "answers-give-label-containing-reference")
    assert "'supported' is a substring of 'unsupported'" in within.message


@pytest.mark.parametrize("share", [0.6, 0.9])
def test_answers_that_are_mostly_right_are_no_finding(share: float) -> None:
    references = ["46", "12", "7", "9"] * 15
    answers = [
        f"That makes {reference if n < share * 60 else 1}."
        for n, reference in enumerate(references)
    ]
    report = truetune.score(answers, [f"Sum {n}?" for n in range(60)], references)
    assert "most-answers-are-wrong" not in {finding.rule for finding in report.findings}
