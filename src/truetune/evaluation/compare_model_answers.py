"""Compares the answers of two models to the same rows: pair by pair in words, and all together in figures.

The measured model is spoken of as "now" and the other as "before", for most comparisons are of a tuned model with its
base or an older checkpoint. Figures come with a paired interval and a test, for on twenty prompts most differences are
chance. The trade-off: words name what a scorer can see, not which answer is the better one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import mean
from typing import Any, Literal, NamedTuple

from truetune.evaluation.confidence_intervals_over_rows import mcnemar_p, paired_difference
from truetune.generation.answer_samples import Sample
from truetune.generation.answer_verdicts import (
    VERDICT_PHRASES,
    Verdict,
    answer_faults,
    is_good_answer,
)
from truetune.generation.identify_language import are_languages_clearly_different

# Chosen, not measured: another wording of the same answer should not be marked, an added explanation should. The
# count keeps answers of a few words out, whose length doubles with a word.
LENGTH_FACTOR, MIN_MORE_TOKENS = 2.0, 8
"""An answer is longer that has so many times, and so many more, tokens."""
# Chosen, not measured: a synonym in an answer of ten words moves the token F1 by 0.1. At 0.4 an answer that became
# right in half of its words would not be marked.
MIN_OVERLAP_CHANGE = 0.2
"""Overlap with the reference that is worth a word"""
MAX_SHOWN_CHARACTERS = 24
"""Characters from where two answers part"""
ENDING_VERDICTS = ("stops", "runs on", "cut")
"""Verdicts that are told by how the answers end"""
# A table of its own would lack the next new fault, and a comparison in which an answer has it would end in a KeyError
# (tests/evaluation/test_compare.py tries all).
FAULT_PHRASES: dict[Verdict, str] = VERDICT_PHRASES | {
    "language": "not in the reference's language",
    "unread": "unread by the parser",
    "wrong": "wrong by the parser",
}
"""How a fault is called in a comparison, before `now` or `no more`: mostly as everywhere, else shorter"""


class AnswerPair(NamedTuple):
    """Two answers to one row."""

    mine: Sample
    other: Sample
    words: tuple[str, ...]
    """How the first differs from the second"""
    diverges_at: int | None
    """The character at which they part; None where they are the same"""


@dataclass(frozen=True, slots=True)
class ComparedFigure:
    """A figure of both models, over the pairs in which both are known."""

    name: str
    shape: Literal["share", "number", "tokens"]
    mine: float | None
    other: float | None
    low: float | None = None
    """The difference of the means is likely (95 %) between these, by a paired bootstrap; None where all pairs differ
    alike"""
    high: float | None = None
    p: float | None = None
    """Of no difference: McNemar's exact test of shares, else signs flipped"""
    only: tuple[int, int] | None = None
    """Of shares: pairs in which it holds for this model only, and for the other only"""


@dataclass(frozen=True)
class SampleComparison:
    """The answers of a model beside those of another."""

    name: str
    """Of the other"""
    pairs: tuple[AnswerPair, ...]
    figures: tuple[ComparedFigure, ...]
    notes: tuple[str, ...] = ()

    @property
    def equal_answer_count(self) -> int:
        """Pairs with the same answer, token by token, the end included"""
        return sum(pair.diverges_at is None for pair in self.pairs)

    def plain(self) -> dict[str, Any]:
        """The comparison as JSON values."""
        return {
            "other": self.name,
            "same": self.equal_answer_count,
            "figures": [asdict(row) for row in self.figures],
            "pairs": [
                {
                    "file": pair.mine.prompt.file,
                    "line": pair.mine.prompt.line,
                    "row": pair.mine.prompt.row,
                    "mine": pair.mine.answer.text,
                    "other": pair.other.answer.text,
                    "words": list(pair.words),
                    "part": pair.diverges_at,
                }
                for pair in self.pairs
            ],
            "notes": list(self.notes),
        }


def compare_model_answers(
    name: str, pairs: Sequence[tuple[Sample, Sample]], limit: int, notes: Sequence[str] = ()
) -> SampleComparison:
    """Compare the samples of two models.

    Args:
        name: of the other model.
        pairs: (this model's sample, the other's) of the same rows.
        limit: new tokens after which answers were cut.
        notes: what a reader should know of the comparison.
    """
    compared = [
        AnswerPair(
            sample,
            other,
            tuple(describe_change(sample, other, limit)),
            find_divergence(sample, other),
        )
        for sample, other in pairs
    ]
    figures = tuple(_compare_figures(pairs, limit)) if pairs else ()
    return SampleComparison(name, tuple(compared), figures, tuple(notes))


def find_divergence(sample: Sample, other: Sample) -> int | None:
    """The character at which two answers diverge: the end of the shorter one where it begins the longer.

    None where they are the same.
    """
    text, other_text = sample.answer.text, other.answer.text
    if text == other_text:
        # The same words, and one of the two ran on after them: that is no same answer.
        return None if sample.scores.stopped == other.scores.stopped else len(text)
    for position, (a, b) in enumerate(zip(text, other_text, strict=False)):
        if a != b:
            return position
    return min(len(text), len(other_text))


def describe_change(sample: Sample, other: Sample, limit: int) -> Iterator[str]:
    """How an answer differs from the other one, which is spoken of as the one before."""
    now, before = sample.scores, other.scores
    if find_divergence(sample, other) is None:
        yield "same answer"
        return
    if now.stopped != before.stopped:
        yield (
            "now terminates; previously truncated"
            if now.stopped
            else "now truncated; previously terminated"
        )
    if sample.answer.text == other.answer.text:
        yield "the same words"
        return
    yield from _describe_new_and_gone_faults(sample, other, limit)
    if are_languages_clearly_different(now.language, before.language):
        yield f"another language: {now.language}, {before.language} before"
    yield from _describe_change_of_length(len(sample.answer.ids), len(other.answer.ids))
    yield from _describe_change_of_overlap(now.overlap, before.overlap)
    yield _describe_divergence(sample, other)


def _describe_new_and_gone_faults(sample: Sample, other: Sample, limit: int) -> Iterator[str]:
    """Faults that came and faults that went, but for those of the end, which were told already."""
    faults, other_faults = (
        [fault for fault in answer_faults(one, limit) if fault not in ENDING_VERDICTS]
        for one in (sample, other)
    )
    yield from (f"{FAULT_PHRASES[fault]} now" for fault in faults if fault not in other_faults)
    yield from (f"{FAULT_PHRASES[fault]} no more" for fault in other_faults if fault not in faults)


def _describe_change_of_overlap(now: float | None, before: float | None) -> Iterator[str]:
    """Whether the answer came nearer to the reference."""
    if now is None or before is None or abs(now - before) < MIN_OVERLAP_CHANGE:
        return
    nearer = "nearer to" if now > before else "farther from"
    yield f"{nearer} the reference: overlap {now:.2f}, {before:.2f} before"


def _describe_change_of_length(now: int, before: int) -> Iterator[str]:
    """Whether the answer became much longer or shorter, in tokens."""
    low, high = sorted((now, before))
    # Both: twice of three tokens is nothing.
    if high >= LENGTH_FACTOR * low and high - low >= MIN_MORE_TOKENS:
        yield f"{'shorter' if now < before else 'longer'}: {now:,} tokens, {before:,} before"


def _describe_divergence(sample: Sample, other: Sample) -> str:
    """What both say from the beginning of the word in which they diverge."""
    position = find_divergence(sample, other) or 0
    text, other_text = sample.answer.text, other.answer.text
    if position >= min(len(text), len(other_text)):
        return (
            "begins with the one before"
            if len(text) > len(other_text)
            else "the beginning of the one before"
        )
    # From a whole word on: half words are hard to read beside each other.
    start = max(text.rfind(" ", 0, position), text.rfind("\n", 0, position)) + 1
    here, there = (
        " ".join(one[start : start + MAX_SHOWN_CHARACTERS].split()) for one in (text, other_text)
    )
    return f"they diverge at character {position:,}: {here!r} now, {there!r} before"


def _compare_figures(
    pairs: Sequence[tuple[Sample, Sample]], limit: int
) -> Iterator[ComparedFigure]:
    """The figures of both models, in the order of the table."""
    yield _compare_shares("well-formed answers", pairs, lambda s: is_good_answer(s, limit))
    yield _compare_shares("stop by themselves", pairs, lambda s: s.scores.stopped)
    yield _compare_means(
        "P(stop) after the reference", "number", pairs, lambda s: s.answer.stop_probability
    )
    yield _compare_means("overlap with the reference", "number", pairs, lambda s: s.scores.overlap)
    yield _compare_means("tokens of an answer", "tokens", pairs, lambda s: len(s.answer.ids))


def _compare_shares(
    name: str, pairs: Sequence[tuple[Sample, Sample]], measure: Callable[[Sample], bool | None]
) -> ComparedFigure:
    """A share of both models, with McNemar's test: it counts only the pairs in which they disagree."""
    figure = _compare_means(name, "share", pairs, measure)
    verdicts = [(measure(sample), measure(other)) for sample, other in pairs]
    only = verdicts.count((True, False)), verdicts.count((False, True))
    return replace(figure, p=mcnemar_p(*only), only=only)


def _compare_means(
    name: str,
    shape: Literal["share", "number", "tokens"],
    pairs: Sequence[tuple[Sample, Sample]],
    measure: Callable[[Sample], float | None],
) -> ComparedFigure:
    """The mean of both models over the pairs in which both are known, with the interval of their difference."""
    measured = [(measure(sample), measure(other)) for sample, other in pairs]
    known = [(float(a), float(b)) for a, b in measured if a is not None and b is not None]
    if not known:
        return ComparedFigure(name, shape, None, None)
    now, before = [a for a, _ in known], [b for _, b in known]
    change = paired_difference(now, before)
    # Equal ends come from differences that are all alike: a bootstrap has nothing to vary, which is no certainty.
    low, high = (None, None) if change.low == change.high else (change.low, change.high)
    return ComparedFigure(name, shape, mean(now), mean(before), low, high, change.p)
