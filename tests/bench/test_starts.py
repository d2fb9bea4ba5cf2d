"""Starts of users: what their files say, and that those without a training lead to their cause."""

from __future__ import annotations

import pytest

from bench.starts.page import PAGE, kept, table
from bench.starts.replay import replay
from bench.starts.start import Start, starts

QUICK = [
    start
    for start in starts()
    if start.author == "project" and not any("-- " in c for c in start.commands)
]


@pytest.mark.parametrize("start", QUICK[::4], ids=lambda start: start.name)
def test_a_start_leads_to_its_cause(start: Start) -> None:
    assert replay(start).verdict == "led to the cause"


def test_every_start_was_replayed() -> None:
    assert {start.name for start in starts()} == set(kept())


@pytest.mark.parametrize("author", ["project", "fresh reader"])
def test_the_page_holds_the_results(author: str) -> None:
    assert table(author) in PAGE.read_text(encoding="utf-8")  # type: ignore[arg-type]


def test_there_are_five_starts_of_each_symptom_by_fresh_readers() -> None:
    by_symptom: dict[str, int] = {}
    for start in starts():
        if start.author == "fresh reader":
            by_symptom[start.symptom] = by_symptom.get(start.symptom, 0) + 1
    assert len(by_symptom) == 8
    assert min(by_symptom.values()) >= 5
