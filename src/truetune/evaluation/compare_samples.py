"""Compare: two models on the same rows, pair by pair in words, and all together in figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import mean
from typing import Any, Literal, NamedTuple

from truetune.evaluation.row_statistics import mcnemar, paired
from truetune.generation.answer_samples import Sample
from truetune.generation.answer_verdicts import Verdict, answer_faults, good
from truetune.generation.identify_language import languages_differ

LONGER, MORE = 2.0, 8
"""An answer is longer that has so many times, and so many more, tokens."""
NEARER = 0.2
"""Overlap with the reference that is worth a word"""
SHOWN = 24
"""Characters from where two answers part"""
OURS = ("stops", "runs on", "cut")
"""Verdicts that are told by how the answers end"""


class Pair(NamedTuple):
    """Two answers to one row."""

    mine: Sample
    other: Sample
    words: tuple[str, ...]
    """How the first differs from the second"""
    part: int | None
    """The character at which they part; None where they are the same"""


@dataclass(frozen=True, slots=True)
class Row:
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
class Compared:
    """The answers of a model beside those of another."""

    name: str
    """Of the other"""
    pairs: tuple[Pair, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    @property
    def same(self) -> int:
        """Pairs with the same answer, token by token, the end included"""
        return sum(pair.part is None for pair in self.pairs)

    def plain(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "other": self.name,
            "same": self.same,
            "figures": [asdict(row) for row in self.rows],
            "pairs": [
                {
                    **{name: getattr(pair.mine.prompt, name) for name in ("file", "line", "row")},
                    "mine": pair.mine.answer.text,
                    "other": pair.other.answer.text,
                    "words": list(pair.words),
                    "part": pair.part,
                }
                for pair in self.pairs
            ],
            "notes": list(self.notes),
        }


def compared(
    name: str, pairs: Sequence[tuple[Sample, Sample]], limit: int, notes: Sequence[str] = ()
) -> Compared:
    """Of (this model's sample, the other's) of the same rows."""
    made = [
        Pair(mine, other, tuple(words(mine, other, limit)), part(mine, other))
        for mine, other in pairs
    ]
    return Compared(name, tuple(made), tuple(_rows(pairs, limit)) if pairs else (), tuple(notes))


def part(mine: Sample, other: Sample) -> int | None:
    """The character at which two answers part: the end of the shorter one where it begins the longer."""
    a, b = mine.answer.text, other.answer.text
    if a == b:
        return None if mine.scores.stopped == other.scores.stopped else len(a)
    return next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


def words(mine: Sample, other: Sample, limit: int) -> Iterator[str]:
    """How an answer differs from the other one, which is spoken of as the one before."""
    now, before = mine.scores, other.scores
    if part(mine, other) is None:
        yield "same answer"
        return
    if now.stopped != before.stopped:
        yield "stops now, ran on before" if now.stopped else "runs on now, stopped before"
    if mine.answer.text == other.answer.text:
        yield "the same words"
        return
    mine_faults, other_faults = (
        [fault for fault in answer_faults(sample, limit) if fault not in OURS]
        for sample in (mine, other)
    )
    yield from (f"{PHRASES[fault]} now" for fault in mine_faults if fault not in other_faults)
    yield from (f"{PHRASES[fault]} no more" for fault in other_faults if fault not in mine_faults)
    if languages_differ(now.language, before.language):
        yield f"another language: {now.language}, {before.language} before"
    yield from _length(len(mine.answer.ids), len(other.answer.ids))
    if (
        now.overlap is not None
        and before.overlap is not None
        and abs(now.overlap - before.overlap) >= NEARER
    ):
        nearer = "nearer to" if now.overlap > before.overlap else "farther from"
        yield f"{nearer} the reference: overlap {now.overlap:.2f}, {before.overlap:.2f} before"
    yield _parting(mine, other)


PHRASES: dict[Verdict, str] = {
    "empty": "empty",
    "garbage": "garbage",
    "echo": "repeats the question",
    "role markers": "leaks role markers",
    "loop": "loops",
    "language": "not in the reference's language",
    "unread": "unread by the parser",
    "wrong": "wrong by the parser",
}


def _length(now: int, before: int) -> Iterator[str]:
    low, high = sorted((now, before))
    if high >= LONGER * low and high - low >= MORE:
        yield f"{'shorter' if now < before else 'longer'}: {now:,} tokens, {before:,} before"


def _parting(mine: Sample, other: Sample) -> str:
    """From the beginning of the word in which they part."""
    at = part(mine, other) or 0
    a, b = mine.answer.text, other.answer.text
    if at >= min(len(a), len(b)):
        return (
            "begins with the one before" if len(a) > len(b) else "the beginning of the one before"
        )
    start = max(a.rfind(" ", 0, at), a.rfind("\n", 0, at)) + 1
    here, there = (" ".join(text[start : start + SHOWN].split()) for text in (a, b))
    return f"they part at character {at:,}: {here!r} now, {there!r} before"


def _rows(pairs: Sequence[tuple[Sample, Sample]], limit: int) -> Iterator[Row]:
    yield _shares("well-formed answers", pairs, lambda s: good(s, limit))
    yield _shares("stop by themselves", pairs, lambda s: s.scores.stopped)
    yield _means(
        "P(stop) behind the reference", "number", pairs, lambda s: s.answer.stop_probability
    )
    yield _means("overlap with the reference", "number", pairs, lambda s: s.scores.overlap)
    yield _means("tokens of an answer", "tokens", pairs, lambda s: len(s.answer.ids))


def _shares(
    name: str, pairs: Sequence[tuple[Sample, Sample]], of: Callable[[Sample], bool | None]
) -> Row:
    found = _means(name, "share", pairs, of)
    told = [(of(a), of(b)) for a, b in pairs]
    only = told.count((True, False)), told.count((False, True))
    return replace(found, p=mcnemar(*only), only=only)


def _means(
    name: str,
    shape: Literal["share", "number", "tokens"],
    pairs: Sequence[tuple[Sample, Sample]],
    of: Callable[[Sample], float | None],
) -> Row:
    known = [
        (a, b)
        for mine, other in pairs
        if (a := of(mine)) is not None and (b := of(other)) is not None
    ]
    if not known:
        return Row(name, shape, None, None)
    now, before = ([float(pair[side]) for pair in known] for side in (0, 1))
    found = paired(now, before)
    low, high = (None, None) if found.low == found.high else (found.low, found.high)
    return Row(name, shape, mean(now), mean(before), low, high, found.p)
