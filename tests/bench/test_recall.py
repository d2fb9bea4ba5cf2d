"""The recall bench: its cases are whole, its page holds what was measured, and some cases are measured here."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.recall.case import Case, Fault, cases, faults
from bench.recall.measure import measure_case
from bench.recall.page import PAGE, kept, table
from truetune.checks.rule_catalogue import all_rules
from truetune.cli import truetune_group

EVERY = 37
"""Cases between two that are measured in this test: no divisor of the eight of a fault, so that all numbers come"""
LEAST_FAULTY = 6
LEAST_HEALTHY = 2
RIGHT = [case for case in cases() if kept().get(case.key) == case.is_faulty]


@pytest.mark.parametrize("fault", faults(), ids=lambda fault: fault.id)
def test_a_fault_has_its_cases_and_rules_that_exist(fault: Fault) -> None:
    own = [case for case in cases() if case.fault == fault]
    assert sum(case.is_faulty for case in own) >= LEAST_FAULTY
    assert sum(not case.is_faulty for case in own) >= LEAST_HEALTHY
    assert set(fault.rules) <= {rule.name() for rule in all_rules()}


@pytest.mark.parametrize("case", RIGHT[::EVERY], ids=lambda case: case.key)
def test_what_was_right_is_right(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    def output_of(command: str, folder: Path) -> str:
        monkeypatch.chdir(folder)
        runner = CliRunner(env={"COLUMNS": "400", "NO_COLOR": "1"})
        return runner.invoke(truetune_group, shlex.split(command)).output

    measured = measure_case(case, output_of)
    monkeypatch.undo()
    assert measured.is_right


def test_a_case_is_right_through_the_command() -> None:
    """The bench starts a process for each case, and this one shows that it does."""
    faulty = next(case for case in RIGHT if case.is_faulty)
    assert measure_case(faulty).is_right


def test_the_page_holds_what_was_measured() -> None:
    assert {case.key for case in cases()} == set(kept())
    assert table() in PAGE.read_text(encoding="utf-8")
