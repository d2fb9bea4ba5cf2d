"""Tells whether neighbouring rows have the same value in some column, more often than rows at
random.

Two rows at random share a value with the chance sum(c * (c - 1)) / (n * (n - 1)) over the counts c of the values. In a
file that is grouped by the column nearly all neighbours share it. Only short values of columns that reach neither
prompt nor answer are compared, and labels: a prompt that two rows share is no key.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from truetune.checks.is_wrong_column_learned import last_answer
from truetune.data.column_name_aliases import COLUMN_ALIASES
from truetune.data.conversation import Conversation

# Chosen, not measured: names, topics and URLs of sources are shorter; at double, short texts would be compared.
MAX_KEY = 200
"""Characters of a value that may be a key"""
MAX_COLUMNS = 32
"""Columns that are compared; data sets of the hub have up to 20"""
MAX_VALUES = 200_000
"""Values of a column that are counted, at 100 bytes each; with so many, two rows at random hardly share one"""
MIN_EXCESS = 0.3
"""Share of the way from chance to all neighbours alike from which a file counts as grouped. Sources that are
interleaved stay at 0; a file with half of its rows sorted has 0.5"""
# Standard errors. Chosen: with 32 columns a false alarm at five of them is about one in 100,000 files.
SIGMAS = 5.0
NOT_MAPPED = " (not mapped)"
ANSWER = "the answer"
"""The key of what a row is answered with, where that is one of a few labels"""
MAX_LABEL = 60
"""Characters of an answer that is a label"""
# Chosen, not measured: routers and taxonomies have up to a hundred classes, of ten examples and more.
MAX_LABELS = 100
"""Answers that are labels; of more each is an answer of its own"""
MIN_ROWS_OF_LABEL = 10
"""Rows of each, on average"""


@dataclass(slots=True)
class ColumnRuns:
    """What one column's values are, and how often neighbours share one."""

    column: str
    rows: int = 0
    neighbours: int = 0
    """Pairs of neighbouring rows that both have a value"""
    alike: int = 0
    """Those of them with the same one"""
    values: Counter[int] = field(default_factory=Counter)
    """Rows by the hash of their value"""
    last: int | None = None
    run: int = 0
    """Rows of the run that is still open"""
    squares: int = 0
    """Sum of the squared lengths of the runs before"""

    def add(self, value: int | None) -> None:
        """Count the value (a hash) of the next row; None if it has no value."""
        if value is not None:
            self.rows += 1
            # Beyond the limit only values that are known already are counted: the share of neighbours stays exact.
            if value in self.values or len(self.values) < MAX_VALUES:
                self.values[value] += 1
            if self.last is not None:
                self.neighbours += 1
                self.alike += value == self.last
        if value is None or value != self.last:
            self.squares += self.run * self.run
            self.run = 0
        self.run += value is not None
        self.last = value

    @property
    def distinct_value_count(self) -> int:
        """Distinct values."""
        return len(self.values)

    @property
    def alike_neighbour_share(self) -> float:
        """Share of neighbours that are alike."""
        return self.alike / self.neighbours if self.neighbours else 0.0

    @property
    def alike_share_by_chance(self) -> float:
        """Share of pairs of rows at random that are alike."""
        pairs = self.rows * (self.rows - 1)
        return sum(count * (count - 1) for count in self.values.values()) / pairs if pairs else 0.0

    @property
    def has_shared_values(self) -> bool:
        """Do several rows share a value, and others not?"""
        return 1 < self.distinct_value_count < self.rows

    @property
    def is_grouped(self) -> bool:
        """Are neighbours alike far more often than chance has it?"""
        if not self.has_shared_values or not self.neighbours:
            return False
        # Half of the rows sorted and half shuffled gives 0.5, so that a plain test against chance would find every
        # small tie.
        excess, error = (
            self.alike_neighbour_share - self.alike_share_by_chance,
            math.sqrt(
                self.alike_share_by_chance * (1 - self.alike_share_by_chance) / self.neighbours
            ),
        )
        return excess >= MIN_EXCESS * (1 - self.alike_share_by_chance) and excess > SIGMAS * max(
            # The second term: where all rows of a small file are different, chance and its error are both 0.
            error,
            1 / self.neighbours,
        )

    @property
    def mean_run_length(self) -> float:
        """Rows one after the other with one value, as an average over rows: a batch is drawn where rows are."""
        return (self.squares + self.run * self.run) / max(1, self.rows)

    @property
    def display_name(self) -> str:
        """The column as messages name it: `'source'` in quotes, or `answer`."""
        return "answer" if self.column == ANSWER else repr(self.column)

    def __str__(self) -> str:
        return (
            f"neighbours with the same {self.display_name}: {_as_percent(self.alike_neighbour_share)}, rows at random: "
            f"{_as_percent(self.alike_share_by_chance)} ({self.distinct_value_count:,} groups)"
        )


class KeyColumns:
    """The columns of many rows that may be keys."""

    def __init__(self) -> None:
        self.columns: dict[str, ColumnRuns] = {}

    def add(self, rows: Iterable[Conversation]) -> None:
        """Count the values of the next rows, in file order."""
        for row in rows:
            values = dict(_hashes_of_short_values(row))
            for name in values.keys() - self.columns.keys():
                if len(self.columns) < MAX_COLUMNS:
                    self.columns[name] = ColumnRuns(name)
            for name, runs in self.columns.items():
                runs.add(values.get(name))

    def columns_that_group_rows(self) -> list[ColumnRuns]:
        """The columns by whose values the rows stand in groups, the strongest first."""
        grouped = (runs for runs in self._columns_that_may_be_keys() if runs.is_grouped)
        return sorted(grouped, key=lambda runs: -runs.alike_neighbour_share)

    def columns_with_shared_values(self) -> list[ColumnRuns]:
        """The columns in which several rows share a value, the one with the fewest groups first."""
        return sorted(self._columns_that_may_be_keys(), key=lambda runs: runs.distinct_value_count)

    def _columns_that_may_be_keys(self) -> Iterator[ColumnRuns]:
        """The columns that several rows share a value of; answers only where they are labels."""
        for name, runs in self.columns.items():
            is_label = (
                runs.distinct_value_count <= MAX_LABELS
                and runs.rows >= MIN_ROWS_OF_LABEL * runs.distinct_value_count
            )
            if runs.has_shared_values and (name != ANSWER or is_label):
                yield runs


def _hashes_of_short_values(row: Conversation) -> Iterator[tuple[str, int]]:
    """(column, hash of its value) of what may be a key."""
    raw: Mapping[str, Any] = row.raw or {}
    names = dict.fromkeys(
        [*(name.removesuffix(NOT_MAPPED) for name in row.unused), *COLUMN_ALIASES["label"]]
    )
    answer = last_answer(row)
    if answer is not None and 0 < len(answer.strip()) <= MAX_LABEL:
        yield ANSWER, hash(answer.strip())
    for name in names:
        value = raw.get(name)
        if isinstance(value, bool | int | float) or (
            isinstance(value, str) and 0 < len(value) <= MAX_KEY
        ):
            # The type belongs to it: 1, 1.0 and True hash alike, and mean different things in a column.
            yield name, hash((type(value), value))


def _as_percent(share: float) -> str:
    """A share as a reader sees it; small ones with one more digit."""
    return f"{share:.1%}" if share < 0.1 else f"{share:.0%}"
