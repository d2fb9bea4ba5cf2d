"""Which files of a folder are held against each other, and what is said of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from truetune.checks.check_paths import check_paths
from truetune.checks.reports import Report
from truetune.checks.split_training_and_held_out_files_by_name import (
    split_training_and_held_out_files,
)
from truetune.settings.run_spec import RunSpec

Rows = Sequence[Mapping[str, object]]


def chat(number: int, answer: str = "") -> dict[str, object]:
    """A row of one question."""
    reply = answer or f"It opens at {number} in the morning, and closes at noon."
    turns = [("user", f"When does shop {number} open?"), ("assistant", reply)]
    return {"messages": [{"role": role, "content": text} for role, text in turns]}


def write(path: Path, rows: Rows) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def check(*paths: str, spec: RunSpec | None = None) -> Report:
    return check_paths(paths, spec or RunSpec())


def codes(report: Report) -> list[str]:
    return [finding.code for finding in report.findings]


TOGETHER = [chat(n) for n in range(20)]


@pytest.mark.parametrize("name", ["val", "test", "dev", "validation_set", "my-eval", "held_out"])
def test_a_leak_between_the_files_of_a_folder_is_found(tmp_path: Path, name: str) -> None:
    write(tmp_path / "train.jsonl", TOGETHER)
    write(tmp_path / f"{name}.jsonl", [*TOGETHER[:6], *(chat(n) for n in range(90, 96))])
    report = check(str(tmp_path))
    assert codes(report) == ["ROW006"]
    assert [one.path for one in report.subjects if one.kind == "evaluation rows"]


def test_files_that_are_named_are_paired_too(tmp_path: Path) -> None:
    train = write(tmp_path / "sft_train.jsonl", TOGETHER)
    held = write(tmp_path / "sft_test.jsonl", TOGETHER[:6])
    assert codes(check(train, held)) == ["ROW006"]


def test_files_that_share_no_row_are_fine(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", TOGETHER)
    write(tmp_path / "val.jsonl", [chat(n) for n in range(90, 99)])
    assert codes(check(str(tmp_path))) == []


def test_an_error_in_the_held_out_rows_is_said(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", TOGETHER)
    write(tmp_path / "val.jsonl", [chat(n, " " if n % 2 else "") for n in range(60, 90)])
    report = check(str(tmp_path))
    assert report.findings
    places = [case.origin.file for one in report.findings for case in one.cases if case.origin]
    assert all(place.endswith("val.jsonl") for place in places)


UNPAIRED = {
    "no training name": ("chats.jsonl", "val.jsonl"),
    "no held-out name": ("train.jsonl", "more.jsonl"),
    "a part of a word": ("train.jsonl", "contest.jsonl"),
    "shards": ("train-00000.jsonl", "train-00001.jsonl"),
}


@pytest.mark.parametrize("names", UNPAIRED.values(), ids=UNPAIRED)
def test_other_names_are_not_paired(tmp_path: Path, names: tuple[str, str]) -> None:
    paths = [write(tmp_path / name, TOGETHER) for name in names]
    assert split_training_and_held_out_files(paths) is None


def test_files_of_no_known_form_are_not_paired(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{name}.jsonl", [{"a": 1, "b": 2}]) for name in ("train", "test")]
    assert split_training_and_held_out_files(paths) is None


def test_what_the_user_names_for_the_evaluation_stays(tmp_path: Path) -> None:
    train = write(tmp_path / "train.jsonl", TOGETHER)
    held = write(tmp_path / "test.jsonl", TOGETHER[:6])
    other = write(tmp_path / "other.jsonl", [chat(200)])
    assert "ROW006" not in codes(check(train, held, spec=RunSpec(eval_data=(other,))))
