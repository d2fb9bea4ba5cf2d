"""What a rehearsal's miniature model answered, and which faults the user's own logs would have
shown, on a terminal.

A rehearsal memorises a few rows on a shrunken model and asks for them again. The table shows what came out beside
what should have: a loss near zero proves nothing about that. A mutation score repeats it with one fault at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from truetune.rehearsal.mutation_score import MutationTest
from truetune.rehearsal.rehearsal_report import RehearsalReport
from truetune.report.draw_what_each_kind_of_report_adds import draw_details_by_kind
from truetune.report.terminal_output import shorten_to_one_line
from truetune.report.visible_text import escape_invisible_characters


@draw_details_by_kind.register
def draw_rehearsal(report: RehearsalReport, console: Console, verbose: bool) -> None:
    """Draw a rehearsal: what the miniature model is and did, and a table of its rows or pairs."""
    console.print(Text(escape_invisible_characters(f"miniature: {report.miniature}")))
    if report.losses:
        console.print(
            Text(
                f"memorised in {len(report.losses)} steps: loss {report.losses[0]:.3g} to "
                f"{report.losses[-1]:.3g}"
            )
        )
    if report.recited:
        console.print(_answer_table(report))
    if report.pairs:
        console.print(_pair_margin_table(report))
    for line in _reward_lines(report.rewards):
        console.print(Text(escape_invisible_characters(line)))
    console.print()
    if report.mutation is not None:
        render_mutation_test(report.mutation, console)


def render_mutation_test(mutation: MutationTest, console: Console) -> None:
    """Draw a mutation test: one line a fault, the score, and the faults that were not tried."""
    table = Table(box=None, pad_edge=False)
    pairs = any(mutant.stopped is None for mutant in mutation.mutants)
    # Pairs train no answers that could be recited: there the margin is what must grow.
    counted = ("margin grew",) if pairs else ("recited", "stopped")
    for name in ("fault", "loss", "your logs\nshow it", *counted, "truetune"):
        table.add_column(name, overflow="fold")
    for mutant in mutation.mutants:
        counts = [
            f"{count} of {mutant.total}"
            for count in (mutant.recited, mutant.stopped)
            if count is not None
        ]
        table.add_row(
            mutant.name,
            f"{mutant.loss:.3g}",
            _cell_of_what_showed_fault(mutant.shown),
            *counts,
            _cell_of_what_showed_fault(", ".join(mutant.rules)),
        )
    console.print(
        Text(
            f"mutation: faults in {mutation.steps} steps each; loss without one {mutation.loss:.3g}"
        )
    )
    if mutation.mutants:
        console.print(table)
        console.print(Text(mutation.describe_score()))
    for name, why in mutation.skipped:
        console.print(Text(escape_invisible_characters(f"not tried: {name}: {why}")))
    console.print()


def _cell_of_what_showed_fault(text: str) -> Text:
    """A table cell of what showed a fault, in green; a red `no` where nothing did."""
    return (
        Text(escape_invisible_characters(text), style="green")
        if text
        else Text("no", style="bold red")
    )


def _answer_table(report: RehearsalReport) -> Table:
    """A table of what the miniature says for each row, beside what it should."""
    table = Table(box=None, pad_edge=False)
    for name in ("row", "recited", "stopped", "answer", "should be"):
        table.add_column(name)
    for row in report.recited:
        # An answer with text before the reference is shown from the reference on: the part in
        # question would else be cut off.
        texts = (row.said[max(row.said.find(row.reference), 0) :], row.reference)
        table.add_row(
            "" if row.row is None else str(row.row),
            _yes_or_no(row.recited),
            _yes_or_no(row.stopped),
            *(Text(shorten_to_one_line(text, 60)) for text in texts),
        )
    return table


def _pair_margin_table(report: RehearsalReport) -> Table:
    """A table of the margin of each pair before and after training."""
    table = Table(box=None, pad_edge=False)
    for name in ("margin before", "after", "is taught", "rather than"):
        table.add_column(name)
    for pair in report.pairs:
        texts = (pair.chosen, pair.rejected)
        table.add_row(
            f"{pair.before:.1f}",
            f"{pair.after:.1f}",
            *(Text(shorten_to_one_line(text, 50)) for text in texts),
        )
    return table


def _reward_lines(rewards: Mapping[str, Any]) -> Iterator[str]:
    """What a training by rewards made of golden rollouts, and of a reward that can be learned; nothing of others."""
    own, learned = rewards.get("own") or {}, rewards.get("learned") or {}
    if "nothing" in own:
        yield f"own reward: not tried: {own['nothing']}"
    elif own:
        yield (
            f"own reward: right answers get {own['right']:.3g}, wrong ones {own['wrong']:.3g}"
            f" (as {own['form']})"
        )
    if own.get("margins"):
        before, after = (
            sum(pair[place] for pair in own["margins"]) / len(own["margins"]) for place in (0, 1)
        )
        yield (
            f"golden rollouts: right against wrong answers from {before:.1f} to {after:.1f} nats in"
            f" {own['steps']} steps"
        )
    if learned.get("rewards"):
        given = learned["rewards"]
        yield (
            f"a reward that can be learned: from {given[0]:.2f} to {given[-1]:.2f} in"
            f" {len(given)} steps; the policy's own share from {learned['policy'][0]:.2f} to"
            f" {learned['policy'][-1]:.2f}"
        )


def _yes_or_no(value: bool) -> Text:
    """`yes` in green or `no` in red."""
    return Text("yes", style="green") if value else Text("no", style="bold red")
