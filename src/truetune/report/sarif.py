"""The report as SARIF 2.1.0, for code scanning."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

import truetune
from truetune.checks.catalogue import page, rules
from truetune.checks.findings import Case, Finding
from truetune.checks.report import DataReport
from truetune.report.terminal import summary_of
from truetune.report.text import visible

LEVELS = {"error": "error", "warning": "warning", "info": "note"}


def to_sarif(report: DataReport) -> str:
    """One SARIF run."""
    catalogue = list(rules())
    place = {rule.code: i for i, rule in enumerate(catalogue)}
    driver = {
        "name": "truetune",
        "semanticVersion": truetune.__version__.replace(".dev", "-dev."),
        "rules": [
            {
                "id": rule.code,
                "name": rule.name(),
                "shortDescription": {"text": summary_of(page(rule))},
                "help": {"text": page(rule), "markdown": page(rule)},
                "defaultConfiguration": {"level": LEVELS[rule.severity]},
            }
            for rule in catalogue
        ],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, place, report) for finding in report.findings],
    }
    log = {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=2)


def _result(finding: Finding, place: dict[str, int], report: DataReport) -> dict[str, Any]:
    detail = [finding.message, *finding.evidence, f"help: {finding.remedy}"]
    locations = [_location(case, report) for case in finding.cases]
    return {
        "ruleId": finding.code,
        "ruleIndex": place[finding.code],
        "level": LEVELS[finding.severity],
        "message": {"text": "\n".join(map(_literal, detail))},
        "locations": locations or [_file(report.tokenizer)],
    }


def _location(case: Case, report: DataReport) -> dict[str, Any]:
    if case.origin is not None:
        return _file(case.origin.file, case.origin.line, case.text)
    return _file(str(Path(report.tokenizer) / (case.file or "")), None, case.text)


def _file(name: str, line: int | None = None, text: str = "") -> dict[str, Any]:
    path = Path(name)
    try:
        path = path.resolve().relative_to(Path.cwd())
    except ValueError:
        path = path.resolve()
    uri = path.as_uri() if path.is_absolute() else quote(os.fsencode(path.as_posix()))
    if "://" in name:
        uri = name
    physical: dict[str, Any] = {"artifactLocation": {"uri": uri}}
    if line is not None:
        physical["region"] = {"startLine": line}
    location: dict[str, Any] = {"physicalLocation": physical}
    if text:
        location["message"] = {"text": _literal(text)}
    return location


def _literal(text: str) -> str:
    """A message without placeholders and links: SARIF doubles braces (3.11.5) and escapes the bracket of a link."""
    return visible(text).replace("{", "{{").replace("}", "}}").replace("](", "\\](")
