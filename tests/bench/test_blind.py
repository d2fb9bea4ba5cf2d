"""The blind rounds are whole: sealed archives, truths that can be read, and a first result for each case."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from bench.blind.measure import MeasuredCase, Output
from bench.blind.round import ROUNDS, BlindCase, read_cases, seal_round, unpack_round
from truetune.checks.rule_catalogue import all_rules

NUMBERS = sorted(int(folder.name) for folder in ROUNDS.iterdir())
PAGE = Path(__file__).parents[2] / "docs" / "blind.md"


def table_lines(number: int) -> tuple[list[str], list[str]]:
    """The head of the page's table, and the line of a round, cell by cell."""
    page = PAGE.read_text(encoding="utf-8")
    (head,) = re.findall(r"^\| (round \|.*) \|$", page, re.MULTILINE)
    (line,) = re.findall(rf"^\| ({number} \|.*) \|$", page, re.MULTILINE)
    return head.split(" | "), line.split(" | ")


def first_result(number: int) -> dict[str, dict[str, str]]:
    """Verdict and findings of each case when it was first run."""
    text = (ROUNDS / str(number) / "first_result.json").read_text(encoding="utf-8")
    cases: dict[str, dict[str, str]] = json.loads(text)["cases"]
    return cases


@pytest.mark.parametrize("number", NUMBERS)
def test_each_case_has_its_folders_and_a_first_result(number: int, tmp_path: Path) -> None:
    unpack_round(number, tmp_path)
    cases = read_cases(number)
    assert {case.name for case in cases} == set(first_result(number))
    for case in cases:
        folders = ("faulty", "twin") if case.is_faulty else ("files",)
        assert all(any((tmp_path / case.name / one).iterdir()) for one in folders), case.name


@pytest.mark.parametrize("number", NUMBERS)
def test_rules_that_name_a_fault_exist(number: int) -> None:
    names = {rule.name() for rule in all_rules()}
    assert {name for case in read_cases(number) for name in case.named_by} <= names


@pytest.mark.parametrize("number", NUMBERS)
def test_the_page_says_the_first_result(number: int) -> None:
    counts = Counter(one["verdict"] for one in first_result(number).values() if "verdict" in one)
    (line,) = re.findall(rf"^\| {number} \|.*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert f"**{counts['named']} of {counts.total()}**" in line
    assert f" | {counts['near']} | {counts['missed']} | " in line


@pytest.mark.parametrize("number", NUMBERS)
def test_the_page_says_how_many_of_each_kind_were_named(number: int) -> None:
    head, line = table_lines(number)
    kinds = {case.name: case.station for case in read_cases(number) if case.is_faulty}
    verdicts = first_result(number)
    for kind, in_page in zip(head, line, strict=True):
        of_kind = [verdicts[name]["verdict"] for name, other in kinds.items() if other == kind]
        if of_kind:
            assert in_page == f"{of_kind.count('named')} of {len(of_kind)}", kind
    assert set(kinds.values()) <= set(head)


@pytest.mark.parametrize("number", NUMBERS)
def test_the_page_says_how_many_cases_a_rule_names_now(number: int) -> None:
    head, line = table_lines(number)
    faulty = [case for case in read_cases(number) if case.is_faulty]
    named = sum(bool(case.named_by) for case in faulty)
    assert line[head.index("after the fixes")] == f"{named} of {len(faulty)}"


@pytest.mark.parametrize("number", NUMBERS)
def test_the_page_says_how_many_alarms_there_were(number: int) -> None:
    results = first_result(number)
    faulty = [case.name for case in read_cases(number) if case.is_faulty]
    twins = sum(bool(results[name]["twin"]) for name in faulty)
    healthy = [result for name, result in results.items() if name not in faulty]
    alarms = sum(bool(result["findings"]) for result in healthy)
    page = re.sub(r"\s+", " ", PAGE.read_text(encoding="utf-8"))
    in_healthy = f"{alarms} of {len(healthy)} healthy set-ups"
    assert f"In round {number}, {in_healthy} and {twins} of {len(faulty)} counterparts had" in page


def test_an_archive_that_was_changed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.blind.round.ROUNDS", tmp_path / "rounds")
    case = tmp_path / "written" / "w" / "case01"
    for kind in ("faulty", "twin"):
        (case / kind).mkdir(parents=True)
        (case / kind / "rows.jsonl").write_text("{}\n", encoding="utf-8")
    (case / "truth.yaml").write_text(
        "station: rows\ncommand: truetune check rows.jsonl\nfault: none\n", encoding="utf-8"
    )
    seal_round(1, tmp_path / "written", tmp_path / "parts")
    unpack_round(1, tmp_path / "unpacked")
    assert (tmp_path / "unpacked/w/case01/twin/rows.jsonl").read_text(encoding="utf-8") == "{}\n"
    archive = tmp_path / "rounds/1/cases.tar.xz"
    archive.write_bytes(archive.read_bytes() + b"\0")
    with pytest.raises(ValueError, match="not the archive that was sealed"):
        unpack_round(1, tmp_path / "again")


def test_a_finding_on_the_twin_too_names_nothing() -> None:
    case = BlindCase(
        name="w/case01", station="rows", command="", fault="x", named_by=("eos-twice", "rows-cut")
    )
    finding = Output("error[ROW001] eos-twice: 3 of 4 rows\n", 1)
    assert MeasuredCase(case, finding, Output("", 0)).is_named
    assert not MeasuredCase(case, finding, finding).is_named
    assert not MeasuredCase(case, Output("warning[ROW002] other: x\n", 1), Output("", 0)).is_named
