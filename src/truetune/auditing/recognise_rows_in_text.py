"""Recognises which given rows stand in a text, by their own texts.

Rows are prepared, shuffled and packed before they reach a batch, so neither order nor number tells which is where. A
row is anchored at its most telling text (a long one that no other row has), and its other fields are looked for around
it. The trade-off: rows of short or shared texts alone are told by order and place only, and may be mistaken for each
other where they are equal, which does no harm.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from truetune.auditing.list_row_texts_with_sources import list_row_fields, parse_row
from truetune.auditing.search_row_fields_in_text import (
    WINDOW_BYTES,
    FieldSpot,
    NormalizeText,
    SearchedText,
    find_field_spots,
    list_pieces_of_longest_texts,
)
from truetune.parsing.parse_json_within_limits import replace_lone_surrogates

# Chosen, not measured: rows of short texts alone have no window; to look for all of a large data set takes minutes.
MAX_ROWS_WITHOUT_MATCH = 256
"""So many rows are all looked for where none is recognised"""


class FoundRow(NamedTuple):
    """A row in a text, and where its fields stand."""

    row: int
    spots: list[FieldSpot]


class GivenRowIndex:
    """Conversations and fields of the given rows, by number."""

    def __init__(self, rows: Mapping[int, dict[str, Any]], normalize: NormalizeText) -> None:
        # Half surrogates can't be encoded to bytes, in which texts are searched.
        whole = {
            number: replace_lone_surrogates(row, json.dumps(row))[0] for number, row in rows.items()
        }
        self.conversations = {number: parse_row(row, number) for number, row in whole.items()}
        self.fields = {
            number: list_row_fields(row, number, self.conversations[number])
            for number, row in whole.items()
        }
        self._windows = {
            number: list_pieces_of_longest_texts(fields) for number, fields in self.fields.items()
        }
        self._texts: dict[int, list[bytes]] = {}
        """The different texts of each row, longest first"""
        rows_with_text: Counter[bytes] = Counter()
        for number, fields in self.fields.items():
            texts = sorted({field.text.strip() for field in fields}, key=len, reverse=True)
            self._texts[number] = [text.encode("utf-8", "replace") for text in texts]
            rows_with_text.update(set(self._texts[number]))
        self._shared = frozenset(text for text, times in rows_with_text.items() if times > 1)
        self._normalize = normalize

    def candidate_rows(self, text: bytes, hint: int | None) -> list[int]:
        """Rows that may stand in a text: those of which a window is in it, and those of short texts alone.

        `hint` is the row that is expected by the order of the data; it is always among them.
        """
        seen = {text[i : i + WINDOW_BYTES] for i in range(len(text) - WINDOW_BYTES + 1)}
        # A set of all windows of the line: one look-up a window, however many rows there are.
        candidates = [
            row
            for row, windows in self._windows.items()
            if not windows or row == hint or not seen.isdisjoint(windows)
        ]
        if candidates or len(self._windows) > MAX_ROWS_WITHOUT_MATCH:
            return candidates
        return list(self._windows)

    def search(
        self, text: SearchedText, rows: Sequence[int], hint: int | None, *, ended: bool
    ) -> list[FoundRow]:
        """The rows that stand in a text, by place.

        Each row stands around its most telling text. A text in which there is no such thing is of one row.

        Args:
            text: what is found in it is marked as taken.
            rows: those that may stand in it (`candidate_rows`).
            hint: the one that is expected, or None.
            ended: does its last token end a text, so that no field is cut there?
        """
        order, size = self._rank_rows_found_in_text(text, rows, hint), len(text.text)
        anchors = self._places_of_most_distinctive_texts(text, order)
        # Nothing telling: the row that is expected, or of which most stands here.
        if not anchors:
            row_spots = self.find_fields(order[0], text, 0, size, cut=not ended) if order else []
            return [FoundRow(order[0], row_spots)] if row_spots else []
        found_rows, done = [], 0
        # A row reaches up to the anchor of the next, and begins behind what the one before it took.
        next_starts = [*(start for start, _, _ in anchors[1:]), size]
        for (_, end, row), high in zip(anchors, next_starts, strict=True):
            row_spots = self.find_fields(row, text, done, high, cut=high == size and not ended)
            done = max([end, *(spot.end for spot in row_spots)])
            if row_spots:
                found_rows.append(FoundRow(row, row_spots))
        return found_rows

    def find_fields(
        self, row: int, text: SearchedText, low: int, high: int, *, cut: bool
    ) -> list[FieldSpot]:
        """Where the fields of a row stand in a part of a text."""
        return find_field_spots(self.fields[row], text, low, high, self._normalize, cut=cut)

    def _rank_rows_found_in_text(
        self, text: SearchedText, rows: Sequence[int], hint: int | None
    ) -> list[int]:
        """The rows of which texts stand in a text, those with most of it first; of equals the one that is expected."""
        size_by_row = {}
        for row in rows:
            size = sum(len(wanted) for wanted in self._texts[row] if wanted in text.text)
            # A text that the line cuts is not there as a whole; its windows are.
            size_by_row[row] = size or sum(window in text.text for window in self._windows[row])
        recognised = [row for row, size in size_by_row.items() if size]
        return sorted(recognised, key=lambda row: (-size_by_row[row], row != hint))

    def _places_of_most_distinctive_texts(
        self, text: SearchedText, order: list[int]
    ) -> list[tuple[int, int, int]]:
        """(start, end, row) of each place of each row's most telling text, by place; its other texts hold no anchor."""
        anchors, held = [], []
        for row in order:
            wanted = next(
                (telling for telling in self._distinctive_texts(row) if telling in text.text), None
            )
            places = _find_free_places(text, wanted) if wanted else []
            anchors += [(start, end, row) for start, end in places]
            if places:
                for other in self._texts[row]:
                    if other != wanted and len(other) >= WINDOW_BYTES:
                        places += _find_free_places(text, other)
            # Held while the other rows are anchored, so that none is anchored inside of this one's texts.
            for place in places:
                text.mark_taken(*place)
            held += places
        for place in held:
            text.mark_free(*place)
        return sorted(anchors)

    def _distinctive_texts(self, row: int) -> list[bytes]:
        """The long texts of a row that no other row has; where it has none, all its long texts."""
        long = [text for text in self._texts[row] if len(text) >= WINDOW_BYTES]
        return [text for text in long if text not in self._shared] or long


def _find_free_places(text: SearchedText, wanted: bytes) -> list[tuple[int, int]]:
    """(start, end) of each place in the open where a text stands."""
    return [(at, at + len(wanted)) for at in text.find_free_occurrences(wanted, 0, len(text.text))]
