"""The brief JSON keeps to its schema, stays small, and says what the full report says."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from truetune.checks.lint import lint
from truetune.checks.reports import DataReport
from truetune.cli import truetune_group
from truetune.report.as_json import report_as_dict, to_json
from truetune.report.brief_json import make_brief_report

SCHEMA = json.loads(
    (Path(__file__).parents[2] / "docs" / "schema" / "brief-1.json").read_text(encoding="utf-8")
)
SCRIPT = """from transformers import AutoTokenizer, DataCollatorForLanguageModeling, Trainer

tokenizer = AutoTokenizer.from_pretrained("meta-llama/Llama-3.1-8B")
tokenizer.pad_token = tokenizer.eos_token
collator = DataCollatorForLanguageModeling(tokenizer, mlm=False)
Trainer(model="m", data_collator=collator).train()
"""


def test_it_keeps_to_its_schema_and_describes_every_field(
    broken: DataReport, hostile: DataReport
) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    for report in (broken, hostile):
        text = make_brief_report(report).as_json()
        value = json.loads(text)
        jsonschema.validate(value, SCHEMA)
        assert text.isascii()
        assert set(value) == set(SCHEMA["properties"])
        for finding in value["findings"]:
            assert set(finding) == set(SCHEMA["properties"]["findings"]["items"]["properties"])


def test_it_says_what_the_full_report_says(broken: DataReport) -> None:
    full, brief = report_as_dict(broken), json.loads(make_brief_report(broken).as_json())
    for key in ("verdict", "next", "outcome", "truetune"):
        assert brief[key] == full[key]
    for short, whole in zip(brief["findings"], full["findings"], strict=True):
        assert {key: short[key] for key in ("code", "rule", "severity", "message", "remedy")} == {
            key: whole[key] for key in ("code", "rule", "severity", "message", "remedy")
        }
        first = whole["cases"][0]
        if first["row"] is not None:
            assert short["place"] == f"{first['file']}:{first['line']}"
    assert sum(brief["counts"][name] for name in ("error", "warning", "info")) == len(
        brief["findings"]
    )
    assert brief["counts"]["examined"] == len(full["examined"])


def test_it_is_a_small_part_of_the_full_report(broken: DataReport) -> None:
    assert len(make_brief_report(broken).as_json()) < len(to_json(broken)) / 10


def test_what_was_asked_for_and_not_judged_is_in_it(broken: DataReport) -> None:
    lines = "\n".join(make_brief_report(broken).not_judged)
    for part in broken.not_judged:
        if part.asked or part.unlock:
            assert part.reason in lines


@pytest.mark.parametrize("form", ["stdout", "file"])
def test_the_command_prints_it_and_the_fix_can_be_run(tmp_path: Path, form: str) -> None:
    script, out = tmp_path / "train.py", tmp_path / "brief.json"
    script.write_text(SCRIPT)
    target = ["-o", str(out)] if form == "file" else ["--json"]
    done = CliRunner().invoke(
        truetune_group, ["lint", str(script), "--brief", *target], standalone_mode=False
    )
    text = out.read_text() if form == "file" else done.stdout
    (finding,) = json.loads(text)["findings"]
    assert finding["rule"] == "pad-equals-eos-lm-collator"
    assert finding["place"].startswith(f"{script}:4:")
    words = finding["fix"].split()
    assert words[0] == "truetune"
    CliRunner().invoke(truetune_group, words[1:], standalone_mode=False)
    assert not lint([script]).findings


def test_brief_needs_json(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    done = CliRunner().invoke(
        truetune_group, ["lint", str(script), "--brief"], standalone_mode=False
    )
    assert "give --json as well" in str(done.exception)


def test_a_brief_report_is_no_baseline(tmp_path: Path) -> None:
    """It has no fingerprints, so that every finding would count as known or as new."""
    script, out = tmp_path / "train.py", tmp_path / "brief.json"
    script.write_text(SCRIPT)
    out.write_text(make_brief_report(lint([script])).as_json())
    done = CliRunner().invoke(
        truetune_group, ["lint", str(script), "--baseline", str(out)], standalone_mode=False
    )
    assert done.exception is not None
    assert str(out) in str(done.exception)
