"""Answers the page's requests for rows, by row number, as JSON; the last rows that were drawn are kept.

Several threads ask, and one draws at a time: tokenizers and the template process are not made for more, and the first
rows are wanted before the others. Each answer is bounded in rows, tokens and time, so that a page stays alive over
data of any size, and asks again for the rest.
"""

from __future__ import annotations

import atexit
import base64
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from truetune.data.find_data_files import DataFile
from truetune.data.read_file_records import Record
from truetune.errors import DataError
from truetune.report.page.json_of_one_examples_tokens import (
    TokenRow,
    cut_row_to_limit,
    row_without_tokens,
)
from truetune.viewing.count_row_tokens_in_background import BackgroundCount
from truetune.viewing.filter_and_sort_rows import ANY_FINDING, RowFilter, select_rows
from truetune.viewing.row_index import RowIndex, SourcedRecords
from truetune.viewing.token_counts_of_rows import KIND_LABELS, Ints, RowCounts, TokenCounter

MAX_ROWS = 64
"""Rows in one answer"""
# Chosen, not measured: it bounds memory, for of each token an id, a string and more are kept.
MAX_KEPT_TOKENS = 200_000
"""Tokens of rows that are kept, and after which an answer ends"""
# Chosen, not measured: short enough that a page which scrolls into what is not indexed yet does
# not freeze, long enough that a small file is there at the first request. A search step of half
# a second shows progress and can be stopped.
ROW_WAIT_SECONDS = 0.3
SEARCH_SECONDS = 0.5
"""Seconds that an answer waits for a row to be found, and that one step of a search takes"""
# Chosen, not measured: a step of a search looks at the clock after so many rows, and rendering
# a row takes longer than reading it.
SEARCH_ROWS = 256
CHECK_ROWS = 64
"""Rows that are searched at once where they do not stand in a text, and that are rendered to be checked"""

# Chosen, not measured: a page that asks all the time may not stop the count for good.
REST_SECONDS = 0.3
"""Seconds that the count of all rows rests at most, where rows are looked at"""
MAX_NAMED_FILES = 200
"""Files whose figures are listed"""

SearchStep = Callable[[int], tuple[int | None, int]]
"""Of a row: the one that was looked for, if it is there or not far on, and the row to continue with"""


class RowMaker(Protocol):
    """Protocol of what makes the token rows of records."""

    def rows(self, first: int, records: SourcedRecords) -> Iterator[list[TokenRow]]: ...
    def faulty(self, first: int, records: SourcedRecords) -> int | None: ...
    def token_counter(self, only_reference: bool) -> TokenCounter: ...
    def searched_text(self, record: Record) -> str: ...
    def forget(self) -> None: ...


class RowService:
    """Answers requests for rows, for several threads: one draws at a time."""

    def __init__(
        self, open_index: Callable[[], RowIndex], maker: RowMaker, notice: str | None = None
    ) -> None:
        """`notice` is what each answer says besides."""
        self._open_index = open_index
        self.row_index, self.maker = open_index(), maker
        self.notice = notice
        self.rows_by_finding: Mapping[str, Sequence[int]] = {ANY_FINDING: ()}
        """The rows that each finding of a report names, by the finding's name in the address"""
        self.background_count = self._make_background_count()
        self._drawing = threading.Lock()
        self._under_way, self._idle = 0, threading.Condition()
        self._closed = False
        self._kept: OrderedDict[int, list[TokenRow]] = OrderedDict()
        self._tokens = 0

    def start(self) -> None:
        """Index the rows in a thread. Whatever ends Python, `close` comes before."""
        atexit.register(self.close)
        self.row_index.start()

    def reload_if_changed(self) -> None:
        """Index the files again if they were changed."""
        with self._count_as_under_way(), self._drawing:
            # Under the drawing lock: no row of the old files is drawn while the new ones are
            # opened.
            if not self._closed and self.row_index.changed_files():
                before, self.row_index = self.row_index, self._open_index()
                self.background_count.stop()
                before.close()
                self.maker.forget()
                self.background_count = self._make_background_count()
                self._kept.clear()
                self._tokens = 0
                self.row_index.start()

    def rows(self, start: int, count: int) -> dict[str, Any]:
        """The token rows of `count` rows from `start` on, as JSON: see
        `truetune.report.page.json_of_one_examples_tokens`.
        """
        with self._count_as_under_way():
            # Wait a moment for the index; what is not there by then the page asks for again.
            self.row_index.wait(start + max(count, 1) - 1, ROW_WAIT_SECONDS)
            why = self._describe_changed_files()
            if why:
                return self._answer_with_rows_count_and_notice(
                    [row_without_tokens(None, why, row=row) for row in range(start, start + count)],
                    why,
                )
            with self._drawing, self.row_index.pause_indexing():
                return self._answer_with_rows_count_and_notice(
                    [row for rows in self._draw_rows(start, count) for row in rows]
                )

    def search(self, text: str, start: int) -> dict[str, Any]:
        """Search on from row `start` for one that holds the text; a step takes about half a second."""
        needles = json_and_csv_spellings_of_text(text)
        return self._search_for_a_while(start, lambda row: self._search_text_step(row, needles))

    def faulty(self, start: int) -> dict[str, Any]:
        """Search on from row `start` for a faulty one, which is not as it should be."""
        return self._search_for_a_while(start, self._search_faulty_step)

    def totals(self) -> dict[str, Any]:
        """The figures of all rows that are counted by now, as JSON; a first call starts the count."""
        self.background_count.start()
        counts, rows_of_kind = self.background_count.counts.joined_counts_and_rows_per_kind()
        files = self.row_index.rows_of_files()
        return {
            "rows": len(counts.tokens),
            "total": self.row_index.total,
            "done": self.background_count.is_done,
            "failure": self.background_count.failure,
            "tokens": int(counts.tokens.sum(dtype=np.int64)),
            "supervised": int(counts.supervised.sum(dtype=np.int64)),
            "roles": list(_totals_of_kinds(counts, rows_of_kind)),
            "file_count": len(files),
            "files": list(_totals_of_files(counts, files[:MAX_NAMED_FILES])),
        }

    def select(self, row_filter: RowFilter) -> dict[str, Any]:
        """The rows that a filter lists, with their figures, as JSON; `rows` are the numbers as
        32-bit integers in base64.

        Raises KeyError where a name of the filter is none of this data.
        """
        background, known = self.background_count, self.row_index.indexed
        background.start()
        counts, _ = background.counts.joined_counts_and_rows_per_kind()
        rows_of_file = range(known)
        if row_filter.file:
            files = self.row_index.rows_of_files()
            rows_of_file = {str(file.path): rows for file, rows in files}[row_filter.file]
        rows = select_rows(
            counts,
            row_filter,
            known,
            rows_by_finding=self.rows_by_finding,
            rows_of_file=rows_of_file,
        )
        counted = rows[rows < len(counts.tokens)]
        return {
            "rows": base64.b64encode(rows.astype("<u4").tobytes()).decode(),
            "tokens": int(counts.tokens[counted].sum(dtype=np.int64)),
            "supervised": int(counts.supervised[counted].sum(dtype=np.int64)),
            "done": background.is_done,
        }

    def _make_background_count(self) -> BackgroundCount:
        """The pass that counts the rows of the index that is open now."""
        return BackgroundCount(self.row_index, self.maker.token_counter, self._wait_until_idle)

    def _wait_until_idle(self) -> None:
        """Wait until no request is under way, or for a short time."""
        with self._idle:
            self._idle.wait_for(lambda: self._closed or not self._under_way, REST_SECONDS)

    def close(self) -> None:
        """Stop reading and drawing, and wait for what is under way.

        A thread that Python's end meets inside pyarrow or tokenizers ends the process.
        """
        self._closed = True
        self.row_index.close()
        self.background_count.stop()
        with self._idle:
            self._idle.wait_for(lambda: not self._under_way)
        # A request that was under way may have opened the files again.
        self.row_index.close()
        self.background_count.stop()
        atexit.unregister(self.close)

    @contextmanager
    def _count_as_under_way(self) -> Iterator[None]:
        """While this lasts, a request counts as under way, so that `close` waits for it."""
        with self._idle:
            self._under_way += 1
        try:
            yield
        finally:
            with self._idle:
                self._under_way -= 1
                self._idle.notify_all()

    def _search_for_a_while(self, start: int, step: SearchStep) -> dict[str, Any]:
        """Repeat a step of a search until it finds a row or the time is over. Raises DataError
        where the files were changed.
        """
        with self._count_as_under_way():
            why = self._describe_changed_files()
            if why:
                raise DataError(why)
            deadline, row, match = time.monotonic() + SEARCH_SECONDS, start, None
            while (
                match is None
                and not self._closed
                and time.monotonic() < deadline
                and self.row_index.wait(row, 0)
            ):
                match, row = step(row)
            total = self.row_index.total
            return {
                "row": match,
                "scanned": row,
                "done": match is not None or (total is not None and row >= total),
            }

    def _search_text_step(self, row: int, needles: Sequence[bytes]) -> tuple[int | None, int]:
        """(a row that holds one of the texts, if one does that is near `row`, where to continue)."""
        text, count = self.row_index.text_of_chunk_at(row), SEARCH_ROWS
        if text is not None:
            first, end, body, on_lines = text
            # bytes.lower() changes ASCII letters only, as `json_and_csv_spellings_of_text` expects.
            lowered = body.lower()
            # A whole chunk is passed over with one search: nearly all of them hold nothing.
            if not any(needle in lowered for needle in needles):
                return None, end
            if on_lines:
                line = first_row_of_lines_with_text(lowered, needles, row - first)
                return (None, end) if line is None else (first + line, first + line + 1)
            count = end - row
        records = self.row_index.records(row, count)
        for number, (_, record) in enumerate(records, row):
            # CSV and JSON over several lines: the bytes hold the text somewhere, and each row
            # must be read to know in which.
            spelled = self.maker.searched_text(record).encode().lower()
            if any(needle in spelled for needle in needles):
                return number, number + 1
        return None, row + len(records)

    def _search_faulty_step(self, row: int) -> tuple[int | None, int]:
        """(a row that is not as it should be, if one near `row` is, where to continue)."""
        records = self.row_index.records(row, CHECK_ROWS)
        with self._drawing:
            match = self.maker.faulty(row, records) if records else None
        return match, row + len(records) if match is None else match + 1

    def _describe_changed_files(self) -> str | None:
        """Which files were changed since the page was opened, as an error's text; None where none
        were.
        """
        changed = self.row_index.changed_files()
        return (
            f"{', '.join(changed)}: changed since this page was opened; load the page again"
            if changed
            else None
        )

    def _answer_with_rows_count_and_notice(
        self, rows: list[TokenRow], notice: str | None = None
    ) -> dict[str, Any]:
        """The JSON of an answer: the rows, how many are indexed, and a notice."""
        state = {"rows": rows, "total": self.row_index.total, "indexed": self.row_index.indexed}
        text = notice or self.notice
        return state | ({"notice": text} if text else {})

    def _draw_rows(self, start: int, count: int) -> Iterator[list[TokenRow]]:
        """The token rows from `start` on, those that are kept and those drawn now; fewer rows where
        they are long.
        """
        wanted = range(start, max(start, min(start + count, self.row_index.indexed)))
        records = (
            []
            if all(row in self._kept for row in wanted)
            else self.row_index.records(start, len(wanted))
        )
        tokens = 0
        for row in wanted:
            if self._closed:
                return
            if row in self._kept:
                self._kept.move_to_end(row)
                rows = self._kept[row]
            # The index knew more rows than could be read now: the page asks again.
            elif row - start >= len(records):
                return
            else:
                # One row at a time, so that a long one ends the answer before the next is
                # drawn.
                (drawn,) = self.maker.rows(row, [records[row - start]])
                rows = [cut_row_to_limit(one) for one in drawn]
                self._keep_drawn_and_drop_oldest(row, rows)
            yield rows
            tokens += _weight_of_rows_in_tokens(rows)
            # An answer of very long rows ends early; the page continues behind it.
            if tokens > MAX_KEPT_TOKENS:
                return

    def _keep_drawn_and_drop_oldest(self, row: int, rows: list[TokenRow]) -> None:
        """Keep the rows that were drawn, and drop the oldest where they are too many."""
        self._tokens += _weight_of_rows_in_tokens(rows) - _weight_of_rows_in_tokens(
            self._kept.pop(row, [])
        )
        self._kept[row] = rows
        while self._tokens > MAX_KEPT_TOKENS:
            self._tokens -= _weight_of_rows_in_tokens(self._kept.popitem(last=False)[1])


def json_and_csv_spellings_of_text(text: str) -> list[bytes]:
    """How JSON and CSV may spell a text, as bytes whose ASCII letters are small."""
    forms = {
        form
        for case in (text, text.lower(), text.upper(), text.capitalize())
        for form in (
            case,
            json.dumps(case)[1:-1],
            json.dumps(case, ensure_ascii=False)[1:-1],
            case.replace('"', '""'),
        )
    }
    # A file may hold any of them, and the user typed one: JSON escapes what is no ASCII or
    # keeps it, CSV doubles quotes.
    return sorted({form.encode("utf-8", "surrogatepass").lower() for form in forms})


def first_row_of_lines_with_text(body: bytes, needles: Sequence[bytes], skipped: int) -> int | None:
    """The first row of some lines that holds one of the texts.

    Args:
        body: whole lines, ASCII letters small.
        needles: the texts, as `json_and_csv_spellings_of_text` gives them.
        skipped: so many rows at the beginning are passed over.

    Returns:
        The number of the row within `body`, from 0; None where none holds a text.
    """
    # Blank lines are no rows, as in the reader.
    rows = (line for line in body.split(b"\n") if line.strip())
    return next(
        (i for i, line in enumerate(rows) if i >= skipped and any(n in line for n in needles)), None
    )


def _totals_of_kinds(counts: RowCounts, rows_of_kind: Ints) -> Iterator[dict[str, Any]]:
    """The figures of each kind of token that is there: key, label, rows, tokens, supervised."""
    for number, (key, label) in enumerate(KIND_LABELS.items()):
        supervised, context = counts.ledger[number].tolist()
        if supervised or context:
            yield {
                "key": key,
                "label": label,
                "rows": int(rows_of_kind[number]),
                "tokens": supervised + context,
                "supervised": supervised,
            }


def _totals_of_files(
    counts: RowCounts, files: Sequence[tuple[DataFile, range]]
) -> Iterator[dict[str, Any]]:
    """The figures of files: name, rows, tokens, supervised."""
    for file, rows in files:
        part = slice(rows.start, rows.stop)
        yield {
            "name": str(file.path),
            "rows": len(rows),
            "tokens": int(counts.tokens[part].sum(dtype=np.int64)),
            "supervised": int(counts.supervised[part].sum(dtype=np.int64)),
        }


def _weight_of_rows_in_tokens(rows: list[TokenRow]) -> int:
    """The weight of rows: their tokens, and 50 more for what else each row holds."""
    # Fifty for what else a row holds; chosen, not measured.
    return sum(50 + len(row["ids"]) for row in rows)
