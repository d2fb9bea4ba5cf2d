"""The ladder of an adapter's effect (adapter, merged, exported, served), drawn for a terminal and a
page.

Each stage is compared with the one before by log-probabilities of the same tokens; the first that lost the effect is
named with its remedy. The figures stay in the table, so that a reader can doubt the verdict.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from truetune.report.record_terminal_drawing_as_tables import page_values_of_plan_ladder_or_merge
from truetune.report.terminal_output import borderless_table, print_visible
from truetune.report.visible_text import count_noun, draw_as_text, escape_invisible_characters

if TYPE_CHECKING:
    from truetune.serving.compare_adapter_forms import Ladder, LadderStage


def ladder_as_text(ladder: Ladder) -> str:
    """The ladder drawn as plain text, 100 columns wide."""
    return draw_as_text(lambda console: render_ladder(ladder, console))


def render_ladder(ladder: Ladder, console: Console, *, quiet: bool = False) -> None:
    """Draw a line for each stage, and which stage lost the effect; `quiet`: only the latter."""
    if not quiet:
        _print_measured_stages_with_notes(ladder, console)
    _print_where_effect_is_lost(ladder, console)


def ladder_page_values(ladder: Ladder) -> dict[str, Any]:
    """The ladder as plain values, with what a page of it needs."""
    culprit, unmeasured = ladder.culprit, ladder.unmeasured
    return (
        ladder.as_dict()
        | page_values_of_plan_ladder_or_merge(
            ("adapter", ladder.adapter),
            (
                f"The adapter's effect is lost at: {culprit.name}."
                if culprit
                else (
                    f"Not known: {', '.join(stage.name for stage in unmeasured)} could not be"
                    " measured."
                    if unmeasured
                    else f"The adapter's effect is the same on {count_noun(len(ladder.rungs), 'stage')}."
                )
            ),
            (
                ladder.remedy
                if culprit
                else "ask the server itself: truetune serve-check ADAPTER --endpoint URL"
            ),
            lambda console: _print_measured_stages_with_notes(ladder, console),
        )
        | {"failed": culprit is not None or bool(unmeasured)}
    )


def _print_measured_stages_with_notes(ladder: Ladder, console: Console) -> None:
    """Print what was measured, the table of stages, and their notes."""
    # The first stage is the adapter on its base: what it changes is what all others are measured
    # by.
    size = ladder.rungs[0].effect.size if ladder.rungs and ladder.rungs[0].effect else 0.0
    print_visible(
        console,
        f"{count_noun(ladder.prompts, 'prompt')}, {count_noun(ladder.places, 'token')}; the adapter changes"
        f" their log-probabilities by {size:.3g} nats (root mean square)",
    )
    table = borderless_table()
    table.add_column("stage")
    for title in ("effect there", "cosine", "max off, nats"):
        table.add_column(title, justify="right", no_wrap=True)
    for stage in ladder.rungs:
        table.add_row(*_stage_table_cells(stage))
    console.print(table)
    for stage in ladder.rungs:
        if stage.note:
            print_visible(console, f"{stage.name}: {stage.note}", "dim")


def _print_where_effect_is_lost(ladder: Ladder, console: Console) -> None:
    """Where the effect was lost, or that it is the same everywhere, or that this is not known."""
    culprit = ladder.culprit
    # A stage that was not measured may be the one that lost it: "the same on every stage" would
    # be a guess.
    if culprit is None and ladder.unmeasured:
        names = ", ".join(stage.name for stage in ladder.unmeasured)
        print_visible(
            console,
            f"not known: {names} could not be measured; for a server, truetune serve-check compares"
            " answers",
            "bold yellow",
        )
    elif culprit is None:
        print_visible(
            console, f"the effect is the same on every stage ({ladder.seconds:.1f} s)", "bold green"
        )
    else:
        print_visible(console, f"lost at: {culprit.name} ({ladder.seconds:.1f} s)", "bold red")
        print_visible(console, f"   = help: {ladder.remedy}")


def _stage_table_cells(stage: LadderStage) -> tuple[Text, ...]:
    """A stage's cells in the table: name, effect, cosine and largest difference; dashes where it was
    not measured.
    """
    effect = stage.effect
    # A fault is seen before the figures are: a stage may have the whole effect and another
    # template.
    style = "bold red" if stage.fault or (effect and effect.is_lost_or_changed) else ""
    name = Text(escape_invisible_characters(stage.name), style=style)
    if effect is None:
        return name, Text("-"), Text("-"), Text("-")
    figures = (f"{effect.kept:.1%}", f"{effect.cosine:.4f}", f"{effect.largest:.2g}")
    return name, *(Text(figure, style=style) for figure in figures)
