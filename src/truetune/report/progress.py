"""Progress bars on stderr, on a terminal alone."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from truetune.checks.run import Progress as Checking
from truetune.encoding.encode_run import Progress as Encoding


@contextmanager
def checking(*, off: bool, verb: str = "checking") -> Iterator[Checking | None]:
    """Rows, and the time left; `verb` says what is done with them."""
    if off or not sys.stderr.isatty():
        yield None
        return
    with _bar(TextColumn(verb), TextColumn("{task.fields[rows]:,} rows")) as bar:
        task = bar.add_task("", total=None, rows=0)
        yield lambda rows, done, total: bar.update(task, completed=done, total=total, rows=rows)


@contextmanager
def linting(*, off: bool) -> Iterator[Callable[[int, int], object] | None]:
    """Files, and the time left."""
    if off or not sys.stderr.isatty():
        yield None
        return
    with _bar(
        TextColumn("reading"), TextColumn("{task.completed:,} of {task.total:,} files")
    ) as bar:
        task = bar.add_task("", total=1)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def encoding(*, off: bool) -> Iterator[Encoding | None]:
    """Rows and tokens, both a second too, and the time left."""
    if off or not sys.stderr.isatty():
        yield None
        return
    with _bar(TextColumn("{task.description}"), TextColumn("{task.fields[speed]}")) as bar:
        task, began, what = bar.add_task("", total=None, speed=""), 0.0, ""

        def tell(now: str, done: int, total: int, rows: int, tokens: int) -> None:
            nonlocal began, what
            if now != what:
                began, what = time.perf_counter(), now
                bar.reset(task)
            seconds = max(time.perf_counter() - began, 0.001)
            speed = (
                f"{rows:,} rows, {rows / seconds:,.0f} rows/s, {tokens / seconds:,.0f} tokens/s"
                if rows
                else ""
            )
            bar.update(task, description=now, completed=done, total=total, speed=speed)

        yield tell


@contextmanager
def waiting(*, off: bool) -> Iterator[Callable[[str], object]]:
    """A line that says what is waited for, and is gone at the end."""
    console = Console(stderr=True)
    if off or not console.is_terminal:
        yield lambda line: None
        return
    with console.status("") as status:
        yield lambda line: status.update(Text(line))


def _bar(before: ProgressColumn, after: ProgressColumn) -> Progress:
    return Progress(
        before,
        BarColumn(),
        after,
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
