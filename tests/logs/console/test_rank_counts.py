"""Numbers of batches that the processes of a run print."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.logs.console.test_output import RECORD, found
from tests.logs.console.test_waiting_processes import TIMEOUT
from truetune.logs.console.strip_line_prefixes import strip_codes_and_prefixes
from truetune.logs.console.uneven_counts_of_ranks import RankCountReader, RankCounts

BATCHES = ["[rank 0] 12022 examples, 1502 batches", "[rank 1] 11981 examples, 1497 batches"]


def counts(*lines: str) -> RankCounts | None:
    """What the reader makes of lines."""
    reader = RankCountReader()
    for number, line in enumerate(lines, 1):
        cleaned = strip_codes_and_prefixes(line, number)
        reader.add_line(cleaned.text, cleaned.process)
    return reader.finish()


@pytest.mark.parametrize(
    ("form", "unit"),
    [
        ("[rank {r}] 90 examples, {n} batches", "batches"),
        ("rank {r}: {n} steps per epoch", "steps"),
        ("rank={r} num_batches={n}", "batches"),
        ("Rank {r} | len(loader) = {n}", "loader"),
        ("{r}: steps_per_epoch: {n}", "steps_per_epoch"),
        ("[rank{r}]: kept {n} of 9000 rows", None),
        ("[rank {r}] loaded {n} training rows", "rows"),
        ("process {r} has 1,{n} iterations", "iterations"),
    ],
)
def test_unequal_counts(form: str, unit: str | None) -> None:
    result = counts(form.format(r=0, n=502), form.format(r=1, n=497))
    assert (result.unit if result else None) == unit


@pytest.mark.parametrize(
    "lines",
    [
        ["[rank 0] 1502 batches", "[rank 1] 1502 batches"],
        ["[rank 0] 1502 batches"],
        ["1502 batches", "1497 batches"],
        [f"[rank {r}] done {n * 10 + r} steps" for n in range(6) for r in (0, 1)],
        ["[rank 0] step 40/1502 loss 1.2", "[rank 1] step 41/1502 loss 1.3"],
        ["[rank 0] 1502 batches", "[rank 1] 1497 steps"],
    ],
)
def test_equal_counts_and_progress(lines: list[str]) -> None:
    assert counts(*lines) is None


def said(folder: Path, lines: list[str], *waiting: tuple[int, int, str, int]) -> str:
    """All that the findings on a log say."""
    timeouts = [TIMEOUT.format(*one) for one in waiting]
    text = "\n".join([*lines, RECORD, RECORD, *timeouts]) + "\n"
    return "\n".join(f"{code} {message}" for code, message in found(folder, text).items())


def test_the_counts_lead_where_the_shortest_rank_waits_elsewhere(tmp_path: Path) -> None:
    text = said(tmp_path, BATCHES, (0, 9, "ALLREDUCE", 13631488), (1, 9, "ALLREDUCE", 1))
    assert "rank 0 has 1,502, rank 1 has 1,497" in text
    assert "the same number of batches" in text
    assert "another process died" not in text


def test_the_counts_lead_where_the_shortest_rank_printed_no_timeout(tmp_path: Path) -> None:
    text = said(tmp_path, BATCHES, (0, 9, "ALLREDUCE", 13631488))
    assert "the same number of batches" in text


def test_other_causes_stay_where_another_rank_is_apart(tmp_path: Path) -> None:
    text = said(tmp_path, BATCHES, (0, 9, "ALLREDUCE", 1), (1, 9, "ALLREDUCE", 1))
    assert "another process died" in text
    equal = [one.replace("1497", "1502") for one in BATCHES]
    text = said(tmp_path, equal, (0, 9, "ALLREDUCE", 13631488), (1, 9, "ALLREDUCE", 1))
    assert "the same number of batches" not in text
