"""`truetune check` judges the answers of a model that lie among the files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import truetune
from truetune.checks.reports import Report

QUESTIONS = [f"Which river flows through town number {number}?" for number in range(40)]


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def looping_predictions() -> list[dict[str, Any]]:
    return [
        {"question": question, "prediction": "the river " * 60, "reference": f"River {number}."}
        for number, question in enumerate(QUESTIONS)
    ]


def training_rows() -> list[dict[str, Any]]:
    return [
        {"prompt": question, "completion": f"It is the river of valley {number}."}
        for number, question in enumerate(QUESTIONS)
    ]


def found(report: Report) -> set[str]:
    return {finding.rule for finding in report.findings}


def test_a_file_of_predictions_is_scored(tmp_path: Path) -> None:
    file = write_rows(tmp_path / "out.jsonl", looping_predictions())
    assert "answers-loop" in found(truetune.check(file))
    assert found(truetune.check(file)) == found(truetune.score(file))


def test_a_folder_of_rows_and_predictions_is_judged_as_both(tmp_path: Path) -> None:
    write_rows(tmp_path / "out.jsonl", looping_predictions())
    rows = [*training_rows(), *training_rows()]
    write_rows(tmp_path / "train.jsonl", rows)
    report = truetune.check(tmp_path)
    assert {"answers-loop", "duplicate-rows"} <= found(report)
    assert not [part for part in report.not_judged if part.what == "the answers"]


def test_training_rows_are_never_scored(tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "train.jsonl", training_rows())
    report = truetune.check(rows)
    assert not [examined for examined in report.examined if examined.code.startswith("ANS")]


def test_rules_that_were_not_chosen_are_not_asked(tmp_path: Path) -> None:
    file = write_rows(tmp_path / "out.jsonl", looping_predictions())
    write_rows(tmp_path / "train.jsonl", training_rows())
    assert "answers-loop" not in found(truetune.check(tmp_path, ignore=["answers-loop"]))
    assert "answers-loop" not in found(truetune.check(file, ignore=["answers-loop"]))


def test_a_broken_line_of_predictions_hides_nothing(tmp_path: Path) -> None:
    good = looping_predictions()
    broken = tmp_path / "out.jsonl"
    broken.write_text(json.dumps(good[0]) + "\n{broken\n")
    write_rows(tmp_path / "train.jsonl", [*training_rows(), *training_rows()])
    report = truetune.check(tmp_path)
    assert "duplicate-rows" in found(report)
    assert any(f"{broken}:2" in part.reason for part in report.not_judged)


@pytest.mark.parametrize("name", ["missing.jsonl", "missing/*.jsonl"])
def test_what_is_not_there_is_an_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(truetune.errors.TruetuneError):
        truetune.check(tmp_path / name)
