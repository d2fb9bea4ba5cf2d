"""Reads how long the rows are prepared before a training, from the progress bars of `datasets`.

`Map (num_proc=8):  4%|...| 81234/2000000 [03:10<1:14:55, 426 examples/s]` says how many rows there are, how fast they
are prepared and by how many workers. Under torchrun each process draws such bars into one output: they then go back
again and again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from truetune.logs.console.parse_progress_bars import ProgressBar

PREPARES = re.compile(
    r"(?P<what>\b(?:Map|Filter|Running tokenizer|Converting format|Tokeniz\w{1,5}|Encoding|Preprocessing|Applying)\b"
    r"[^%|(]{0,60}?)\s?(?:\(num_proc=(?P<workers>\d{1,4})\))?:? +\d{1,3}%\|"
)
MIN_DRAWINGS = 8
"""Of a bar, from which on going back says something; one drawing may be torn. Chosen, not measured"""
SHARE_BACK = 0.5
"""Of the drawings that do not advance: two processes that take turns have half of them, and one has next to none"""


@dataclass(frozen=True, slots=True)
class RowPreparation:
    """The longest preparation of rows in an output; zeros where there is none."""

    what: str = ""
    """`Map`, `Running tokenizer on dataset`"""
    rows: int = 0
    rows_per_second: float = 0.0
    workers: int = 1
    """As num_proc says"""
    by_each_process: bool = False
    """Several processes draw the bar: each prepares all rows"""
    line: int = 0
    text: str = ""

    @property
    def estimated_total_seconds(self) -> float:
        """The seconds of the whole preparation, at the pace of its last drawing."""
        return self.rows / self.rows_per_second if self.rows_per_second else 0.0


@dataclass(slots=True)
class PreparationReader:
    """Takes the bars of one output; keeps the preparation that takes longest."""

    _longest: RowPreparation = RowPreparation()
    _key: tuple[str, int] = ("", 0)
    """The bar that is being drawn: what it prepares, and how many rows"""
    _drawings: int = 0
    _back: int = 0
    """Drawings that did not advance"""
    _done: int = 0

    def add_bar(self, text: str, bar: ProgressBar, number: int) -> None:
        """Read one drawing of a bar, at its line."""
        match = PREPARES.search(text) if bar.is_described else None
        if match is None or not bar.gone or not bar.done:
            return
        key = (match["what"].strip(), bar.total)
        if key != self._key:
            self._key, self._drawings, self._back, self._done = key, 0, 0, 0
        self._drawings += 1
        self._back += bar.done <= self._done
        self._done = bar.done
        prepared = RowPreparation(
            key[0],
            bar.total,
            bar.done / bar.gone,
            int(match["workers"] or 1),
            self._drawings >= MIN_DRAWINGS and self._back >= SHARE_BACK * self._drawings,
            number,
            text.strip()[:200],
        )
        # A later drawing of the same bar knows its pace better.
        is_same = (self._longest.what, self._longest.rows) == key
        if is_same or prepared.estimated_total_seconds > self._longest.estimated_total_seconds:
            self._longest = prepared

    def finish(self) -> RowPreparation:
        """The preparation of rows that takes longest."""
        return self._longest
