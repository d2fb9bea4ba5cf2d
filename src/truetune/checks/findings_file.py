"""The findings of a run on disk: `findings.jsonl` beside its answers, a line for each, with its step.

The watcher of a run appends to it; a run that continues from a checkpoint, and the report on a run, read it. The
trade-off of lines: the last one may be cut by a crash, so each is read alone and a broken one is left out.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from truetune.checks.findings import Finding
from truetune.parsing.input_limits import LOG_RECORD
from truetune.parsing.parse_json_within_limits import parse_json

FINDINGS = "findings.jsonl"
FINDING_FIELDS = ("rule", "code", "severity", "message", "remedy", "evidence", "count", "total")


def append_findings(
    findings: Iterable[Finding], step: int, folder: Path, *, stopped: Finding | None = None
) -> None:
    """Add what was found at a step; `stopped` is the one that ended the run. Raises OSError."""
    lines = [
        json.dumps({"step": step, **_finding_as_json(finding), "stopped": finding is stopped})
        for finding in findings
    ]
    if lines:
        # An empty findings.jsonl would look like a run that was judged and found clean, where it
        # was not judged at all: so it is made only with a first finding.
        with (folder / FINDINGS).open("a", encoding="utf-8") as file:
            file.write("".join(line + "\n" for line in lines))


def _finding_as_json(finding: Finding) -> dict[str, Any]:
    """A finding as JSON."""
    cases = [dataclasses.asdict(case) for case in finding.cases]
    fields = {name: getattr(finding, name) for name in FINDING_FIELDS}
    return fields | {"fault": finding.fault, "cases": cases}


def is_finding_line(line: bytes) -> bool:
    """Is this a line that `append_findings` wrote?"""
    try:
        return parse_finding_line_as_json(line.decode()) is not None
    except UnicodeDecodeError:
        return False


def parse_finding_without_cases(record: dict[str, Any]) -> Finding:
    """The finding back; its cases are not needed again."""
    return Finding(
        **{name: record[name] for name in FINDING_FIELDS} | {"evidence": tuple(record["evidence"])},
        fault=fault_in_record(record),
    )


def fault_in_record(record: dict[str, Any]) -> str:
    """The name of a finding's fault; empty in a file of a release that had no faults."""
    fault = record.get("fault", "")
    return fault if isinstance(fault, str) else ""


def parse_finding_line_as_json(line: str) -> dict[str, Any] | None:
    """The JSON object of a line of findings; None for a line that a crash has cut."""
    try:
        record = parse_json(line, LOG_RECORD)
    except ValueError:
        return None
    return (
        record if isinstance(record, dict) and {"step", *FINDING_FIELDS} <= record.keys() else None
    )
