"""Starts of users: what their files say, and that those without a training lead to their cause."""

from __future__ import annotations

from typing import get_args

import pytest

from bench.starts.page import PAGE, kept, table
from bench.starts.replay import replay
from bench.starts.start import Author, Start, starts

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


@pytest.mark.parametrize("author", get_args(Author))
def test_the_page_holds_the_results(author: Author) -> None:
    assert table(author) in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("author", "least"),
    [
        ("fresh reader", 5),
        ("fresh reader, second set", 4),
        ("fresh reader, third set", 5),
        ("fresh reader, fourth set", 5),
        ("fresh reader, fifth set", 5),
    ],
)
def test_fresh_readers_wrote_starts_of_each_symptom(author: Author, least: int) -> None:
    """Of the second set, one start of two symptoms was left out: its fault is none in reality."""
    by_symptom: dict[str, int] = {}
    for start in starts():
        if start.author == author:
            by_symptom[start.symptom] = by_symptom.get(start.symptom, 0) + 1
    assert len(by_symptom) == 8
    assert min(by_symptom.values()) >= least
