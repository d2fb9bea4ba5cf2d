"""A rule's example under all rules of its station, as a user's check judges it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.checks.pages import run, sections
from truetune.checks.findings import Finding
from truetune.checks.rule import Rule
from truetune.checks.rule_catalogue import DATA, all_rules, station_of_rule
from truetune.checks.rule_runner import run_rules

CHEAP = (
    *DATA,
    "config",
    "devices",
    "source",
    "commands",
    "modelfile",
    "log",
    "checkpoint",
    "evaluation",
    "environment",
)
"""Stations whose examples are looked at without a run of a trainer"""


class _Every:
    """Stands for the rule: its name selects all, and a subject that is made for it is judged by all of its station."""

    def __init__(self, rule: type[Rule[Any]]) -> None:
        self.__module__ = rule.__module__
        self._station = station_of_rule(rule)
        self._judged: tuple[Finding, ...] = ()

    def name(self) -> str:
        """The beginning of all codes"""
        return ""

    def __call__(self, subject: Any) -> _Every:
        self._judged = run_rules(subject, all_rules(self._station)).findings
        return self

    def findings(self) -> tuple[Finding, ...]:
        """What all rules of the station find in the subject"""
        return self._judged


def all_findings(rule: type[Rule[Any]], folder: Path) -> tuple[Finding, ...]:
    """What all rules of its station find in a rule's example."""
    every: Any = _Every(rule)
    return run(every, sections(rule)["Example"], folder)
