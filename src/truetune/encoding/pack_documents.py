"""Packing: documents into rows of a fixed length, with as little room left over as can be.

Documents are never cut, so this is bin packing, which has no fast exact answer. Best-fit decreasing is within 22 % of
it in the worst case, and needs only the free room of each row, kept sorted by room.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence


def pack_best_fit(lengths: Sequence[int], limit: int) -> list[list[int]]:
    """Rows of documents, by their numbers: each document goes where it leaves the least room.

    Best-fit decreasing (Johnson 1974): at most 11/9 of the fewest rows, and in practice within one. Rows are in the
    order of their first document, documents in theirs. Takes O(n log min(n, limit)) time. Raises ValueError for a
    document longer than `limit` tokens.
    """
    rows: list[list[int]] = []
    open_rows: dict[int, list[int]] = {}
    rooms: list[int] = []
    """the different rooms that open rows have, in order"""
    # The longest first: short ones then fill what is left. `sorted` is stable, so that equal lengths keep their order
    # and a run that is done again gives the same packs.
    for document in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        length = lengths[document]
        if length > limit:
            raise ValueError(f"a document of {length:,} tokens does not fit into {limit:,}")
        # The smallest room that is large enough. There are at most `limit` different ones, however many rows there are.
        at = bisect_left(rooms, length)
        if at == len(rooms):
            row, room = len(rows), limit
            rows.append([])
        else:
            room = rooms[at]
            row = open_rows[room].pop()
            if not open_rows[room]:
                del open_rows[room], rooms[at]
        rows[row].append(document)
        remaining = room - length
        if remaining:  # a full row is never looked at again
            if remaining not in open_rows:
                insort(rooms, remaining)
            open_rows.setdefault(remaining, []).append(row)
    return sorted(sorted(row) for row in rows)
