"""The JSON report keeps to its published schema and holds what was found."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema

from truetune.checks.reports import DataReport
from truetune.report.as_json import report_as_dict, to_json

SCHEMA = json.loads(
    (Path(__file__).parents[2] / "docs" / "schema" / "report-1.json").read_text(encoding="utf-8")
)


def test_it_keeps_to_its_schema(broken: DataReport, hostile: DataReport) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    for report in (broken, hostile):
        value = json.loads(to_json(report))
        jsonschema.validate(value, SCHEMA)
        assert value == report_as_dict(report)
        assert to_json(report).isascii()


def test_the_schema_describes_every_field(broken: DataReport) -> None:
    value = report_as_dict(broken)
    others = {
        "audit",
        "sample",
        "evaluation",
        "service",
        "recitation",
        "environment",
        "runs",
        "tokenized",
        "reward",
    }
    assert set(value) | others == set(SCHEMA["properties"])
    parts = SCHEMA["properties"]["data"]["properties"]
    assert set(value["data"]) <= set(parts)
    for name, part in value["data"].items():
        assert set(part) == set(parts[name]["properties"])
    assert set(value["lengths"]) == set(SCHEMA["properties"]["lengths"]["properties"])
    finding = SCHEMA["properties"]["findings"]["items"]
    assert set(value["findings"][0]) == set(finding["properties"])
    assert set(value["findings"][0]["cases"][0]) == set(
        finding["properties"]["cases"]["items"]["properties"]
    )


def test_it_holds_what_the_report_holds(broken: DataReport) -> None:
    value = report_as_dict(broken)
    assert value["failed"] is True
    assert (
        sum(cell["supervised"] + cell["context"] for cell in value["ledger"].values())
        == broken.ledger.total
    )
    assert sum(value["lengths"]["counts"]) == value["examples"]
    for row, finding in zip(value["findings"], broken.findings, strict=True):
        assert (row["rule"], row["message"], row["remedy"]) == (
            finding.rule,
            finding.message,
            finding.remedy,
        )
        assert len(row["cases"]) == len(finding.cases)
