"""Progress bars on stderr, on a terminal alone: of a check, of files, of encoding, of weights, of answers.

Each is a context manager that yields the callback which a long function takes, or None where nothing is to be drawn
(--quiet, a pipe, a log). So no function that works knows of rich. They write to stderr: stdout is for results,
which may be piped. Bars vanish at the end, for the report says the same with figures.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from truetune.report.visible_text import escape_invisible_characters

if TYPE_CHECKING:
    from truetune.checks.check_data import Progress as CheckProgress
    from truetune.encoding.encode_data_set import Progress as EncodeProgress

MAX_BAR_CHARACTERS = 40
"""Of what is done, beside the bar"""


@contextmanager
def checking_bar(*, off: bool, verb: str = "checking") -> Iterator[CheckProgress | None]:
    """A progress bar of rows with the time left; `verb` says what is done with them."""
    if off or not sys.stderr.isatty():
        yield None
        return
    # The total is in bytes, and so the time left is right for rows of any length; rows are what
    # a user counts.
    with _new_bar(TextColumn(verb), TextColumn("{task.fields[rows]:,} rows")) as bar:
        task = bar.add_task("", total=None, rows=0)
        yield lambda rows, done, total: bar.update(task, completed=done, total=total, rows=rows)


@contextmanager
def linting_bar(*, off: bool) -> Iterator[Callable[[int, int], object] | None]:
    """A progress bar of files with the time left."""
    if off or not sys.stderr.isatty():
        yield None
        return
    with _new_bar(
        TextColumn("reading"), TextColumn("{task.completed:,} of {task.total:,} files")
    ) as bar:
        task = bar.add_task("", total=1)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def encoding_bar(*, off: bool) -> Iterator[EncodeProgress | None]:
    """A progress bar of rows and tokens, with both a second and the time left."""
    if off or not sys.stderr.isatty():
        yield None
        return
    with _new_bar(TextColumn("{task.description}"), TextColumn("{task.fields[speed]}")) as bar:
        task, began, what = bar.add_task("", total=None, speed=""), 0.0, ""

        def tell(now: str, done: int, total: int, rows: int, tokens: int) -> None:
            nonlocal began, what
            # A new stage has a speed and a time left of its own: those of the stage before
            # would be wrong for minutes.
            if now != what:
                began, what = time.perf_counter(), now
                bar.reset(task)
            # A first call within the same tick of the clock must not divide by zero.
            seconds = max(time.perf_counter() - began, 0.001)
            speed = (
                f"{rows:,} rows, {rows / seconds:,.0f} rows/s, {tokens / seconds:,.0f} tokens/s"
                if rows
                else ""
            )
            bar.update(task, description=now, completed=done, total=total, speed=speed)

        yield tell


@contextmanager
def comparison_bar(*, off: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar of compared weight values with the time left."""
    if off or not sys.stderr.isatty():
        yield None
        return
    console = Console(stderr=True)
    with Progress(
        TextColumn("comparing"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    ) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, whole: bar.update(task, completed=done, total=whole)


@contextmanager
def generation_bar(*, off: bool) -> Iterator[Callable[[str, int, int], None] | None]:
    """A progress bar of answers that are generated."""
    if off or not sys.stderr.isatty():
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task, what = bar.add_task("loading", total=None), ""

        def tell(now: str, done: int, total: int) -> None:
            nonlocal what
            if now != what:
                bar.reset(task)
                what = now
            bar.update(
                task,
                description=escape_invisible_characters(now[-MAX_BAR_CHARACTERS:]),
                completed=done,
                total=total,
            )

        yield tell


@contextmanager
def waiting_line(*, off: bool) -> Iterator[Callable[[str], object]]:
    """A line on the terminal that says what is waited for, and is gone at the end."""
    console = Console(stderr=True)
    if off or not console.is_terminal:
        # Callers say what they wait for without asking whether anybody sees it.
        yield lambda line: None
        return
    with console.status("") as status:
        yield lambda line: status.update(Text(line))


def _new_bar(before: ProgressColumn, after: ProgressColumn) -> Progress:
    """A progress bar on stderr that vanishes at its end, with its own columns before and after the
    bar.
    """
    return Progress(
        before,
        BarColumn(),
        after,
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
