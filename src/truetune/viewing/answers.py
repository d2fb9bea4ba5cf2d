"""Answers: what the page asks of data, by row number, as JSON; the last rows that were drawn are kept."""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from truetune.data.files import Source
from truetune.data.records import Record
from truetune.errors import DataError
from truetune.report.page.rows import Row, cut, empty
from truetune.viewing.shelf import Shelf

MOST = 64
"""Rows in one answer"""
KEPT = 200_000
"""Tokens of rows that are kept, and after which an answer ends"""
PATIENCE, SEARCHED = 1.0, 0.5
"""Seconds that an answer waits for a row to be found, and that one step of a search takes"""
AT_ONCE = 256
"""Rows that are searched at once, where rows do not stand on lines"""

Found = Sequence[tuple[Source, Record]]


class Maker(Protocol):
    """What draws records."""

    def rows(self, first: int, found: Found) -> Iterator[list[Row]]: ...
    def faulty(self, first: int, found: Found) -> int | None: ...
    def text(self, record: Record) -> str: ...
    def forget(self) -> None: ...


class Answers:
    """For several threads: one draws at a time."""

    def __init__(self, open_shelf: Callable[[], Shelf], maker: Maker, notice: str | None = None) -> None:
        """`notice` is what each answer says besides."""
        self._open_shelf = open_shelf
        self.shelf, self.maker = open_shelf(), maker
        self.notice = notice
        self._drawing = threading.Lock()
        self._kept: OrderedDict[int, list[Row]] = OrderedDict()
        self._tokens = 0

    def renew(self) -> None:
        """Go through the files again if they were changed."""
        with self._drawing:
            if self.shelf.changed():
                before, self.shelf = self.shelf, self._open_shelf()
                before.close()
                self.maker.forget()
                self._kept.clear()
                self._tokens = 0
                self.shelf.start()

    def rows(self, start: int, count: int) -> dict[str, Any]:
        """See `truetune.report.page.rows`."""
        self.shelf.wait(start + max(count, 1) - 1, PATIENCE)
        why = self._changed()
        if why:
            return self._state([empty(None, why, row=row) for row in range(start, start + count)], why)
        with self._drawing, self.shelf.undisturbed():
            return self._state([row for rows in self._drawn(start, count) for row in rows])

    def search(self, text: str, start: int) -> dict[str, Any]:
        """The first row from `start` on that holds the text; a step takes about half a second."""
        self._unchanged()
        needles = variants(text)
        deadline, row = time.monotonic() + SEARCHED, start
        while time.monotonic() < deadline and self.shelf.wait(row, 0):
            lines = self.shelf.lines_at(row)
            if lines is not None:
                first, row_after, body = lines
                found = in_lines(body, needles, row - first)
                if found is not None:
                    return self._step(first + found, first + found + 1)
            else:
                records = self.shelf.records(row, AT_ONCE)
                if not records:
                    break
                for i, (_, record) in enumerate(records):
                    if any(needle in self.maker.text(record).encode().lower() for needle in needles):
                        return self._step(row + i, row + i + 1)
                row_after = row + len(records)
            row = row_after
        return self._step(None, row)

    def faulty(self, start: int) -> dict[str, Any]:
        """The first row from `start` on that is not as it should be."""
        self._unchanged()
        deadline, row = time.monotonic() + SEARCHED, start
        while time.monotonic() < deadline and self.shelf.wait(row, 0):
            records = self.shelf.records(row, AT_ONCE)
            if not records:
                break
            with self._drawing:
                found = self.maker.faulty(row, records)
            if found is not None:
                return self._step(found, found + 1)
            row += len(records)
        return self._step(None, row)

    def close(self) -> None:
        """Read and draw no more, and wait for what is being drawn."""
        self.shelf.close()
        with self._drawing:
            self._kept.clear()

    def _unchanged(self) -> None:
        """Raises DataError where the places of rows are no longer those that were found."""
        if why := self._changed():
            raise DataError(why)

    def _changed(self) -> str | None:
        changed = self.shelf.changed()
        return f"{', '.join(changed)}: changed since this page was opened; load the page again" if changed else None

    def _state(self, rows: list[Row], notice: str | None = None) -> dict[str, Any]:
        state = {"rows": rows, "total": self.shelf.total, "indexed": self.shelf.indexed}
        return state | ({"notice": text} if (text := notice or self.notice) else {})

    def _step(self, row: int | None, scanned: int) -> dict[str, Any]:
        total = self.shelf.total
        return {"row": row, "scanned": scanned, "done": row is not None or (total is not None and scanned >= total)}

    def _drawn(self, start: int, count: int) -> Iterator[list[Row]]:
        """What is kept, and what is drawn now; fewer rows where they are long."""
        wanted = range(start, max(start, min(start + count, self.shelf.indexed)))
        found = [] if all(row in self._kept for row in wanted) else self.shelf.records(start, len(wanted))
        tokens = 0
        for row in wanted:
            if row in self._kept:
                self._kept.move_to_end(row)
                rows = self._kept[row]
            elif row - start >= len(found):
                return
            else:
                (drawn,) = self.maker.rows(row, [found[row - start]])
                rows = [cut(one) for one in drawn]
                self._keep(row, rows)
            yield rows
            tokens += _tokens(rows)
            if tokens > KEPT:
                return

    def _keep(self, row: int, rows: list[Row]) -> None:
        self._tokens += _tokens(rows) - _tokens(self._kept.pop(row, []))
        self._kept[row] = rows
        while self._tokens > KEPT:
            self._tokens -= _tokens(self._kept.popitem(last=False)[1])


def variants(text: str) -> list[bytes]:
    """How JSON may spell a text, as bytes whose ASCII letters are small."""
    forms = {form for case in (text, text.lower(), text.upper(), text.capitalize()) for form in (
        case, json.dumps(case)[1:-1], json.dumps(case, ensure_ascii=False)[1:-1])}  # fmt: skip
    return sorted({form.encode("utf-8", "surrogatepass").lower() for form in forms})


def in_lines(body: bytes, needles: Sequence[bytes], skipped: int) -> int | None:
    """The first row of some lines that holds one of the texts, `skipped` rows or more behind the first."""
    lowered = body.lower()
    if not any(needle in lowered for needle in needles):
        return None
    rows = (line for line in lowered.split(b"\n") if line.strip())
    return next((i for i, line in enumerate(rows) if i >= skipped and any(n in line for n in needles)), None)


def _tokens(rows: list[Row]) -> int:
    """Their weight; a row without tokens counts too."""
    return sum(50 + len(row["ids"]) for row in rows)
