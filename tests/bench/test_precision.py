"""The judgements of findings on public material are well formed, and the page states their figures."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from bench.precision import again, judged, table
from truetune.checks.rule_catalogue import all_rules

COMMIT = re.compile("[0-9a-f]{40}")
ENOUGH = {judged.DEVELOPMENT.marker: (300, 20, 60), judged.HELD_OUT.marker: (200, 60, 40)}
"""Marker of a set -> findings, repositories and files without a finding that it holds at least"""
each_set = pytest.mark.parametrize(
    "judged_set", judged.SETS, ids=lambda judged_set: judged_set.marker
)


@each_set
def test_each_judgement_is_whole(judged_set: judged.JudgedSet) -> None:
    known = {rule.name() for rule in all_rules()}
    for finding in judged_set.findings():
        assert finding.kind in judged_set.kinds
        assert finding.verdict in judged.VERDICTS
        assert finding.rule in known
        assert COMMIT.fullmatch(finding.commit)
        assert finding.repository.count("/") == 1
        assert finding.reason
        assert 0 < len(finding.message) <= 100
        assert finding.line is None or finding.line > 0


@each_set
def test_enough_was_judged_and_read(judged_set: judged.JudgedSet) -> None:
    findings, silent_files = judged_set.findings(), judged_set.silent_files()
    fewest_findings, fewest_repositories, fewest_silent = ENOUGH[judged_set.marker]
    assert len(findings) >= fewest_findings
    assert len({finding.repository for finding in findings}) >= fewest_repositories
    assert len(silent_files) >= fewest_silent
    assert all(COMMIT.fullmatch(file.commit) for file in silent_files)


def test_no_repository_is_in_both_sets() -> None:
    first, held_out = (
        {finding.repository for finding in one.findings()}
        | {file.repository for file in one.silent_files()}
        for one in judged.SETS
    )
    assert not first & held_out


def test_a_rule_is_judged_at_most_three_times_in_a_held_out_repository() -> None:
    findings = judged.HELD_OUT.findings()
    drawn = Counter((finding.kind, finding.rule, finding.repository) for finding in findings)
    assert max(drawn.values()) <= 3


@each_set
def test_the_page_states_these_figures(judged_set: judged.JudgedSet) -> None:
    assert table.section_of(table.PAGE.read_text("utf-8"), judged_set) == table.tables(judged_set)


@each_set
def test_counts_of_a_rule_are_those_of_its_judgements(judged_set: judged.JudgedSet) -> None:
    findings = judged_set.findings()
    counted = table.by_rule(findings)
    assert sum((counts for counts in counted.values()), Counter()).total() == len(findings)
    assert counted["unknown-setting"]["false"] == sum(
        finding.rule == "unknown-setting" and finding.verdict == "false" for finding in findings
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


def a_set(folder: Path, findings: list[judged.JudgedFinding]) -> judged.JudgedSet:
    made = judged.JudgedSet(
        "precision", folder / "findings.jsonl", folder / "silent.jsonl", judged.HELD_OUT.kinds
    )
    again.keep(made, findings)
    return made


def write_script(corpus: Path) -> None:
    script = corpus / "scripts" / "owner+name" / "train.py"
    script.parent.mkdir(parents=True)
    script.write_text(COPIED)


def test_a_finding_is_looked_for_again(tmp_path: Path) -> None:
    write_script(tmp_path)
    milder = replace(a_finding(8), severity="info")
    judged_set = a_set(tmp_path, [milder, a_finding(8), a_finding(3)])
    assert [finding.now for finding in again.report_again(judged_set, tmp_path)] == [
        "same",
        "changed",
        "gone",
    ]


def test_data_is_left_as_it_was_judged_without_a_tokenizer(tmp_path: Path) -> None:
    rows = replace(a_finding(1), kind="data", path="rows.jsonl", now="gone")
    assert again.report_again(a_set(tmp_path, [rows]), tmp_path) == [rows]


def test_a_file_that_was_not_fetched_is_named(tmp_path: Path) -> None:
    judged_set = a_set(tmp_path, [a_finding(8)])
    with pytest.raises(FileNotFoundError, match="fetch owner/name"):
        again.report_again(judged_set, tmp_path)


def test_a_command_that_breaks_is_not_taken_for_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_script(tmp_path)
    judged_set = a_set(tmp_path, [a_finding(8)])
    monkeypatch.setitem(again.COMMANDS, "scripts", "no-such-command")
    with pytest.raises(ValueError, match="Expecting value"):
        again.report_again(judged_set, tmp_path)
