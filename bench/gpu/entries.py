"""Entry: one measurement of the GPU bench; and how a section makes one without being ended by its failure."""

from __future__ import annotations

import contextlib
import gc
import json
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal

Value = str | int | float | bool | None
Status = Literal["passed", "failed", "measured", "not run", "error"]
"""passed and failed: compared with what must hold. measured: a figure without a verdict. not run: the note says why.
error: the measurement itself raised."""

MAX_NOTE = 400
"""Characters of an error's text that a table can show"""


@dataclass(frozen=True)
class Entry:
    """One thing that was measured."""

    section: str
    name: str
    status: Status
    figures: Mapping[str, Value] = field(default_factory=dict)
    """Column -> value; the unit stands in the column's name"""
    note: str = ""
    text: str = ""
    """The whole of what was printed, where a program's output is the result"""
    seconds: float = 0.0
    """To measure it"""

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class Budget:
    """How much time a section has."""

    ends: float
    """time.monotonic() at which it has to be done"""

    @classmethod
    def of(cls, seconds: float) -> Budget:
        """A budget that begins now."""
        return cls(time.monotonic() + seconds)

    @property
    def left(self) -> float:
        """Seconds"""
        return self.ends - time.monotonic()


def measure_guarded(
    section: str, name: str, budget: Budget, expected_s: float, measure: Callable[[], Entry]
) -> Entry:
    """The entry that `measure` gives; one that names the reason where it raises or the time is too short.

    Args:
        section: of the entry.
        name: of the entry, where `measure` does not come to give one.
        budget: of the section.
        expected_s: seconds that it takes on the card; it is not begun with less.
        measure: makes the entry.
    """
    if budget.left < expected_s:
        return Entry(section, name, "not run", note="the time of the section was used up")
    started = time.monotonic()
    try:
        entry = measure()
    # Whatever one measurement raises (out of memory, a missing kernel) must not stop the next.
    except Exception as error:
        entry = error_entry(section, name, error)
    free_memory()
    return replace(entry, seconds=round(time.monotonic() - started, 2))


def error_entry(section: str, name: str, error: BaseException) -> Entry:
    """What an exception looks like in the results: its last line in the note, its traceback in the text."""
    note = f"{type(error).__name__}: {error}".replace("\n", " ")[:MAX_NOTE]
    text = "".join(traceback.format_exception(error))
    # The traceback's frames hold the model and its activations on the card until they are dropped.
    error.__traceback__ = None
    return Entry(section, name, "error", note=note, text=text[-8000:])


def free_memory() -> None:
    """Give back what the last measurement left on the card."""
    import torch

    if torch.cuda.is_available():
        gc.collect()
        # After a device-side assert every call raises; the entries that follow say so.
        with contextlib.suppress(RuntimeError):
            torch.cuda.empty_cache()


def append_entry(path: Path, entry: Entry) -> None:
    """Write an entry behind those of a file, at once: a killed section keeps what it had measured."""
    with path.open("a", encoding="utf-8") as file:
        file.write(entry.to_json() + "\n")
        file.flush()


def read_entries(path: Path) -> list[Entry]:
    """The entries of a file; a half-written last line is left out."""
    if not path.is_file():
        return []
    entries = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            entries.append(Entry(**json.loads(line)))
        except ValueError:
            continue
    return entries
