"""Which rows `truetune view` lists, and in which order: by finding, role, file, length and
supervised share.

A filter is a few names and bounds, as the page's address holds them, so that a link to a list is
a link to the same list. It is applied to the figures of all rows at once: on 100,000 rows that
takes milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from truetune.viewing.token_counts_of_rows import KIND_LABELS, Ints, RowCounts

ANY_FINDING = "any"
"""The name of all findings together"""
MAX_TOKENS = 1 << 31
"""The bound of a length that is no bound"""


@dataclass(frozen=True, slots=True)
class RowFilter:
    """What a row must have to be listed, and the order; what is left out excludes nothing."""

    finding: str = ""
    """The name of a finding, ANY_FINDING, or empty"""
    role: str = ""
    """A key of KIND_LABELS: some token of the row is of this kind"""
    file: str = ""
    """The path of a file"""
    min_tokens: int = 0
    max_tokens: int = MAX_TOKENS
    min_supervised: int = 0
    """In per cent of the row's tokens"""
    max_supervised: int = 100
    """In per cent of the row's tokens"""
    sort: str = "row"
    """One of SORTS"""

    @property
    def needs_token_counts(self) -> bool:
        """Can only rows be listed whose tokens are counted?"""
        free_of_counts = RowFilter(finding=self.finding, file=self.file)
        return self != free_of_counts


SORTS = ("row", "longest", "shortest", "most", "least")
"""By number; by tokens; by supervised share. Rows that are equal stay in the order of the data."""


def select_rows(
    counts: RowCounts,
    row_filter: RowFilter,
    rows: int,
    *,
    rows_by_finding: Mapping[str, Sequence[int]],
    rows_of_file: range,
) -> Ints:
    """The numbers of the rows that a filter lists, in its order.

    Args:
        counts: of the rows from 0 on, as far as they are counted.
        row_filter: the filter.
        rows: how many rows are known.
        rows_by_finding: the rows that each finding names.
        rows_of_file: the rows of the filter's file; all rows where it names none.
    """
    known = len(counts.tokens) if row_filter.needs_token_counts else rows
    chosen = np.zeros(known, np.bool_)
    chosen[rows_of_file.start : rows_of_file.stop] = True
    if row_filter.finding:
        named = np.zeros(known, np.bool_)
        numbers = np.asarray(rows_by_finding[row_filter.finding], np.int64)
        named[numbers[numbers < known]] = True
        chosen &= named
    if not row_filter.needs_token_counts:
        return np.flatnonzero(chosen)
    if row_filter.role:
        kind = tuple(KIND_LABELS).index(row_filter.role)
        chosen &= (counts.kinds >> kind & 1).astype(np.bool_)
    chosen &= (counts.tokens >= row_filter.min_tokens) & (counts.tokens <= row_filter.max_tokens)
    # In whole numbers: 100 times the share of 29 tokens of 100 is a little less than 29.
    hundredfold = 100 * counts.supervised.astype(np.int64)
    tokens = np.maximum(counts.tokens, 1).astype(np.int64)
    chosen &= hundredfold >= row_filter.min_supervised * tokens
    chosen &= hundredfold <= row_filter.max_supervised * tokens
    return _sort_rows(np.flatnonzero(chosen), counts, row_filter.sort)


def _sort_rows(rows: Ints, counts: RowCounts, sort: str) -> Ints:
    """The rows in the order that `sort` names."""
    if sort == "row":
        return rows
    keys = counts.tokens if sort in ("longest", "shortest") else counts.supervised_share_by_row
    ascending = keys[rows].astype(np.float64)
    descends = sort in ("longest", "most")
    return rows[np.argsort(-ascending if descends else ascending, kind="stable")]
