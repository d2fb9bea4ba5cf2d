"""How many tokens each row has, how many of them are supervised, and of which sources they are:
the figures by which `truetune view` filters and sorts.

A row takes ten bytes here and nothing else is kept of it, so that the figures of a million rows
fit beside the page. The trade-off: what a row says is not among them, so that a search for text
reads the files again.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from truetune.render.rendering import Source
from truetune.viewing.row_index import SourcedRecords

PADDING = len(Source)
"""The number of padding among the kinds of tokens: it is no source of the data"""
KIND_LABELS = {source.name.lower(): source.label for source in Source} | {"padding": "padding"}
"""The kinds of tokens by their key, in the order of their numbers"""
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RowCounts:
    """The figures of some consecutive rows."""

    tokens: NDArray[np.uint32]
    """(rows,) of all examples of a row; of both sides of a pair"""
    supervised: NDArray[np.uint32]
    """(rows,) without those that max_length cuts off"""
    kinds: NDArray[np.uint16]
    """(rows,) bit k is set where a token of kind k is in the row"""
    ledger: Ints
    """(kinds, 2) supervised tokens and context of all these rows"""

    @property
    def supervised_share_by_row(self) -> NDArray[np.float64]:
        """(rows,) the share of tokens that is supervised; 0 of rows without tokens."""
        return np.asarray(self.supervised / np.maximum(self.tokens, 1))


class TokenCounter(Protocol):
    """Protocol of what counts the tokens of records; it may be used beside the maker of rows."""

    def count(self, first: int, records: SourcedRecords) -> RowCounts:
        """The figures of records; `first` is the number of the first of them."""
        ...

    def prove(self) -> None:
        """Check the shortcuts that were taken. After a FastPathError no figure may be used."""
        ...


def count_tokens(
    rows: int, row_of_token: Ints, kinds: NDArray[np.uint8], supervised: NDArray[np.bool_]
) -> RowCounts:
    """The figures of rows whose tokens lie end to end.

    Args:
        rows: how many rows there are; some may have no token.
        row_of_token: (tokens,) the place of each token's row among these rows.
        kinds: (tokens,) values of Source, or PADDING.
        supervised: (tokens,)
    """
    width = len(KIND_LABELS)
    table = np.bincount(row_of_token * width + kinds, minlength=rows * width).reshape(rows, width)
    ledger = np.bincount(2 * kinds.astype(np.int64) + ~supervised, minlength=2 * width)
    return RowCounts(
        tokens=table.sum(axis=1).astype(np.uint32),
        supervised=np.bincount(row_of_token[supervised], minlength=rows).astype(np.uint32),
        kinds=((table > 0) @ (1 << np.arange(width))).astype(np.uint16),
        ledger=ledger.reshape(width, 2),
    )


@dataclass
class TokensOfRows:
    """Collects the tokens of rows one after the other, to count them together."""

    _rows: list[Ints] = field(default_factory=lambda: [np.zeros(0, np.int64)])
    _kinds: list[NDArray[np.uint8]] = field(default_factory=lambda: [np.zeros(0, np.uint8)])
    _supervised: list[NDArray[np.bool_]] = field(default_factory=lambda: [np.zeros(0, np.bool_)])

    def add(self, place: int, kinds: NDArray[np.uint8], supervised: NDArray[np.bool_]) -> None:
        """Add the tokens of the row at `place`."""
        self._rows.append(np.full(len(kinds), place, np.int64))
        self._kinds.append(kinds)
        self._supervised.append(supervised)

    def counts(self, rows: int) -> RowCounts:
        """The figures of so many rows; those that were not added have no token."""
        row_of_token = np.concatenate(self._rows)
        supervised = np.concatenate(self._supervised)
        return count_tokens(rows, row_of_token, np.concatenate(self._kinds), supervised)


@dataclass
class GrowingRowCounts:
    """The figures of the rows from the first on, as far as they are counted; safe for threads."""

    _parts: list[RowCounts] = field(default_factory=list)
    _rows_of_kind: Ints = field(default_factory=lambda: np.zeros(len(KIND_LABELS), np.int64))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, counts: RowCounts) -> None:
        """Add the figures of the rows that follow those that are here."""
        has_kind = (counts.kinds[:, None] >> np.arange(len(KIND_LABELS))) & 1
        with self._lock:
            self._parts.append(counts)
            self._rows_of_kind = self._rows_of_kind + has_kind.sum(axis=0)

    def clear(self) -> None:
        """Drop all figures, to begin again at the first row."""
        with self._lock:
            self._parts.clear()
            self._rows_of_kind = np.zeros(len(KIND_LABELS), np.int64)

    def joined_counts_and_rows_per_kind(self) -> tuple[RowCounts, Ints]:
        """The figures of all rows that are counted, and (kinds,) how many rows have each kind."""
        with self._lock:
            whole = _join(self._parts)
            # The parts are joined once: the next call adds what has come since.
            self._parts[:] = [whole]
            return whole, self._rows_of_kind


def _join(parts: Sequence[RowCounts]) -> RowCounts:
    """The figures of parts that follow one another, as one."""
    if len(parts) == 1:
        return parts[0]
    return RowCounts(
        np.concatenate([np.zeros(0, np.uint32), *(part.tokens for part in parts)]),
        np.concatenate([np.zeros(0, np.uint32), *(part.supervised for part in parts)]),
        np.concatenate([np.zeros(0, np.uint16), *(part.kinds for part in parts)]),
        np.sum([np.zeros((len(KIND_LABELS), 2), np.int64), *(p.ledger for p in parts)], axis=0),
    )
