"""A report as small, stable JSON for coding assistants; the schema is docs/schema/brief-1.json.

A full report holds rows of tokens, tables and every place of a finding: 100 kB are common, and an assistant pays
for each of them with its context. This form keeps what decides the next action: the verdict, the counts, each
finding with its first place and its remedy, and what was not judged, one line for each reason. The keys that the
full report has too mean the same in both. The trade-off: no page, baseline or figure can be made of it, so
`truetune report` and `--baseline` take the full report alone.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import PurePath

from truetune.checks.findings import Case, Finding, Fix
from truetune.checks.judgement import NotJudged
from truetune.checks.reports import DataReport, Report
from truetune.package import __version__
from truetune.report.as_json import run_log_json
from truetune.report.verdict_and_next_step import next_step_of_report, report_verdict

BRIEF_SCHEMA = "truetune.brief/1"
# Chosen: rules that wait for one thing (a tokenizer) are dozens, and the reason is what counts.
MAX_NAMES_OF_A_REASON = 3
"""Rules that a line on what was not judged names; the others are counted"""
# Chosen: an assistant reads the likeliest first, and the guide (`truetune explain`) has all of them.
MAX_CAUSES = 5
"""Causes of a symptom that remain"""
LINTED_SUFFIXES = (".py", ".ipynb")
"""Files in which `truetune lint --fix` makes the edits of findings"""


@dataclass(frozen=True, slots=True)
class BriefCounts:
    """How many findings of each severity there are, and how much was examined."""

    error: int
    warning: int
    info: int
    known: int
    """Findings that the baseline has too"""
    examined: int
    """Checks that were made and found nothing"""


@dataclass(frozen=True, slots=True)
class BriefFinding:
    """One finding, with its first place."""

    code: str
    rule: str
    severity: str
    message: str
    place: str
    """`file:line`, `file:line:column`, or empty where it is about the whole"""
    shown: str
    """The text or value at that place"""
    remedy: str
    fix: str
    """The command that makes the change; empty where the remedy is to be done by hand"""


@dataclass(frozen=True, slots=True)
class BriefCause:
    """A cause of the symptom that no finding proves and nothing rules out."""

    text: str
    seen: str
    """The sign by which it is recognised"""
    place: str
    """The line of the project that points at it; empty where there is none"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BriefReport:
    """A report in brief: the fields are the keys of the JSON, in their order."""

    schema: str = BRIEF_SCHEMA
    truetune: str = __version__
    verdict: str
    next: str
    outcome: str
    exit_code: int
    counts: BriefCounts
    findings: tuple[BriefFinding, ...]
    causes: tuple[BriefCause, ...]
    """Of `troubleshoot` alone"""
    not_judged: tuple[str, ...]
    """One line for each reason; what is about other things than those that were checked is left out"""

    def as_json(self) -> str:
        """It as a JSON object in ASCII, indented, so that a person can read it too."""
        return json.dumps(asdict(self), indent=1)


def make_brief_report(report: Report) -> BriefReport:
    """Reduce a report to what decides the next action.

    Args:
        report: the result of any command that reports findings.

    Returns:
        The record, ready to be written as JSON.
    """
    severities = [finding.severity for finding in report.findings]
    # As in the full report: a log brings a sentence of its own.
    more = run_log_json(report) | report.more()
    return BriefReport(
        verdict=more.get("verdict") or report_verdict(report),
        next=next_step_of_report(report, more.get("runs") or ()),
        outcome=report.outcome,
        exit_code=report.exit_code(),
        counts=BriefCounts(
            error=severities.count("error"),
            warning=severities.count("warning"),
            info=severities.count("info"),
            known=len(report.known),
            examined=len(report.examined),
        ),
        findings=tuple(_make_brief_finding(finding, report) for finding in report.findings),
        causes=_likeliest_causes_not_ruled_out(report),
        not_judged=tuple(_lines_by_reason(report.not_judged)),
    )


def _make_brief_finding(finding: Finding, report: Report) -> BriefFinding:
    """A finding with its first place, and the command that makes its edits."""
    first = finding.cases[0] if finding.cases else None
    return BriefFinding(
        code=finding.code,
        rule=finding.rule,
        severity=finding.severity,
        message=finding.message,
        place=_place_of_case(first, report) if first else "",
        shown=first.text if first else "",
        remedy=finding.remedy,
        fix=_command_that_fixes(finding, report),
    )


def _place_of_case(case: Case, report: Report) -> str:
    """`file:line` of a row, `file:line:column` of a script; a file of the tokenizer with its folder."""
    if case.origin is not None:
        return str(case.origin)
    name = case.file or ""
    # Rules on a tokenizer name its files alone. Only where the name leads nowhere by itself.
    if name and isinstance(report, DataReport) and not os.path.exists(name):
        inside = os.path.join(report.tokenizer, name)
        name = inside if os.path.exists(inside) else name
    return ":".join(str(part) for part in (name, case.line, case.column) if part)


def _command_that_fixes(finding: Finding, report: Report) -> str:
    """The command that makes the edits of a finding; empty where none does."""
    if finding.fix is not None:
        return _lint_command(finding.fix)
    origin = next((case.origin for case in finding.cases if case.origin is not None), None)
    if origin is None:
        return ""
    tokenizer = report.tokenizer if isinstance(report, DataReport) else ""
    return _command_that_shows_remedy_as_diff(finding.rule, origin.file, tokenizer)


def _lint_command(fix: Fix) -> str:
    """The command that edits a script or notebook; empty for files of other kinds."""
    if PurePath(fix.file).suffix not in LINTED_SUFFIXES:
        return ""
    unsafe = [] if fix.safe else ["--unsafe-fixes"]
    return shlex.join(["truetune", "lint", "--fix", *unsafe, fix.file])


def _command_that_shows_remedy_as_diff(rule: str, file: str, tokenizer: str) -> str:
    """The command that shows the remedy of a rule as a diff of a file of rows; empty where the rule has none."""
    # Loads every remedy; a check without findings on rows has no need of them.
    from truetune.fixing.remedy_catalogue import all_remedies

    remedies = [remedy for remedy in all_remedies() if remedy.rule == rule]
    if not remedies:
        return ""
    for_tokenizer = ["-t", tokenizer] if tokenizer else []
    unsafe = [] if any(remedy.safe for remedy in remedies) else ["--unsafe"]
    return shlex.join(
        ["truetune", "fix", file, *for_tokenizer, "--select", rule, *unsafe, "--diff"]
    )


def _likeliest_causes_not_ruled_out(report: Report) -> tuple[BriefCause, ...]:
    """The causes of a symptom that remain, the likeliest first; none for another kind of report."""
    # Here and not at the top: it takes 0.15 s to load, and most calls draw nothing of it.
    from truetune.troubleshooting.symptom_report import SymptomReport

    if not isinstance(report, SymptomReport):
        return ()
    return tuple(
        BriefCause(
            judged.cause.text,
            judged.cause.seen,
            judged.lines[0].place if judged.lines else "",
        )
        for judged in report.remaining()[:MAX_CAUSES]
    )


def _lines_by_reason(parts: Iterable[NotJudged]) -> list[str]:
    """One line for each reason why something was not judged; what was asked for comes first."""
    names: dict[tuple[str, str], list[str]] = {}
    for part in sorted(parts, key=lambda part: not part.asked):
        # A rule that is about other things (DPO, in a script of SFT) has nothing that would unlock
        # it, and nobody can act on it.
        if part.asked or part.unlock or part.always_told:
            names.setdefault((part.reason, part.unlock), []).append(part.what)
    return [
        f"{_join_names(whats)}: {reason}{f'; {unlock}' if unlock else ''}"
        for (reason, unlock), whats in names.items()
    ]


def _join_names(names: list[str]) -> str:
    """The first names, and how many others there are."""
    others = len(names) - MAX_NAMES_OF_A_REASON
    shown = ", ".join(names[:MAX_NAMES_OF_A_REASON])
    return f"{shown} and {others:,} more" if others > 0 else shown
