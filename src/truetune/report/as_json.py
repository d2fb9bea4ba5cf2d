"""The report as JSON; the schema stands in docs/schema/report-1.json."""

from __future__ import annotations

import json
from typing import Any

import truetune
from truetune.checks.findings import Case, Finding
from truetune.checks.report import DataReport

SCHEMA = "truetune.report/1"


def to_json(report: DataReport) -> str:
    """The report as a JSON object of schema `truetune.report/1`, in ASCII: safe on any terminal and in any encoding."""
    return json.dumps(as_dict(report), indent=2)


def as_dict(report: DataReport) -> dict[str, Any]:
    """The JSON object."""
    lengths = report.lengths
    return {
        "schema": SCHEMA,
        "truetune": truetune.__version__,
        "spec": report.spec.model_dump(mode="json"),
        "tokenizer": {"folder": report.tokenizer, "facts": report.facts},
        "rows": report.rows,
        "examples": report.examples,
        "rejected": report.rejected,
        "unsupervised": report.unsupervised,
        "formats": report.formats,
        "ledger": {
            source.name.lower(): {"supervised": supervised, "context": context}
            for source, supervised, context in report.ledger.rows()
        },
        "lengths": {
            "counts": lengths.counts.tolist(),
            "edges": lengths.edges.tolist(),
            "median": lengths.median,
            "p95": lengths.p95,
            "longest": lengths.longest,
            "limit": lengths.limit,
            "over": lengths.over,
            "lost_tokens": lengths.lost_tokens,
            "lost_supervised": lengths.lost_supervised,
        },
        "findings": [_finding(finding) for finding in report.findings],
        "failed": report.failed(),
        "seconds": round(report.seconds, 3),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "code": finding.code,
        "severity": finding.severity,
        "message": finding.message,
        "remedy": finding.remedy,
        "evidence": list(finding.evidence),
        "count": finding.count,
        "total": finding.total,
        "cases": [_case(case) for case in finding.cases],
    }


def _case(case: Case) -> dict[str, Any]:
    origin = case.origin
    return {
        "text": case.text,
        "file": origin.file if origin else case.file,
        "line": origin.line if origin else None,
        "row": origin.row if origin else None,
        "turn": case.turn,
    }
