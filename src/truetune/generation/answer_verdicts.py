"""Verdicts: what one answer is, in a word."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from truetune.generation.answer_samples import Sample, Scores

Verdict = Literal[
    "stops",
    "sound",
    "empty",
    "garbage",
    "echo",
    "role markers",
    "escapes",
    "loop",
    "language",
    "alike",
    "elsewhere",
    "runs on",
    "long",
    "unread",
    "wrong",
    "cut",
]
"""`stops`: it has no fault; `sound`: the same, where it is not known what ended it; `cut`: the limit was shorter than
the reference, so that can't be told"""
GOOD_VERDICTS: tuple[Verdict, ...] = ("stops", "sound")
VERDICT_PHRASES: dict[Verdict, str] = {
    "stops": "stops by itself",
    "sound": "no fault",
    "empty": "empty",
    "garbage": "garbage",
    "echo": "repeats the question",
    "role markers": "leaks role markers",
    "escapes": "escapes in place of characters",
    "loop": "loops",
    "language": "changes the language",
    "alike": "the same answer to all",
    "elsewhere": "another row's reference",
    "runs on": "runs to the limit",
    "long": "far longer than its reference",
    "unread": "the parser reads nothing",
    "wrong": "a wrong answer",
    "cut": "cut by a short limit",
}


def answer_faults(sample: Sample, limit: int) -> tuple[Verdict, ...]:
    """All that is wrong with an answer that was cut after `limit` tokens, what tells most first."""
    return tuple(_find_faults(sample.scores, could_stop=len(sample.prompt.reference_ids) <= limit))


def main_verdict(sample: Sample, limit: int) -> Verdict:
    """The one that tells most."""
    found = answer_faults(sample, limit)
    if found:
        return found[0]
    if not sample.scores.end_known:
        return "sound"
    return "stops" if sample.scores.stopped else "cut"


def good(sample: Sample, limit: int) -> bool | None:
    """Does it answer and stop? None where the limit was too short to tell."""
    said = main_verdict(sample, limit)
    return None if said == "cut" else said in GOOD_VERDICTS


def count_good(samples: Sequence[Sample], limit: int) -> tuple[int, int]:
    """How many are good, of those that can be told."""
    told = [is_good for sample in samples if (is_good := good(sample, limit)) is not None]
    return sum(told), len(told)


def _find_faults(scores: Scores, *, could_stop: bool) -> Iterator[Verdict]:
    if scores.empty:
        yield "empty"
    if scores.garbage:
        yield "garbage"
    if scores.echoed:
        yield "echo"
    if scores.markers:
        yield "role markers"
    if scores.escapes:
        yield "escapes"
    if scores.looped:
        yield "loop"
    if scores.switched:
        yield "language"
    if scores.alike:
        yield "alike"
    if scores.elsewhere:
        yield "elsewhere"
    if not scores.stopped and not could_stop:
        return
    if not scores.stopped:
        yield "runs on"
    elif scores.too_long:
        yield "long"
    if scores.parsed is False:
        yield "unread"
    elif scores.agrees is False:
        yield "wrong"
