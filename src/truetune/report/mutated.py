"""A mutation score, on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from truetune.rehearsal.mutate import Mutation
from truetune.report.text import visible


def render_mutation(found: Mutation, console: Console) -> None:
    """One line a fault, the score, and the faults that were not tried."""
    table = Table(box=None, pad_edge=False)
    pairs = any(mutant.stopped is None for mutant in found.mutants)
    counted = ("margin grew",) if pairs else ("recited", "stopped")
    for name in ("fault", "loss", "your logs\nshow it", *counted, "truetune"):
        table.add_column(name, overflow="fold")
    for mutant in found.mutants:
        counts = [
            f"{count} of {mutant.total}"
            for count in (mutant.recited, mutant.stopped)
            if count is not None
        ]
        table.add_row(
            mutant.name,
            f"{mutant.loss:.3g}",
            _seen(mutant.shown),
            *counts,
            _seen(", ".join(mutant.rules)),
        )
    console.print(
        Text(f"mutation: faults in {found.steps} steps each; loss without one {found.loss:.3g}")
    )
    if found.mutants:
        console.print(table)
        console.print(Text(found.sentence()))
    for name, why in found.skipped:
        console.print(Text(visible(f"not tried: {name}: {why}")))
    console.print()


def _seen(text: str) -> Text:
    return Text(visible(text), style="green") if text else Text("no", style="bold red")
