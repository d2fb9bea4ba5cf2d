"""The judgements of findings on public material are well formed, and the page states their figures."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from bench.precision import again, judged, table
from truetune.checks.catalogue import rules

FINDINGS = judged.findings()
SILENT = judged.silent_files()
COMMIT = re.compile("[0-9a-f]{40}")


def test_each_judgement_is_whole() -> None:
    known = {rule.name() for rule in rules()}
    for finding in FINDINGS:
        assert finding.kind in judged.KINDS
        assert finding.verdict in judged.VERDICTS
        assert finding.rule in known
        assert COMMIT.fullmatch(finding.commit)
        assert finding.repository.count("/") == 1
        assert finding.reason
        assert 0 < len(finding.message) <= 100
        assert finding.line is None or finding.line > 0


def test_enough_was_judged_and_read() -> None:
    assert len(FINDINGS) >= 300
    assert len({finding.repository for finding in FINDINGS}) >= 20
    assert len(SILENT) >= 60
    assert all(COMMIT.fullmatch(file.commit) for file in SILENT)


def test_the_page_states_these_figures() -> None:
    assert table.section_of(table.PAGE.read_text("utf-8")) == table.tables()


def test_counts_of_a_rule_are_those_of_its_judgements() -> None:
    counted = table.by_rule(FINDINGS)
    assert sum((counts for counts in counted.values()), Counter()).total() == len(FINDINGS)
    assert counted["unknown-setting"]["false"] == sum(
        finding.rule == "unknown-setting" and finding.verdict == "false" for finding in FINDINGS
    )


COPIED = """from transformers import AutoTokenizer, Trainer

tokenizer = AutoTokenizer.from_pretrained("model")


def encode(row):
    tokens = tokenizer(row["text"], padding="max_length", max_length=64)
    tokens["labels"] = tokens["input_ids"].copy()
    return tokens
"""


def a_finding(line: int) -> judged.JudgedFinding:
    return judged.JudgedFinding(
        kind="scripts",
        repository="owner/name",
        commit="0" * 40,
        path="train.py",
        line=line,
        rule="labels-copy-input-ids",
        severity="error",
        message="labels are a copy of padded input_ids: pads are learned",
        verdict="true",
        reason="pads have labels",
        now="same",
    )


def test_a_finding_is_looked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "scripts" / "owner+name" / "train.py"
    script.parent.mkdir(parents=True)
    script.write_text(COPIED)
    milder = replace(a_finding(8), severity="warning")
    monkeypatch.setattr(again, "findings", lambda: [milder, a_finding(8), a_finding(3)])
    assert [finding.now for finding in again.report_again(tmp_path)] == ["same", "changed", "gone"]


def test_a_file_that_was_not_fetched_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(again, "findings", lambda: [a_finding(8)])
    with pytest.raises(FileNotFoundError, match="fetch owner/name"):
        again.report_again(tmp_path)


def test_a_command_that_breaks_is_not_taken_for_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "scripts" / "owner+name" / "train.py"
    script.parent.mkdir(parents=True)
    script.write_text(COPIED)
    monkeypatch.setattr(again, "findings", lambda: [a_finding(8)])
    monkeypatch.setitem(again.COMMANDS, "scripts", "no-such-command")
    with pytest.raises(ValueError, match="Expecting value"):
        again.report_again(tmp_path)
