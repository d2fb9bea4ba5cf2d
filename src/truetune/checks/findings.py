"""Finding: a fact about a fine-tune, with its evidence and its remedy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from truetune.checks.plot_of_finding import Figure
from truetune.checks.rule_families import code_sort_key
from truetune.data.conversation import Origin
from truetune.settings.run_spec import Severity

SHOWN_CASES = 3
"""Places of a finding that a terminal shows, where --cases does not say otherwise"""
RANK: dict[Severity, int] = {"info": 0, "warning": 1, "error": 2}


@dataclass(frozen=True, slots=True)
class Case:
    """One place where it happens."""

    text: str
    """The evidence at this place, one line: the tokens, the fields, the counts."""
    origin: Origin | None = None
    turn: int | None = None
    """Index of the message."""
    file: str | None = None
    """Where it is not in a row: the file it is in (`tokenizer_config.json`)."""
    line: int | None = None
    """1-based line of `file`"""
    column: int | None = None
    """1-based column of that line, in characters"""
    token: int | None = None
    """Which token of the row's example, from 0; of the example of `turn` where turns have examples of their own"""
    side: Literal["rejected"] | None = None
    """The tokens are those of a pair's rejected side, not of its chosen one."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Characters `start` to `end` of a text become `text`."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Fix:
    """The remedy as edits of one file."""

    file: str
    edits: tuple[Edit, ...]
    """In the text of the file as it was read; they do not overlap."""
    safe: bool = True
    """A safe one changes nothing but the fault; others are applied when asked for (`--unsafe-fixes`)."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, once per run and not once per row."""

    rule: str
    """kebab-case name"""
    code: str
    severity: Severity
    message: str
    """One line: what is wrong, and how many (`3 of 200 rows ...`)."""
    remedy: str
    """The one change that fixes it."""
    evidence: tuple[str, ...] = ()
    """Facts that prove it, one line each, about the whole."""
    cases: tuple[Case, ...] = ()
    """Places, in their order; at most `rule.MAX_CASES` are kept."""
    count: int | None = None
    total: int | None = None
    fix: Fix | None = None
    figure: Figure | None = None
    """What shows it, as a small plot"""
    fault: str = ""
    """Name of the fault that its rule finds; empty if it was read from a file of a release without faults"""
    is_loud: bool = False
    """A program stops at it and says so, if a release runs that nothing asks for: it explains no run that continued"""


def sort_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings sorted by severity, then by family and code; one that may stop a program stands
    after the warnings, for it says so itself.
    """
    return tuple(sorted(findings, key=_severity_sort_key))


def _severity_sort_key(finding: Finding) -> tuple[float, tuple[int, str]]:
    """The key by which findings are sorted."""
    rank: float = RANK[finding.severity]
    if finding.is_loud:
        rank = min(rank, (RANK["warning"] + RANK["info"]) / 2)
    return -rank, code_sort_key(finding.code)
