"""Measures how different the answers of many rows are: what a model could learn from them at all."""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

# Chosen, not measured. At 0.9 a set with a rare class would count as one answer; at 1.0 one broken row would hide it.
NEARLY_ALL = 0.95
"""Share of the rows from which answers count as all of them: what is left may be broken rows"""
# Chosen, not measured. At a quarter, refusals of a safety set would be told; at nine tenths a set whose second half
# is one canned sentence would pass.
MOST = 0.5
"""Share of the rows from which one sentence is too many of them"""
MOST_SHORT = 0.8
"""The same of a text that may be a label, where the others are none: "none" in an extraction is frequent"""
# Chosen, not measured: names of intents and topics are shorter. At double, one-sentence answers would pass as labels.
LABEL = 40
"""Characters up to which an answer may be a label of a class"""
MOST_LABELS = 50
"""Classes of a classification set; the public sets of intents and topics that are trained by answer have up to 77,
most under 20. With more distinct answers than that the answers differ anyway"""
HANDFUL = 10
"""Distinct answers, longer than a label, that are still a handful"""
# Chosen, not measured. At half, small sets with many repeats would be classes; at double, ten classes need 100 rows.
ROWS_A_LABEL = 5
"""Rows that a label has on average, at least: 20 rows with 18 answers have no labels"""

Kind = Literal["alike", "repeated", "handful", "labels", "varied"]


@dataclass(frozen=True, slots=True)
class AnswerDiversity:
    """Answers of some rows, counted."""

    total: int
    """Rows with an answer"""
    common: tuple[tuple[str, int], ...]
    """The commonest answers with their rows, as many as make nearly all rows, at most MOST_LABELS + 1"""
    entropy: float
    """Bits a row: how much a reader learns from being told which of the distinct answers a row has"""

    @classmethod
    def of(cls, counts: Counter[str], total: int) -> AnswerDiversity:
        """Measures answers by `counts`, the rows of each answer.

        Rows of `total` that `counts` leaves out have an answer of their own each.
        """
        common: list[tuple[str, int]] = []
        covered = 0
        # One more than the most that labels may have: the extra one shows that there are too many of them.
        for answer, rows in counts.most_common(MOST_LABELS + 1):
            if covered >= NEARLY_ALL * total:
                break
            common.append((answer, rows))
            covered += rows
        entropy = -sum(rows / total * math.log2(rows / total) for rows in counts.values())
        # Answers that were forgotten stood in one row each, so each of them has the largest surprise that there is.
        single = total - counts.total()
        if single:
            # -p log2 p is 0 for one answer in all rows, and may come out as -0.0: the figure is printed.
            entropy += single / total * math.log2(total)
        return cls(total, tuple(common), max(0.0, entropy))

    @property
    def commonest_share(self) -> float:
        """The share of the rows that have the commonest answer."""
        return self.common[0][1] / self.total if self.common else 0.0

    @property
    def kind(self) -> Kind:
        """How the answers repeat.

        `alike`: one text in nearly all rows; `labels`: a few short ones in nearly all; `handful`: a
        few longer ones in nearly all; `repeated`: one text in most of them, and the others differ.
        """
        if self.commonest_share >= NEARLY_ALL:
            return "alike"
        if self._do_few_answers_recur:
            return "labels" if self._length_of_longest_common_answer <= LABEL else "handful"
        is_long = bool(self.common) and len(self.common[0][0]) > LABEL
        return "repeated" if self.commonest_share > (MOST if is_long else MOST_SHORT) else "varied"

    @property
    def _length_of_longest_common_answer(self) -> int:
        """Characters of the longest of the common answers; 0 if there is none."""
        return max((len(answer) for answer, _ in self.common), default=0)

    @property
    def _do_few_answers_recur(self) -> bool:
        """Do a few answers recur in nearly all rows, as the labels of a classification do?"""
        if not self.common or not self._common_answers_cover_nearly_all:
            return False
        distinct = len(self.common)
        # The median answer: a text of one row is no class, however few texts there are.
        recurs = self.common[distinct // 2][1] > 1
        most_distinct = MOST_LABELS if self._length_of_longest_common_answer <= LABEL else HANDFUL
        return recurs and distinct <= most_distinct and distinct * ROWS_A_LABEL <= self.total

    @property
    def _common_answers_cover_nearly_all(self) -> bool:
        """Do the common answers together make up nearly all rows?"""
        return sum(rows for _, rows in self.common) >= NEARLY_ALL * self.total

    @property
    def entropy_if_balanced(self) -> float:
        """Bits a row that the labels would have if each of them had as many rows as any other."""
        return math.log2(len(self.common)) if self.common else 0.0


class AnswerCounter:
    """Rows of each answer, in bounded memory.

    Where it holds `most` answers, those of a single row are forgotten (lossy counting, Manku and Motwani 2002): an
    answer of many rows is at most one row short for each time.
    """

    def __init__(self, most: int = 50_000) -> None:
        self.most = most
        self.total = 0
        self._counts: Counter[str] = Counter()

    def add(self, answer: str) -> None:
        """Count the answer of one more row."""
        self.total += 1
        self._counts[answer] += 1
        # Forgets the rare ones only when the memory is full: what recurs is all that is asked of the counts.
        if len(self._counts) >= self.most:
            self._counts = Counter(
                {answer: rows for answer, rows in self._counts.items() if rows > 1}
            )

    def diversity(self) -> AnswerDiversity:
        """The diversity of the answers of all rows so far."""
        return AnswerDiversity.of(self._counts, self.total)


def compressed_bits_per_row(texts: Sequence[str]) -> float:
    """Bits that a row's text holds beyond what the other rows say already, by a general compressor.

    An upper bound: zlib knows repeated text within 32 KiB, so texts that are alike cost next to nothing.
    """
    if not texts:
        return 0.0
    # A zero byte parts the texts: it stands in none of them, so no match runs over a border.
    joined = "\x00".join(texts).encode("utf-8", "surrogatepass")
    return len(zlib.compress(joined, 6)) * 8 / len(texts)


def compressed_bits_beyond_known(texts: Sequence[str], known: Sequence[str]) -> float:
    """Bits a row that texts hold beyond what stands in another text of their row, and in the other rows.

    An estimate by the same compressor: what the texts add to the length of both together.
    """
    both = [f"{context}\x00{text}" for context, text in zip(known, texts, strict=True)]
    return max(0.0, compressed_bits_per_row(both) - compressed_bits_per_row(known))


class ColumnInformation(NamedTuple):
    """How much the texts of one column hold."""

    column: str
    bits_per_row: float


def most_informative_column(columns: Iterable[tuple[str, Sequence[str]]]) -> ColumnInformation:
    """The column whose texts hold most information; no name and 0 bits where there is no column."""
    return max(
        (ColumnInformation(name, compressed_bits_per_row(texts)) for name, texts in columns),
        key=lambda column: column.bits_per_row,
        default=ColumnInformation("", 0.0),
    )
