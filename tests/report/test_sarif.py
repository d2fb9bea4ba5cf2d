"""SARIF 2.1.0: the part that is used, after the standard's own schema."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import unquote

import jsonschema

from truetune.checks.reports import DataReport
from truetune.checks.rule_catalogue import all_rules
from truetune.report.sarif import LEVELS, report_as_sarif


def fields(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "required": list(required),
        "properties": required | optional,
        "additionalProperties": False,
    }


def listed(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


TEXT = {"type": "string", "minLength": 1}
LEVEL = {"enum": ["none", "note", "warning", "error"]}
LOCATION = fields(
    {
        "physicalLocation": fields(
            {"artifactLocation": fields({"uri": {"type": "string", "pattern": "^[!-~]+$"}})},
            region=fields({"startLine": {"type": "integer", "minimum": 1}}),
        )
    },
    message=fields({"text": TEXT}),
)
RULE = fields(
    {
        "id": TEXT,
        "name": TEXT,
        "shortDescription": fields({"text": TEXT}),
        "help": fields({"text": TEXT, "markdown": TEXT}),
        "defaultConfiguration": fields({"level": LEVEL}),
    }
)
RESULT = fields(
    {
        "ruleId": TEXT,
        "ruleIndex": {"type": "integer", "minimum": 0},
        "level": LEVEL,
        "message": fields({"text": TEXT}),
        "locations": {**listed(LOCATION), "minItems": 1},
        "partialFingerprints": fields(
            {"truetune/v1": {"type": "string", "pattern": "^[0-9a-f]{16}$"}}
        ),
    },
    baselineState={"enum": ["new", "unchanged"]},
)
NOTIFICATION = fields(
    {"level": LEVEL, "message": fields({"text": TEXT})}, associatedRule=fields({"id": TEXT})
)
INVOCATION = fields(
    {
        "executionSuccessful": {"type": "boolean"},
        "exitCode": {"enum": [0, 1, 3]},
        "toolExecutionNotifications": listed(NOTIFICATION),
    }
)
RUN = fields(
    {
        "tool": fields(
            {"driver": fields({"name": TEXT, "semanticVersion": TEXT, "rules": listed(RULE)})}
        ),
        "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
        "invocations": {**listed(INVOCATION), "minItems": 1, "maxItems": 1},
        "results": listed(RESULT),
    }
)
SARIF = fields({"$schema": TEXT, "version": {"const": "2.1.0"}, "runs": listed(RUN)})


def test_it_keeps_to_the_standard(broken: DataReport, hostile: DataReport) -> None:
    for report in (broken, hostile):
        assert report_as_sarif(report).isascii()
        jsonschema.validate(json.loads(report_as_sarif(report)), SARIF)


def test_it_holds_every_rule_and_every_finding(broken: DataReport) -> None:
    (run,) = json.loads(report_as_sarif(broken))["runs"]
    driver = run["tool"]["driver"]
    assert [rule["id"] for rule in driver["rules"]] == [rule.code for rule in all_rules()]
    for result, finding in zip(run["results"], broken.findings, strict=True):
        assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == finding.code
        assert result["level"] == LEVELS[finding.severity]
        lines = [place["physicalLocation"]["region"]["startLine"] for place in result["locations"]]
        assert lines == [case.origin.line for case in finding.cases if case.origin is not None]


def test_data_is_neither_placeholder_nor_link(hostile: DataReport) -> None:
    (run,) = json.loads(report_as_sarif(hostile))["runs"]
    assert run["results"]
    for result in run["results"]:
        texts = [
            result["message"]["text"],
            *(place["message"]["text"] for place in result["locations"]),
        ]
        for text in texts:
            assert not re.search(r"(?<!\\)\]\(", text)
            assert not re.search(r"(?<!\{)\{(\{\{)*(?!\{)", text)
            assert "\x1b" not in text
        for place in result["locations"]:
            assert unquote(place["physicalLocation"]["artifactLocation"]["uri"]).endswith(
                "{0}[a](b)\u202e.jsonl"
            )
