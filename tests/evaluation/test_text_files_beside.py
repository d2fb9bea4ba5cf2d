"""Answers in a text file: the references and questions that stand at their lines in the files beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

import truetune
from truetune.data.read_predictions import read_predictions

CITIES = [f"The capital of country {i} is city {chr(65 + i % 26)}{i}." for i in range(40)]


def write(folder: Path, name: str, lines: list[str]) -> Path:
    path = folder / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_references_that_are_moved_by_a_row_are_found_beside_the_answers(tmp_path: Path) -> None:
    path = write(tmp_path, "hyps.txt", CITIES)
    write(tmp_path, "refs.txt", CITIES[-1:] + CITIES[:-1])
    write(tmp_path, "questions.txt", [f"Which is the capital of country {i}?" for i in range(40)])
    report = truetune.score(path)
    assert "answers-belong-to-other-rows" in [finding.rule for finding in report.findings]


@pytest.mark.parametrize(
    ("answers", "others"),
    [
        ("test.hyp.txt", {"test.ref.txt": 40, "dev.ref.txt": 40}),
        ("test_predictions.txt", {"test_gold.txt": 40}),
    ],
)
def test_a_file_belongs_to_answers_of_its_name(
    answers: str, others: dict[str, int], tmp_path: Path
) -> None:
    path = write(tmp_path, answers, CITIES)
    for name, lines in others.items():
        write(tmp_path, name, CITIES[:lines])
    read = read_predictions([str(path)], look_beside=True)
    assert [one.reference for one in read.predictions] == CITIES


@pytest.mark.parametrize(
    ("answers", "others"),
    [
        ("hyps.txt", {"refs.txt": 39}),
        ("hyps.txt", {"refs.txt": 40, "gold.txt": 40}),
        ("test.hyp.txt", {"dev.ref.txt": 40}),
        ("notes.txt", {"refs.txt": 40}),
        ("refs.txt", {"gold.txt": 40}),
    ],
)
def test_other_files_are_left_alone(answers: str, others: dict[str, int], tmp_path: Path) -> None:
    path = write(tmp_path, answers, CITIES)
    for name, lines in others.items():
        write(tmp_path, name, CITIES[:lines])
    read = read_predictions([str(path)], look_beside=True)
    assert not any(one.reference for one in read.predictions)
