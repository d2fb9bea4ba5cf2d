"""Rows that are prepared slowly before a training, and rows that are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.check_paths import check_paths
from truetune.checks.findings import Finding
from truetune.settings.run_spec import RunSpec

BAR = "{what}: {percent:3d}%|##   | {done}/{total} [{gone}<1:00:00, {pace} examples/s]\n"


def bars(what: str, total: int, pace: float, times: int = 1, drawings: int = 6) -> str:
    """Drawings of a bar at an even pace; `times` processes draw it."""
    lines = ""
    for number in range(1, drawings + 1):
        seconds = 60 * number
        done = int(pace * seconds)
        gone = f"{seconds // 60:02d}:{seconds % 60:02d}"
        line = BAR.format(
            what=what, percent=100 * done // total, done=done, total=total, gone=gone, pace=pace
        )
        lines += line * times
    return lines


def found(folder: Path, text: str) -> list[Finding]:
    (folder / "train.log").write_text(text)
    findings = check_paths([folder], RunSpec()).findings
    return [one for one in findings if one.code == "LOG125"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (bars("Map", 2_000_000, 430), "one CPU core"),
        (bars("Running tokenizer on dataset", 900_000, 290), "one CPU core"),
        (bars("Tokenizing train dataset", 1_500_000, 400), "one CPU core"),
        (bars("Filter", 3_000_000, 900), "one CPU core"),
        (bars("Map (num_proc=32)", 200_000, 92, times=8), "each process"),
        (bars("Map", 100_000, 90, times=4), "each process"),
    ],
)
def test_slow_preparation_is_named(tmp_path: Path, text: str, words: str) -> None:
    [finding] = found(tmp_path, text)
    assert words in finding.message
    assert finding.cases[0].line


@pytest.mark.parametrize(
    "text",
    [
        bars("Map (num_proc=16)", 2_000_000, 20_000, drawings=1),
        bars("Map", 20_000, 300),
        bars("Map (num_proc=16)", 5_000_000, 900),  # by many workers: what it takes
        bars("Loading checkpoint shards", 2_000_000, 400),
        bars("Generating train split", 2_000_000, 400),
        bars("Map", 5_000, 90, times=8, drawings=1),
        "{'loss': 1.2, 'learning_rate': 1e-05, 'epoch': 0.1}\n",
    ],
)
def test_quick_and_shared_preparation_is_sound(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, text) == []


@pytest.mark.parametrize(
    ("losses", "is_told"), [((1.9, 1.7, 1.6, 1.5), True), ((1.9, 1.7, "nan", "nan"), False)]
)
def test_a_nan_of_the_evaluation_alone_is_that_of_its_rows(
    tmp_path: Path, losses: tuple[object, ...], is_told: bool
) -> None:
    lines = "".join(
        f"{{'loss': {loss}, 'learning_rate': 1e-05, 'epoch': {number}.0}}\n"
        f"{{'eval_loss': nan, 'eval_runtime': 3.0, 'epoch': {number}.0}}\n"
        for number, loss in enumerate(losses, 1)
    )
    (tmp_path / "train.log").write_text(lines)
    findings = check_paths([tmp_path], RunSpec()).findings
    told = [one for one in findings if "evaluation batch" in (one.remedy or "")]
    assert bool(told) is is_told
