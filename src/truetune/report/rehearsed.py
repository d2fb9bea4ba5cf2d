"""How a miniature answered, on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from truetune.rehearsal.report import RehearsalReport
from truetune.report.draw_by_kind import draw_more
from truetune.report.mutated import render_mutation
from truetune.report.text import visible


@draw_more.register
def draw(report: RehearsalReport, console: Console, verbose: bool) -> None:
    """The miniature, and a table of the rows or pairs."""
    console.print(Text(visible(f"miniature: {report.miniature}")))
    if report.losses:
        console.print(
            Text(
                f"memorised in {len(report.losses)} steps: loss {report.losses[0]:.3g} to "
                f"{report.losses[-1]:.3g}"
            )
        )
    if report.recited:
        console.print(_answers(report))
    if report.pairs:
        console.print(_pairs(report))
    console.print()
    if report.mutation is not None:
        render_mutation(report.mutation, console)


def _answers(report: RehearsalReport) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("row", "recited", "stopped", "answer", "should be"):
        table.add_column(name)
    for row in report.recited:
        said = (row.said[max(row.said.find(row.reference), 0) :], row.reference)
        table.add_row(
            "" if row.row is None else str(row.row),
            _yes(row.recited),
            _yes(row.stopped),
            *(Text(_short(text, 60)) for text in said),
        )
    return table


def _pairs(report: RehearsalReport) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("margin before", "after", "is taught", "rather than"):
        table.add_column(name)
    for pair in report.pairs:
        texts = (pair.chosen, pair.rejected)
        table.add_row(
            f"{pair.before:.1f}", f"{pair.after:.1f}", *(Text(_short(text, 50)) for text in texts)
        )
    return table


def _short(text: str, length: int) -> str:
    text = visible(" ".join(text.split()))
    return text if len(text) <= length else text[: length - 3] + "..."


def _yes(value: bool) -> Text:
    return Text("yes", style="green") if value else Text("no", style="bold red")
