"""Finds sibling rows, which were made of one source: one answer under several questions, or a
column that names the source.

A random split of such rows puts parts of nearly each group on both sides. How many held-out rows have a sibling in the
training part follows from the sizes of the groups alone, by the hypergeometric distribution; no seed is needed.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

GROUP_COLUMN = re.compile(
    r"(?:doc|document|conversation|conv|dialog|dialogue|thread|session|patient|contract|article|report|paper|file|source"
    r"|url|chat|ticket|customer|book|meeting|call|page|parent|group|video|speaker|repo|problem|seed|fact|original|orig"
    r"|faq|passage|chunk|cluster)"
    r"(?:_?(?:id|name|key|file|path|doc|uuid|no|number|idx|index))?",
    re.I,
)
LONG_ANSWER = 60
"""Characters of an answer that two rows do not have by chance; as `train-eval-leak` takes it"""
# Chosen, not measured: with fewer groups a column may be a kind; with fewer rows in each there is little to recall.
MIN_GROUPS, MIN_ROWS_PER_GROUP = 10, 2.0
# Chosen, not measured: sets of paraphrases have 2 to 15 rows for each answer. Labels and stock answers have more.
MAX_ROWS_PER_GROUP = 20.0
# Chosen, not measured: a column of few large values is a kind or an origin, which each part should have.
MAX_GROUP_SHARE = 0.2
"""Of the rows, that one group has"""
SAME_KEY = 0.95
"""Share of the answers that have one value of a column to themselves, from which it says which rows belong together"""
MAX_COLUMNS, MAX_KEY = 32, 64
"""Columns that are compared, and characters of a value by which rows may belong together"""
STRUCTURES = ("{", "[", "<", "```")
"""What an answer in JSON, XML or code begins with: rows may have the same one by chance"""


@dataclass(slots=True)
class _Column:
    """What the values of a column are, over all rows and over those with a long answer."""

    rows: Counter[int] = field(default_factory=Counter)
    pairs: set[tuple[int, int]] = field(default_factory=set)
    """A value, and the answer beside it"""


@dataclass(frozen=True, slots=True)
class SiblingGroups:
    """The groups that rows form, and what tells so."""

    sizes: tuple[int, ...]
    """Rows of each group of two and more"""
    rows: int
    """All rows, also those of no group"""
    column: str
    """The column that names the groups; empty where none does"""
    has_same_answers: bool

    @property
    def row_count_with_sibling(self) -> int:
        """The number of rows that share a group with another row."""
        return sum(self.sizes)

    def share_of_held_out_rows_with_sibling(self, held_out: int) -> float:
        """The share of randomly held-out rows whose group has a row in the training part, as an expectation."""
        chances = Counter(self.sizes)
        expected = sum(
            count * size * (1 - chance_that_all_are_held_out(size - 1, held_out - 1, self.rows - 1))
            for size, count in chances.items()
        )
        return expected / self.rows


def chance_that_all_are_held_out(others: int, held_out: int, rows: int) -> float:
    """The chance that `others` given rows are all among `held_out` of `rows` rows."""
    chance = 1.0
    for drawn in range(others):
        if drawn >= held_out:
            return 0.0
        chance *= (held_out - drawn) / (rows - drawn)
    return chance


class SiblingRows:
    """Rows as they come, counted by their answers and by their short values."""

    def __init__(self) -> None:
        self.rows = 0
        self.answers: Counter[int] = Counter()
        """Rows by the hash of their long answer"""
        self.prompts: defaultdict[int, set[int]] = defaultdict(set)
        """Up to two prompts of each long answer"""
        self.columns: dict[str, _Column] = {}

    def add(self, answer: str, prompt: Hashable, values: Mapping[str, Any]) -> None:
        """Count one more row.

        Args:
            answer: its last answer; empty where it has none.
            prompt: what tells its prompt from others.
            values: its columns.
        """
        self.rows += 1
        text = answer.strip()
        key = hash(text) if len(text) >= LONG_ANSWER and not text.startswith(STRUCTURES) else None
        if key is not None:
            self.answers[key] += 1
            if len(self.prompts[key]) < 2:
                self.prompts[key].add(hash(prompt))
        for name, value in values.items():
            self._count_possible_key_value(name, value, key)

    def _count_possible_key_value(self, name: str, value: Any, answer: int | None) -> None:
        """A value of a column, where it may be a key."""
        if isinstance(value, bool) or not isinstance(value, str | int):
            return
        if isinstance(value, str) and not 0 < len(value) <= MAX_KEY:
            return
        if name not in self.columns and len(self.columns) >= MAX_COLUMNS:
            return
        column = self.columns.setdefault(name, _Column())
        column.rows[hash(value)] += 1
        if answer is not None:
            column.pairs.add((hash(value), answer))

    def groups(self) -> SiblingGroups | None:
        """The groups that share an answer, else those that share a value of a column with a telling
        name; None if there are none.
        """
        sizes = [
            size for key, size in self.answers.items() if size > 1 and len(self.prompts[key]) > 1
        ]
        if self._are_many_small_groups(sizes):
            return SiblingGroups(
                tuple(sizes), self.rows, self._column_with_one_value_per_answer(), True
            )
        for name, column in self.columns.items():
            sizes = [size for size in column.rows.values() if size > 1]
            is_whole = column.rows.total() == self.rows
            if is_whole and GROUP_COLUMN.fullmatch(name) and self._are_many_small_groups(sizes):
                return SiblingGroups(tuple(sizes), self.rows, name, False)
        return None

    def _are_many_small_groups(self, sizes: Iterable[int]) -> bool:
        """Are these many groups of a few rows, and none a large part of the data?"""
        sorted_sizes = sorted(sizes)
        if len(sorted_sizes) < MIN_GROUPS:
            return False
        mean = sum(sorted_sizes) / len(sorted_sizes)
        is_small = sorted_sizes[-1] <= MAX_GROUP_SHARE * self.rows
        return MIN_ROWS_PER_GROUP <= mean <= MAX_ROWS_PER_GROUP and is_small

    def _column_with_one_value_per_answer(self) -> str:
        """The name of a column that has one value for each long answer; empty if none has."""
        answers = len(self.answers)
        for name, column in self.columns.items():
            values = {value for value, _ in column.pairs}
            if len(values) < SAME_KEY * answers:
                continue
            if SAME_KEY * len(column.pairs) <= answers and len(values) <= answers < self.rows:
                return name
        return ""
