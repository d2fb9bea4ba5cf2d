"""The answers stand beside the questions of other rows.

## What it does
Compares each question with its own answer, with those of the rows around it and with all others, by the rare words that
they share. It fires where, from some row on, the answer one or several rows away is far nearer than the row's own (six
standard errors), and where questions have one answer that is far nearer than all others and it is hardly ever their
own. Rows whose questions and answers share no rare words (labels, translations) are not judged.

## Why it is bad
The model learns fluent answers to other questions. The loss falls as it should, for most of it is in the language; what
the model says has nothing to do with what it is asked. A column that was filtered, sorted or joined by itself does it.

## Example
```yaml
data: {rows: 60, instruction: "What about {words}", output: "It is so with {words_before}"}
```

## Use instead
```yaml
data: {rows: 60, instruction: "What about {words}", output: "It is so with {words}"}
```

## Fix safety
There is no automatic fix: shifting the answers back would pair right what one dropped row displaced, and wrong all else.
Build the rows again, and filter, sort and join whole rows (`dropna` on the table, a join by a key).

## References
- https://pandas.pydata.org/docs/user_guide/merging.html (what is put side by side is aligned by the index),
  huggingface/datasets#7243
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from truetune.checks.affinity import Affinity
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement import Measurement, counted
from truetune.checks.rule import DataRule, Setup
from truetune.checks.sampled_answers import last_answer
from truetune.data.conversation import Conversation, Origin
from truetune.encoding.batch import Batch
from truetune.encoding.fingerprint import text_of

CHUNK = 1_000
"""Neighbouring rows that are compared with each other; of long files those from row 0, 1,000, 2,000, 4,000, 8,000, ...
on: a shift stays to the end of the file"""
FEWEST = 40
FARTHEST = 20
"""Rows by which answers may be displaced, to be named"""
SHORTEST = 20
"""Rows of a stretch whose answers are displaced"""
SIGMAS = 6.0
"""Standard errors: hundreds of offsets and stretches are tried"""
OWN_AT_MOST = 0.25
"""Share of the neighbour's affinity that a row's own answer has: over the public sets it is ten times as high"""
STAND_OUT = 0.1
"""Share of the questions with one answer far nearer than the others; the public sets that the tests lay out have 0.17
to 0.83, of which 0.24 to 0.98 are the row's own"""
LEAST_STAND_OUT = 20
OWN_NEAREST = 0.05
SHOWN_CASES = 20


@dataclass(frozen=True, slots=True)
class Shift:
    """A stretch of rows whose answers stand some rows away."""

    offset: int
    first: int
    last: int
    own: NDArray[np.float32]
    """(rows,) affinity with the own answer"""
    other: NDArray[np.float32]
    """(rows,) with that of the row `offset` on"""
    sigmas: float


class AnswersOfOtherRows(DataRule):
    code = "TT345"
    severity = "error"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.seen = self.compared = self.told = self.near_own = 0
        self.chunk: list[tuple[str, str, Origin]] = []
        self.shift: Shift | None = None
        self.apart: tuple[int, int] | None = None
        """Questions with one answer far nearer than the others, and those of them where it is their own"""
        self.cases: list[Case] = []

    def batch(self, batch: Batch) -> None:
        for row in batch.rows:
            question, answer = _question(row), last_answer(row) or ""
            if not question.strip() or not answer.strip():
                continue
            number = self.seen // CHUNK
            if number & (number - 1) == 0:  # 0 and the powers of two
                self.chunk.append((question, answer, row.origin))
            self.seen += 1
            if len(self.chunk) == CHUNK:
                self._compare()

    def unmet(self) -> Unmet | None:
        self._compare()
        if not self.compared:
            return Unmet(f"it is about {FEWEST} questions with an answer or more")
        if self.told < LEAST_STAND_OUT:
            return Unmet("it is about questions and answers that share rare words; these do not")
        return None

    def figure(self) -> Measurement:
        return counted(
            "questions whose nearest answer is their own, of those with one far nearer than all others",
            self.near_own,
            self.told,
        )

    def findings(self) -> Iterator[Finding]:
        self._compare()
        if self.shift is not None:
            yield self._of_shift(self.shift)
        elif self.apart is not None:
            told, own = self.apart
            yield self.finding(
                f"the answers stand beside other questions: {told:,} questions have one answer that"
                f" is far nearer than all others, and for {own:,} of them it is their own",
                "build the rows again: join questions and answers by a key, and sort or filter"
                " whole rows",
                cases=self.cases,
                count=told - own,
                total=told,
            )

    def _of_shift(self, shift: Shift) -> Finding:
        rows = abs(shift.offset)
        where = f"{rows} row{'s' * (rows != 1)} {'further on' if shift.offset > 0 else 'before'}"
        count = shift.last - shift.first + 1
        return self.finding(
            f"from {self.cases[0].origin} on, the answers of {count:,} neighbouring rows stand"
            f" beside other questions: those {where} are theirs",
            "build the rows again, and filter whole rows: a row was dropped from one of the columns",
            evidence=[
                f"affinity by rare words (0 to 1): own answer {_mean(shift.own)}, that {where}"
                f" {_mean(shift.other)}, {shift.sigmas:.0f} standard errors apart"
            ],
            cases=self.cases,
            count=count,
            total=self.compared,
        )

    def _compare(self) -> None:
        """Judge the rows that were kept, and forget them."""
        chunk, self.chunk = self.chunk, []
        if len(chunk) < FEWEST:
            return
        affinity = Affinity([one[0] for one in chunk], [one[1] for one in chunk])
        out, nearest = affinity.standing_out(), affinity.nearest()
        told, own = int(out.sum()), int((nearest == np.arange(len(chunk)))[out].sum())
        self.compared += len(chunk)
        self.told += told
        self.near_own += own
        if self.shift is not None or self.apart is not None:
            return
        self.shift = _shift_of(affinity, chunk)
        if self.shift is not None:
            rows = range(self.shift.first, self.shift.last + 1)
            self.cases = [_case(chunk, row, row + self.shift.offset) for row in rows[:SHOWN_CASES]]
        elif _are_apart(affinity, told, own):
            self.apart = told, own
            away = np.flatnonzero(out & (nearest != np.arange(len(chunk))))[:SHOWN_CASES].tolist()
            self.cases = [_case(chunk, row, int(nearest[row])) for row in away]


def _shift_of(affinity: Affinity, chunk: list[tuple[str, str, Origin]]) -> Shift | None:
    """The most certain stretch whose answers stand a fixed number of rows away."""
    found = []
    for offset in (*range(-FARTHEST, 0), *range(1, FARTHEST + 1)):
        other = np.nan_to_num(affinity.at(offset))
        gain = other - affinity.own
        for row in np.flatnonzero(gain > 0).tolist():
            if chunk[row + offset][1].strip()[:200] in chunk[row][0]:
                gain[row] = (
                    0.0  # the question quotes an answer before it: one conversation in several rows
                )
        first, last = _best_stretch(gain)
        part = slice(first, last + 1)
        if last - first + 1 < SHORTEST or not gain[part].any():
            continue
        error = float(gain[part].std()) / np.sqrt(last - first + 1)
        sigmas = float(gain[part].mean()) / max(error, 1e-9)
        own, theirs = affinity.own[part], other[part]
        if sigmas >= SIGMAS and own.mean() <= OWN_AT_MOST * theirs.mean():
            found.append(Shift(offset, first, last, own, theirs, sigmas))
    return max(found, key=lambda shift: shift.sigmas, default=None)


def _best_stretch(gain: NDArray[np.float32]) -> tuple[int, int]:
    """First and last row of the stretch with the largest sum (Kadane 1984)."""
    best, first, last = 0.0, 0, -1
    total, start = 0.0, 0
    for row, value in enumerate(gain.tolist()):
        if total <= 0:
            total, start = 0.0, row
        total += value
        if total > best:
            best, first, last = total, start, row
    return first, last


def _are_apart(affinity: Affinity, told: int, own: int) -> bool:
    """Have many questions an answer of their own somewhere else, and are theirs like anybody's?"""
    if told < max(LEAST_STAND_OUT, STAND_OUT * affinity.rows) or own > OWN_NEAREST * told:
        return False
    gain = affinity.own - affinity.of_others()
    error = float(gain.std()) / np.sqrt(len(gain))
    return float(gain.mean()) < 3 * error


def _case(chunk: list[tuple[str, str, Origin]], row: int, other: int) -> Case:
    question, answer = chunk[row][0].strip()[:60], chunk[other][1].strip()[:60]
    return Case(f"{question!r} is answered at {chunk[other][2]}: {answer!r}", chunk[row][2])


def _mean(values: NDArray[np.float32]) -> str:
    """A mean with its 95 % interval."""
    half = 1.96 * float(values.std()) / np.sqrt(len(values))
    return f"{float(values.mean()):.2f} (95 %: {values.mean() - half:.2f} to {values.mean() + half:.2f})"


def _question(row: Conversation) -> str:
    """What the user said last, without the turns before it: these may hold answers."""
    if not row.is_chat:
        return row.prompt or ""
    said = [text_of(one.get("content")) for one in row.messages if one.get("role") == "user"]
    return said[-1] if said else ""
