from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

import truetune
from truetune.checks.reports import DataReport
from truetune.demo import BROKEN, DATA, MAX_LENGTH, TOKENIZER
from truetune.demo.make_chats import make_chats
from truetune.demo.plant_faults import (
    FAULTS,
    TOKENIZER_FAULTS,
    Fault,
    plant_faults,
    write_faulty_tokenizer_copy,
)


@pytest.fixture(scope="module")
def spoiled(tmp_path_factory: pytest.TempPathFactory) -> truetune.Report:
    folder = write_faulty_tokenizer_copy(tmp_path_factory.mktemp("demo") / "tokenizer")
    return truetune.check(data=str(BROKEN), tokenizer=str(folder), max_length=MAX_LENGTH)


def test_the_corrected_chats_are_clean() -> None:
    report = truetune.check(data=str(DATA), tokenizer=str(TOKENIZER), max_length=MAX_LENGTH)
    assert report.findings == ()
    assert isinstance(report, DataReport)
    assert (report.rows, report.rejected, report.unsupervised) == (200, 0, 0)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.spoil.__name__.strip("_"))
def test_each_fault_in_the_rows_is_found_and_counted(
    spoiled: truetune.Report, fault: Fault
) -> None:
    assert fault.rows in [
        finding.count for finding in spoiled.findings if finding.rule == fault.rule
    ]


@pytest.mark.parametrize("rule", TOKENIZER_FAULTS)
def test_each_fault_of_the_tokenizer_is_found(spoiled: truetune.Report, rule: str) -> None:
    assert rule in {finding.rule for finding in spoiled.findings}


def test_nothing_else_is_found(spoiled: truetune.Report) -> None:
    planted = {fault.rule for fault in FAULTS} | set(TOKENIZER_FAULTS)
    assert {finding.rule for finding in spoiled.findings} == planted
    (roles,) = (
        finding for finding in spoiled.findings if finding.rule == "turn-roles-unknown-to-template"
    )
    assert any("no-supervised-token" in line for line in roles.evidence), (
        "what follows is told with its cause"
    )


def test_planting_leaves_the_sound_rows_alone() -> None:
    rows = make_chats(100, Random(3))
    before = json.dumps(rows)
    spoiled = plant_faults(rows, Random(4))
    assert json.dumps(rows) == before
    changed = sum(fault.rows for fault in FAULTS if not fault.adds)
    assert sum(row in spoiled for row in rows) == len(rows) - changed
    assert len(spoiled) == len(rows) + sum(fault.rows for fault in FAULTS if fault.adds)


def test_the_broken_tokenizer_differs_in_the_named_files_only(tmp_path: Path) -> None:
    folder = write_faulty_tokenizer_copy(tmp_path / "tokenizer")
    differing = {
        p.name for p in TOKENIZER.iterdir() if json_or_text(p) != json_or_text(folder / p.name)
    }
    assert differing == {name for files in TOKENIZER_FAULTS.values() for name in files}


def json_or_text(path: Path) -> object:
    text = path.read_text("utf-8")
    return json.loads(text) if path.suffix == ".json" else text
