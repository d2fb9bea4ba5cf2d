"""What moved, on a terminal and as JSON."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from truetune.checkpoint.movement import Manifest, Movement, total
from truetune.checkpoint.movement_json import MOST_ROWS, new_tokens_of
from truetune.checks.movement import MovementReport
from truetune.report.draw_by_kind import draw_more
from truetune.report.text import many, visible


@draw_more.register
def _draw(report: MovementReport, console: Console, verbose: bool) -> None:
    render_movement(report.manifest, console)


def render_movement(found: Manifest, console: Console) -> None:
    """Kinds of tensors, the least moved first; then the rows of the embeddings."""
    console.print(kinds_table(found))
    for tensor in found.tensors:
        for line in _rows(found, tensor):
            console.print(Text(visible(line)), soft_wrap=True)
    for text in found.left_out[:MOST_ROWS]:
        console.print(Text(visible(f"not compared: {text}"), style="dim"), soft_wrap=True)
    if len(found.left_out) > MOST_ROWS:
        console.print(Text(f"... and {len(found.left_out) - MOST_ROWS:,} more", style="dim"))
    console.print()


def moved(found: Manifest) -> str:
    """The least and the most moved kind, and what is left of an adapter, in one sentence."""
    by_kind = {kind: _change(group) for kind, group in found.by_kind.items()}
    known = {
        kind.removesuffix(".weight"): change
        for kind, change in by_kind.items()
        if math.isfinite(change)
    }
    if not known:
        return "No two tensors could be compared."
    ends = [pick(known, key=known.__getitem__) for pick in (min, max)]
    low, high = (f"{kind} ({known[kind]:.2%})" for kind in ends)
    same = sum(t.same for t in found.tensors) / max(1, sum(t.values for t in found.tensors))
    left = f"; {found.merged.kept:.1%} of the adapter's change is there" if found.merged else ""
    return (
        f"{many(len(found.tensors), 'tensor')}: {same:.1%} of the values are identical; the rest"
        f" moved by their size from {low} to {high}{left}."
    )


def kinds_table(found: Manifest) -> Table:
    """Share of bit-identical values and relative change by kind; with an adapter, what is left of its change."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("kind", overflow="fold")
    for title in (
        "tensors",
        "identical",
        "relative change",
        *(("adapter kept", "rounded") if found.adapter else ()),
    ):
        table.add_column(title, justify="right", no_wrap=True)
    for kind, group in found.by_kind.items():
        same = sum(t.same for t in group) / max(1, sum(t.values for t in group))
        cells = [f"{len(group):,}", f"{same:.1%}", _figure(_change(group))]
        if found.adapter:
            kept = total(group)
            cells += [_percent(kept.kept), _percent(max(0.0, 1 - kept.best))] if kept else ["", ""]
        table.add_row(
            Text(visible(kind.removesuffix(".weight")), style="red" if same == 1 else ""), *cells
        )
    return table


def _rows(found: Manifest, tensor: Movement) -> Iterator[str]:
    if tensor.rows is None:
        return
    same = int(tensor.rows.same.sum())
    yield f"{tensor.name}: {same:,} of {many(len(tensor.rows.same), 'row')} identical"
    for text, id in new_tokens_of(found, tensor)[:MOST_ROWS]:
        state = (
            "as before"
            if tensor.rows.same[id]
            else f"change {_figure(float(tensor.rows.change[id]))}"
        )
        yield f"  new token {text} ({id:,}): {state}"


def _change(group: Iterable[Movement]) -> float:
    """Root of the mean square, each tensor by its values"""
    known = [(t.change, t.values) for t in group if math.isfinite(t.change)]
    return (
        math.sqrt(sum(c * c * n for c, n in known) / sum(n for _, n in known))
        if known
        else math.nan
    )


def _figure(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else "-"


def _percent(value: float) -> str:
    return f"{value:.1%}" if math.isfinite(value) else "-"


@contextmanager
def comparing(*, off: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A bar on stderr, on a terminal alone: values done, and the time left."""
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
