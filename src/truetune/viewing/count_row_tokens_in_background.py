"""Counts the tokens of all rows in a thread, while rows are looked at.

The pass renders and encodes each row as `truetune check` does, some thousand rows a second, with
an engine of its own, so that it never waits for a row that is drawn, nor keeps one waiting: it
rests while a request is answered. A shortcut of the engine that is proved wrong voids what was
counted, and the pass begins again without shortcuts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from truetune.encoding.render_and_encode_in_two_threads import retry_without_shortcuts
from truetune.errors import TruetuneError
from truetune.viewing.row_index import RowIndex
from truetune.viewing.token_counts_of_rows import GrowingRowCounts, TokenCounter

ROWS_PER_STEP = 128
"""Rows that are counted at once. Chosen, not measured: some 50 ms, for which a request may have to
wait for a processor."""
INDEX_WAIT_SECONDS = 0.5
"""Seconds that the pass waits for a row to be found, before it checks that it is not stopped"""


class BackgroundCount:
    """The pass that counts the rows of one index."""

    def __init__(
        self,
        index: RowIndex,
        open_counter: Callable[[bool], TokenCounter],
        rest: Callable[[], None],
    ) -> None:
        """Prepare the pass; `start` begins it.

        Args:
            index: finds and reads the rows.
            open_counter: makes what counts; with True, without shortcuts.
            rest: returns once no request is answered, or after a short time.
        """
        self.counts = GrowingRowCounts()
        self.is_done = False
        self.failure: str | None = None
        """Why the pass ended before all rows were counted"""
        self._index, self._open_counter, self._rest = index, open_counter, rest
        self._is_stopped, self._starting = False, threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin the pass in a thread; a second call does nothing."""
        with self._starting:
            if self._thread is None and not self._is_stopped:
                self._thread = threading.Thread(
                    target=self.run, name="truetune row counts", daemon=True
                )
                self._thread.start()

    def run(self) -> None:
        """Count all rows, in this thread."""
        try:
            retry_without_shortcuts(self._count_all)
        except TruetuneError as error:
            self.failure = str(error)
        # The page works without these figures: a defect of ours is said there, and no thread ends
        # in silence.
        except Exception as error:
            self.failure = f"the rows can't be counted: {error!r}; please report it"

    def stop(self) -> None:
        """End the pass, and wait for it."""
        with self._starting:
            self._is_stopped = True
        if self._thread is not None:
            self._thread.join()

    def _count_all(self, only_reference: bool) -> None:
        """Count all rows from the first on. Raises FastPathError or another TruetuneError."""
        self.counts.clear()
        counter = self._open_counter(only_reference)
        row = 0
        while not self._is_stopped:
            # The last row of a step that is not full is only there once all rows are found.
            self._index.wait(row + ROWS_PER_STEP - 1, INDEX_WAIT_SECONDS)
            self._rest()
            records = self._index.records(row, ROWS_PER_STEP, for_count=True)
            if records:
                self.counts.add(counter.count(row, records))
                row += len(records)
            elif self._index.total is not None and row >= self._index.total:
                counter.prove()
                self.is_done = True
                return
