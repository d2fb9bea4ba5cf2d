"""The report as SARIF 2.1.0, for code scanning in pull requests.

All rules are listed and not only those that were broken, so that the page of a code host can show what was run.
What was not judged becomes a notification: a scan that judged nothing must not look clean. Section numbers below
are those of the OASIS standard.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from truetune.checks.findings import Case, Finding
from truetune.checks.fingerprint_findings import fingerprints_of_findings
from truetune.checks.judgement import NotJudged
from truetune.checks.reports import DataReport, Report
from truetune.checks.rule_catalogue import all_rules, rule_page
from truetune.package import __version__
from truetune.report.rules_terminal import first_line_of_rule_page
from truetune.report.visible_text import escape_invisible_characters

LEVELS = {"error": "error", "warning": "warning", "info": "note"}


def report_as_sarif(report: Report) -> str:
    """The report as SARIF 2.1.0 with one run, as JSON text."""
    catalogue = list(all_rules())
    place = {rule.code: i for i, rule in enumerate(catalogue)}
    driver = {
        "name": "truetune",
        # Semantic versions have a hyphen before what is no release (1.2.0-dev.3); Python's have
        # a dot.
        "semanticVersion": __version__.replace(".dev", "-dev."),
        "rules": [
            {
                "id": rule.code,
                "name": rule.name(),
                "shortDescription": {"text": first_line_of_rule_page(rule_page(rule))},
                "help": {"text": rule_page(rule), "markdown": rule_page(rule)},
                "defaultConfiguration": {"level": LEVELS[rule.severity]},
            }
            for rule in catalogue
        ],
    }
    run = {
        "tool": {"driver": driver},
        # Columns are counted as Python counts characters; the default would be UTF-16 code
        # units, which differ behind an emoji.
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": not report.is_incomplete(),
                "exitCode": report.exit_code(),
                "toolExecutionNotifications": [
                    _sarif_notification(part) for part in report.not_judged
                ],
            }
        ],
        "results": [
            *_sarif_results(report.findings, place, report, "new" if report.known else None),
            *_sarif_results(report.known, place, report, "unchanged"),
        ],
    }
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [run],
    }
    return json.dumps(log, indent=2)


def _sarif_notification(part: NotJudged) -> dict[str, Any]:
    """What was not judged as a notification of SARIF (3.58): a warning where it was asked for, else
    a note.
    """
    named = {"associatedRule": {"id": part.code}} if part.code else {}
    return {
        "level": "warning" if part.asked else "note",
        "message": {"text": _escape_sarif_message(f"not judged: {part}")},
    } | named


def _sarif_results(
    findings: Sequence[Finding],
    rule_index: dict[str, int],
    report: Report,
    baseline_state: str | None,
) -> Iterator[dict[str, Any]]:
    """Findings as results of SARIF with their fingerprints; `baseline_state` is SARIF's
    baselineState (3.27.24), where there is a baseline.
    """
    for finding, prints in zip(findings, fingerprints_of_findings(findings), strict=True):
        result = _sarif_result(finding, rule_index, report) | {
            # Code hosts recognise a finding by this after lines have moved, and so keep a
            # dismissal.
            "partialFingerprints": {"truetune/v1": prints[0]}
        }
        yield result | ({"baselineState": baseline_state} if baseline_state else {})


def _sarif_result(finding: Finding, rule_index: dict[str, int], report: Report) -> dict[str, Any]:
    """A finding as SARIF's `result`, without fingerprints."""
    detail = [finding.message, *finding.evidence, f"help: {finding.remedy}"]
    root = report.tokenizer if isinstance(report, DataReport) else ""
    # A place without a file of its own is shown at what was looked at: a result without any
    # location is dropped by code hosts.
    whole = root or (report.subjects[0].path if report.subjects else "")
    locations = [_sarif_case_location(case, root, whole) for case in finding.cases]
    return {
        "ruleId": finding.code,
        "ruleIndex": rule_index[finding.code],
        "level": LEVELS[finding.severity],
        "message": {"text": "\n".join(map(_escape_sarif_message, detail))},
        "locations": locations or [_sarif_file_location(whole)],
    }


def _sarif_case_location(case: Case, root: str, whole: str) -> dict[str, Any]:
    """Where a case is, as a location of SARIF: in a row's file, in a source, or in a file of the
    tokenizer's folder, `root`; else what was looked at.
    """
    if case.origin is not None:
        return _sarif_file_location(case.origin.file, case.origin.line, text=case.text)
    name = case.file or ("" if root else whole)
    inside = Path(root) / name
    return _sarif_file_location(
        name if not root or Path(name).is_file() else str(inside), case.line, case.column, case.text
    )


def _sarif_file_location(
    name: str, line: int | None = None, column: int | None = None, text: str = ""
) -> dict[str, Any]:
    """A place in a file as a location of SARIF: the file's address, its line and column, and what
    is there.
    """
    path = Path(name)
    try:
        # Relative to the working folder, as a checkout is: an absolute path names no file of
        # the repository.
        path = path.resolve().relative_to(Path.cwd())
    except ValueError:
        path = path.resolve()
    uri = path.as_uri() if path.is_absolute() else quote(os.fsencode(path.as_posix()))
    # A dataset by its address has no file here.
    if "://" in name:
        uri = name
    physical: dict[str, Any] = {"artifactLocation": {"uri": uri}}
    if line is not None:
        physical["region"] = {"startLine": line} | (
            {"startColumn": column} if column is not None else {}
        )
    location: dict[str, Any] = {"physicalLocation": physical}
    if text:
        location["message"] = {"text": _escape_sarif_message(text)}
    return location


def _escape_sarif_message(text: str) -> str:
    """A message escaped for SARIF, which reads placeholders and links in it: braces are doubled
    (3.11.5), and the bracket of a link is escaped.
    """
    return (
        escape_invisible_characters(text)
        .replace("{", "{{")
        .replace("}", "}}")
        .replace("](", "\\](")
    )
