from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

import truetune
from truetune.demo import BROKEN, DATA, MAX_LENGTH, TOKENIZER
from truetune.demo.chats import chats
from truetune.demo.faults import COPIES, ECHOES, FOUND, PLANTED, broken
from truetune.demo.run import broken_tokenizer


@pytest.fixture(scope="module")
def spoiled(tmp_path_factory: pytest.TempPathFactory) -> truetune.Report:
    folder = broken_tokenizer(tmp_path_factory.mktemp("demo"))
    return truetune.check(data=str(BROKEN), tokenizer=str(folder), max_length=MAX_LENGTH)


def counts(report: truetune.Report, rule: str) -> list[int | None]:
    return [finding.count for finding in report.findings if finding.rule == rule]


def test_the_mended_chats_are_clean() -> None:
    report = truetune.check(data=str(DATA), tokenizer=str(TOKENIZER), max_length=MAX_LENGTH)
    assert report.findings == ()
    assert (report.rows, report.rejected, report.unsupervised) == (200, 0, 0)


@pytest.mark.parametrize("rule", PLANTED)
def test_each_planted_fault_is_found_and_counted(spoiled: truetune.Report, rule: str) -> None:
    assert PLANTED[rule][1] in counts(spoiled, rule)


def test_copies_and_echoes_are_found_and_counted(spoiled: truetune.Report) -> None:
    assert COPIES in counts(spoiled, "duplicate-rows")
    assert ECHOES in counts(spoiled, "wrong-field-mapped")


def test_the_findings_are_those_that_are_named(spoiled: truetune.Report) -> None:
    assert {finding.rule for finding in spoiled.findings} == set(FOUND)


def test_planting_leaves_the_sound_rows_alone() -> None:
    rows = chats(100, Random(3))
    before = json.dumps(rows)
    spoiled = broken(rows, Random(4))
    assert json.dumps(rows) == before
    assert len(spoiled) == len(rows) + COPIES
    changed = sum(count for _, count in PLANTED.values()) + ECHOES
    assert sum(row in spoiled for row in rows) == len(rows) - changed


def test_the_broken_tokenizer_differs_in_three_files(tmp_path: Path) -> None:
    folder = broken_tokenizer(tmp_path)
    differing = {path.name for path in TOKENIZER.glob("*.json") if _json(path) != _json(folder / path.name)}
    assert differing == {"tokenizer_config.json", "special_tokens_map.json", "generation_config.json"}


def _json(path: Path) -> object:
    return json.loads(path.read_text("utf-8"))
