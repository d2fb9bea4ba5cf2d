"""Rows: the given rows, recognised by their texts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from truetune.auditing.fields import conversation_of, fields_of
from truetune.auditing.search import WINDOW, Normalize, Spot, Text, spots, windows
from truetune.parsing.json_reader import replace_surrogates

FEW = 256
"""So many rows are all looked for where none is recognised"""


class Found(NamedTuple):
    """A row in a text, and where its fields stand."""

    row: int
    spots: list[Spot]


class Rows:
    """Conversations and fields of the given rows, by number."""

    def __init__(self, rows: Mapping[int, dict[str, Any]], normalize: Normalize) -> None:
        whole = {
            number: replace_surrogates(row, json.dumps(row))[0] for number, row in rows.items()
        }
        self.talks = {number: conversation_of(row, number) for number, row in whole.items()}
        self.fields = {
            number: fields_of(row, number, self.talks[number]) for number, row in whole.items()
        }
        self._windows = {number: windows(found) for number, found in self.fields.items()}
        texts = {
            number: {field.text.strip() for field in found} for number, found in self.fields.items()
        }
        count = Counter(text for mine in texts.values() for text in mine)
        self._texts = {
            number: [
                text.encode("utf-8", "replace") for text in sorted(mine, key=len, reverse=True)
            ]
            for number, mine in texts.items()
        }
        self._shared = frozenset(
            text.encode("utf-8", "replace") for text, times in count.items() if times > 1
        )
        self._normalize = normalize

    def near(self, text: bytes, hint: int | None) -> list[int]:
        """The rows of which a window stands in a text, and those of short texts, which may stand anywhere."""
        seen = {text[i : i + WINDOW] for i in range(len(text) - WINDOW + 1)}
        near = [
            row
            for row, found in self._windows.items()
            if not found or row == hint or not seen.isdisjoint(found)
        ]
        return near or (list(self._windows) if len(self._windows) <= FEW else [])

    def search(
        self, text: Text, rows: Sequence[int], hint: int | None, *, ended: bool
    ) -> list[Found]:
        """The rows that stand in a text, by place; `ended` says that its end cuts nothing.

        Each row stands around its most telling text. A text in which there is no such thing is of one row.
        """
        order, size = self._by_text(text, rows, hint), len(text.text)
        anchors = self._anchors(text, order)
        if not anchors:
            mine = self.within(order[0], text, 0, size, cut=not ended) if order else []
            return [Found(order[0], mine)] if mine else []
        found, done = [], 0
        for (_, end, row), high in zip(
            anchors, [*(start for start, _, _ in anchors[1:]), size], strict=True
        ):
            mine = self.within(row, text, done, high, cut=high == size and not ended)
            done = max([end, *(spot.end for spot in mine)])
            if mine:
                found.append(Found(row, mine))
        return found

    def within(self, row: int, text: Text, low: int, high: int, *, cut: bool) -> list[Spot]:
        """Where the fields of a row stand in a part of a text."""
        return spots(self.fields[row], text, low, high, self._normalize, cut=cut)

    def _by_text(self, text: Text, rows: Sequence[int], hint: int | None) -> list[int]:
        """The rows of which texts stand in a text, those with most of it first; of equals the one that is expected."""
        found = {}
        for row in rows:
            sizes = [len(wanted) for wanted in self._texts[row] if wanted in text.text]
            found[row] = sum(sizes) or sum(window in text.text for window in self._windows[row])
        return sorted(
            (row for row, size in found.items() if size), key=lambda row: (-found[row], row != hint)
        )

    def _anchors(self, text: Text, order: list[int]) -> list[tuple[int, int, int]]:
        """(start, end, row) of each place of each row's most telling text, by place; its other texts hold no anchor."""
        made, held = [], []
        for row in order:
            wanted = next((t for t in self._telling(row) if t in text.text), None)
            places = (
                [(at, at + len(wanted)) for at in text.found(wanted, 0, len(text.text))]
                if wanted
                else []
            )
            made += [(start, end, row) for start, end in places]
            if places:
                others = [t for t in self._texts[row] if t != wanted and len(t) >= WINDOW]
                places += [
                    (at, at + len(t)) for t in others for at in text.found(t, 0, len(text.text))
                ]
            for place in places:
                text.take(*place)
            held += places
        for place in held:
            text.free(*place)
        return sorted(made)

    def _telling(self, row: int) -> list[bytes]:
        """The long texts of a row that no other row has; where it has none, all its long texts."""
        long = [text for text in self._texts[row] if len(text) >= WINDOW]
        return [text for text in long if text not in self._shared] or long
