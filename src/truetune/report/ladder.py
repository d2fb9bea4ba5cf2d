"""The ladder of an adapter's effect, for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from truetune.report.shown import outcome
from truetune.report.text import drawn, many, visible

if TYPE_CHECKING:
    from truetune.serving.ladder import Ladder, Rung


def ladder_as_text(ladder: Ladder) -> str:
    """As plain text, 100 columns wide."""
    return drawn(lambda console: render_ladder(ladder, console))


def render_ladder(ladder: Ladder, console: Console, *, quiet: bool = False) -> None:
    """A line for each rung, and what lost the effect; `quiet`: that alone."""
    if not quiet:
        _rungs(ladder, console)
    _end(ladder, console)


def ladder_json(ladder: Ladder) -> dict[str, Any]:
    """The ladder as plain values, with what a page of it needs."""
    culprit, unmeasured = ladder.culprit, ladder.unmeasured
    return (
        ladder.as_dict()
        | outcome(
            ("adapter", ladder.adapter),
            (
                f"The adapter's effect is lost at: {culprit.name}."
                if culprit
                else (
                    f"Not known: {', '.join(rung.name for rung in unmeasured)} could not be"
                    " measured."
                    if unmeasured
                    else f"The adapter's effect is the same on {many(len(ladder.rungs), 'rung')}."
                )
            ),
            (
                ladder.remedy
                if culprit
                else "ask the server itself: truetune serve-check ADAPTER --endpoint URL"
            ),
            lambda console: _rungs(ladder, console),
        )
        | {"failed": culprit is not None or bool(unmeasured)}
    )


def _rungs(ladder: Ladder, console: Console) -> None:
    size = ladder.rungs[0].effect.size if ladder.rungs and ladder.rungs[0].effect else 0.0
    _say(
        console,
        f"{many(ladder.prompts, 'prompt')}, {many(ladder.places, 'token')}; the adapter changes"
        f" their log-probabilities by {size:.3g} nats (root mean square)",
    )
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("rung")
    for title in ("effect there", "cosine", "max off, nats"):
        table.add_column(title, justify="right", no_wrap=True)
    for rung in ladder.rungs:
        table.add_row(*_cells(rung))
    console.print(table)
    for rung in ladder.rungs:
        if rung.note:
            _say(console, f"{rung.name}: {rung.note}", "dim")


def _end(ladder: Ladder, console: Console) -> None:
    culprit = ladder.culprit
    if culprit is None and ladder.unmeasured:
        names = ", ".join(rung.name for rung in ladder.unmeasured)
        _say(
            console,
            f"not known: {names} could not be measured; for a server, truetune serve-check compares"
            " answers",
            "bold yellow",
        )
    elif culprit is None:
        _say(
            console, f"the effect is the same on every rung ({ladder.seconds:.1f} s)", "bold green"
        )
    else:
        _say(console, f"lost at: {culprit.name} ({ladder.seconds:.1f} s)", "bold red")
        _say(console, f"   = help: {ladder.remedy}")


def _cells(rung: Rung) -> tuple[Text, ...]:
    found = rung.effect
    style = "bold red" if rung.fault or (found and found.lost) else ""
    name = Text(visible(rung.name), style=style)
    if found is None:
        return name, Text("-"), Text("-"), Text("-")
    figures = (f"{found.kept:.1%}", f"{found.cosine:.4f}", f"{found.largest:.2g}")
    return name, *(Text(figure, style=style) for figure in figures)


def _say(console: Console, text: str, style: str = "") -> None:
    console.print(Text(visible(text), style=style), soft_wrap=True)
