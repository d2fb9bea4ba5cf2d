"""Verdicts: what one answer is, in a word."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from truetune.generation.looks import Sample, Scores

Verdict = Literal[
    "stops", "empty", "garbage", "echo", "role markers", "loop", "language", "runs on", "unread", "wrong", "cut"
]
"""`stops`: it has no fault; `cut`: the limit was shorter than the reference, so that can't be told"""
SAID: dict[Verdict, str] = {
    "stops": "stops by itself",
    "empty": "empty",
    "garbage": "garbage",
    "echo": "repeats the question",
    "role markers": "leaks role markers",
    "loop": "loops",
    "language": "changes the language",
    "runs on": "runs to the limit",
    "unread": "the parser reads nothing",
    "wrong": "the parser reads another value",
    "cut": "cut by a short limit",
}


def faults(sample: Sample, limit: int) -> tuple[Verdict, ...]:
    """All that is wrong with an answer that was cut after `limit` tokens, what tells most first."""
    return tuple(_faults(sample.scores, could_stop=len(sample.prompt.reference_ids) <= limit))


def verdict(sample: Sample, limit: int) -> Verdict:
    """The one that tells most."""
    found = faults(sample, limit)
    return found[0] if found else "stops" if sample.scores.stopped else "cut"


def good(sample: Sample, limit: int) -> bool | None:
    """Does it answer and stop? None where the limit was too short to tell."""
    said = verdict(sample, limit)
    return None if said == "cut" else said == "stops"


def counted(samples: Sequence[Sample], limit: int) -> tuple[int, int]:
    """How many are good, of those that can be told."""
    told = [is_good for sample in samples if (is_good := good(sample, limit)) is not None]
    return sum(told), len(told)


def _faults(scores: Scores, *, could_stop: bool) -> Iterator[Verdict]:
    if scores.empty:
        yield "empty"
    if scores.garbage:
        yield "garbage"
    if scores.echoed:
        yield "echo"
    if scores.markers:
        yield "role markers"
    if scores.looped:
        yield "loop"
    if scores.switched:
        yield "language"
    if not scores.stopped and not could_stop:
        return
    if not scores.stopped:
        yield "runs on"
    if scores.parsed is False:
        yield "unread"
    elif scores.agrees is False:
        yield "wrong"
