"""Names the faults of an answer, and its verdict in a word: it stops, loops, is empty, changes the language, .

An answer may have several faults. They are ordered by what tells most of the cause: an empty answer or garbage explains
all that follows, an echo explains the loop that it is. Reports count each answer once, under the first.

A new fault is a field of `Scores` (`answer_samples`) and a column of `SCHEMA` (`sampling_pass_files`);
`score_answer` finds it; here it is a `Verdict` with a phrase, at its place in
`_faults_of_text` or `_faults_of_length_and_parsing`. Terminal, JSON and page show it then.
tests/generation/test_answer_verdicts.py and test_sample_files.py fail where one of these, or its row in
docs/sample.md, is missing. A curve over the steps of a run is asked for in the `MEAN_SCORES` of
`evaluation/training_run_report.py` and of `training/watch/experiment_trackers.py`, and drawn by
`report/page/curve_charts.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    "escapes": "escapes instead of characters",
    "loop": "loops",
    "language": "changes the language",
    "alike": "the same answer to all",
    "elsewhere": "another row's reference",
    "runs on": "hits max_new_tokens",
    "long": "far longer than its reference",
    "unread": "the parser reads nothing",
    "wrong": "a wrong answer",
    "cut": "cut by a short limit",
}
"""What a reader is told of each"""


def answer_faults(sample: Sample, limit: int) -> tuple[Verdict, ...]:
    """All that is wrong with an answer, what tells most first.

    Args:
        sample: the answer with its scores.
        limit: new tokens after which it was cut; NO_LIMIT where nobody names any.
    """
    # An answer that was cut before its reference ends could not have stopped: it is no endless one.
    could_stop = len(sample.prompt.reference_ids) <= limit
    return (
        *_faults_of_text(sample.scores),
        *_faults_of_length_and_parsing(sample.scores, could_stop=could_stop),
    )


def main_verdict(sample: Sample, limit: int) -> Verdict:
    """The verdict that tells most of an answer that was cut after `limit` tokens."""
    # Each answer counts once, so that the shares in a report make 100 %.
    faults = answer_faults(sample, limit)
    if faults:
        return faults[0]
    if not sample.scores.end_known:
        return "sound"
    return "stops" if sample.scores.stopped else "cut"


def is_good_answer(sample: Sample, limit: int) -> bool | None:
    """Does it answer and stop? None where the limit was too short to tell."""
    verdict = main_verdict(sample, limit)
    return None if verdict == "cut" else verdict in GOOD_VERDICTS


def count_good_and_decidable(samples: Sequence[Sample], limit: int) -> tuple[int, int]:
    """How many answers are good, and of how many that can be told."""
    verdicts = [is_good_answer(sample, limit) for sample in samples]
    known = [verdict for verdict in verdicts if verdict is not None]
    return sum(known), len(known)


def _faults_of_text(scores: Scores) -> list[Verdict]:
    """The faults that stand in the text itself, what tells most first."""
    # In the order in which one explains the next: garbage loops, an echo leaks the marks of the prompt.
    is_faulty: dict[Verdict, bool] = {
        "empty": scores.empty,
        "garbage": scores.garbage,
        "echo": scores.echoed,
        "role markers": bool(scores.markers),
        "escapes": bool(scores.escapes),
        "loop": scores.looped,
        "language": bool(scores.switched),
        "alike": scores.alike,
        "elsewhere": scores.elsewhere,
    }
    return [fault for fault, holds in is_faulty.items() if holds]


def _faults_of_length_and_parsing(scores: Scores, *, could_stop: bool) -> list[Verdict]:
    """The faults of its length and of what a parser reads of it.

    An answer that was cut before its reference would have ended (not `could_stop`) has none of them: neither its end
    nor its final answer could be there yet.
    """
    if not scores.stopped and not could_stop:
        return []
    faults: list[Verdict] = []
    if not scores.stopped:
        faults.append("runs on")
    # A long answer that was cut is one fault, and not two.
    elif scores.too_long:
        faults.append("long")
    # `is False`: None means that no parser is named.
    if scores.parsed is False:
        faults.append("unread")
    elif scores.agrees is False:
        faults.append("wrong")
    return faults
