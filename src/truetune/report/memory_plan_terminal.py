"""A plan of memory on a terminal: what is trained, the moments of a step, whether it fits, and what to change if
not.

Moments are columns, since the question is when memory runs out; parts are rows, since the remedy is to make one of
them smaller. Sizes are in GiB of 2^30 bytes, as drivers count the memory of a GPU. The trade-off: parts too small
to be seen at the printed precision are left out, so that columns need not add up to the last digit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from truetune.memory.estimate_memory import GIB, PARTS, Moment
from truetune.memory.find_changes_to_fit_run_into_memory import Remedy
from truetune.memory.plan_memory import Plan, Verdict
from truetune.report.record_terminal_drawing_as_tables import page_values_of_plan_ladder_or_merge
from truetune.report.visible_text import (
    count_noun,
    draw_as_text,
    escape_invisible_characters,
    wrap_text,
)

VERDICT_STYLES: dict[Verdict, str] = {
    "fits": "bold green",
    "tight": "bold yellow",
    "too large": "bold red",
}
VERDICT_WORDS: dict[Verdict, str] = {
    "fits": "it fits",
    "tight": "expect it to run out: it fits only if nothing is lost to fragments",
    "too large": "it does not fit",
}
NEXT_STEPS: Mapping[Verdict | None, str] = {
    None: "name the GPU: truetune plan PATH --gpu 24GB",
    "fits": "rehearse the run: truetune rehearse SETTINGS",
    "tight": "try a few of the longest rows before the whole run: fragments can take what is left",
    "too large": "take a larger GPU, more GPUs (--gpus) or a smaller model",
}
"""What to do where there is no remedy"""


def plan_as_text(plan: Plan) -> str:
    """The plan drawn as plain text, 100 columns wide."""
    return draw_as_text(lambda console: render_plan(plan, console))


def render_plan(plan: Plan, console: Console, *, quiet: bool = False) -> None:
    """Draw what is trained, the moments of a step, the verdict and the remedies; `quiet`: only the
    verdict.
    """
    verdict, style = _verdict_line(plan)
    # Scripts read this line, or only the exit code.
    if quiet:
        return _print_with_hanging_indent(console, verdict, style)
    for line in _describe_training(plan):
        _print_with_hanging_indent(console, line)
    console.print(moments_table(plan))
    _print_with_hanging_indent(console, verdict, style)
    _print_remedies(plan, console)


def plan_page_values(plan: Plan) -> dict[str, Any]:
    """The plan as plain values, sizes in bytes, with what a page of it needs."""
    # Remedies come in the order in which they should be tried.
    first = plan.remedies[0] if plan.remedies else None
    return (
        plan.to_dict()
        | page_values_of_plan_ladder_or_merge(
            ("model", plan.model or plan.estimate.architecture.model_type),
            _verdict_sentence(plan),
            f"{first.what}: {first.gain / GIB:.1f} GiB less" if first else NEXT_STEPS[plan.verdict],
            lambda console: _print_plan_tables(plan, console),
        )
        | {"failed": plan.verdict == "too large"}
    )


def _print_plan_tables(plan: Plan, console: Console) -> None:
    """Print all of the plan but the verdict."""
    for line in _describe_training(plan):
        _print_with_hanging_indent(console, line)
    console.print(moments_table(plan))
    _print_remedies(plan, console)


def _print_remedies(plan: Plan, console: Console) -> None:
    """Print the remedies in order, whether they are enough, and the notes."""
    for number, remedy in enumerate(plan.remedies, 1):
        for line in _remedy_lines(number, remedy):
            _print_with_hanging_indent(console, line)
    # Each remedy is applied on top of those before: the last one stands for all of them.
    if plan.remedies and not plan.remedies[-1].fits:
        _print_with_hanging_indent(
            console,
            "even so it does not fit: take a larger GPU, more GPUs (--gpus) or a smaller model",
            "bold red",
        )
    for note in plan.notes:
        _print_with_hanging_indent(console, f"note: {note}", "dim")


def moments_table(plan: Plan) -> Table:
    """Parts by moments of a step, in GiB; the peak stands out."""
    moments, peak = plan.estimate.moments, plan.estimate.peak
    # Two digits where the whole is small: at 0.4 GiB a tenth is a quarter of it.
    digits = 1 if peak.total >= 10 * GIB else 2
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("GiB")
    for moment in moments:
        table.add_column(moment.name, justify="right", style="bold" if moment is peak else None)
    for part in PARTS:
        sizes = [_part_bytes(moment, part) for moment in moments]
        # Half of the last digit that is printed: a row of zeros would say nothing.
        if any(size >= 0.5 * GIB / 10**digits for size in sizes):
            table.add_row(part, *(_gib_cell(size, digits) for size in sizes))
    table.add_row("all", *(f"{moment.total / GIB:.{digits}f}" for moment in moments), style="bold")
    return table


def _describe_training(plan: Plan) -> Iterator[str]:
    """Lines on what is trained, and of how many rows and tokens a step is."""
    estimate, settings = plan.estimate, plan.estimate.settings
    known = estimate.architecture
    yield (
        f"{plan.model or known.model_type}: {_format_big_count(known.parameters)} parameters, "
        f"{_format_big_count(estimate.trained_parameter_count)} trained ({known.model_type or 'unknown type'})"
    )
    rows = count_noun(settings.batch, "row")
    yield (
        f"{rows} of {settings.length:,} tokens x {count_noun(settings.accumulation, 'step')} of"
        f" accumulation x {count_noun(settings.world, 'GPU')}: {count_noun(settings.effective_batch_size, 'row')} in a"
        " step of the optimizer"
    )


def _verdict_line(plan: Plan) -> tuple[str, str]:
    """The verdict as (line, style): the peak of memory, and whether it fits."""
    peak = plan.estimate.peak
    line = f"peak: {peak.total / GIB:.1f} GiB on each GPU, at the {peak.name}"
    if plan.memory is None or plan.verdict is None:
        return f"{line} (--gpu 24GB compares it with a GPU)", "bold"
    return f"{line}, of {plan.memory / GIB:.1f}: {VERDICT_WORDS[plan.verdict]}", VERDICT_STYLES[
        plan.verdict
    ]


def _verdict_sentence(plan: Plan) -> str:
    """The verdict as a sentence for a page: the peak of memory, and whether it fits."""
    peak = plan.estimate.peak
    takes = f"takes {peak.total / GIB:.1f} GiB on each GPU at its peak, the {peak.name}"
    if plan.memory is None or plan.verdict is None:
        return f"The run {takes}."
    words = VERDICT_WORDS[plan.verdict]
    return f"{words[0].upper()}{words[1:]}: the run {takes}, and there are {plan.memory / GIB:.1f}."


def _remedy_lines(number: int, remedy: Remedy) -> Iterator[str]:
    """Lines of one remedy: what to change, what it saves, and the lines for the settings."""
    yield f"{number}. {remedy.what}: {remedy.gain / GIB:.1f} less, {remedy.total / GIB:.1f} GiB" + (
        ", which fits" if remedy.fits else ""
    )
    for line in remedy.lines:
        yield f"     {line}"


def _part_bytes(moment: Moment, part: str) -> float:
    """The bytes that a part (weights, activations, ...) takes at a moment of the step."""
    return moment.fragmentation_bytes if part == "margin" else moment.parts.get(part, 0.0)


def _gib_cell(size: float, digits: int) -> str:
    """A table cell with a size in GiB; empty where there is none."""
    return f"{size / GIB:.{digits}f}" if size else ""


def _format_big_count(count: int) -> str:
    """A count in words: `8.03 billion`, `41.9 million`"""
    return f"{count / 1e9:.2f} billion" if count >= 1e9 else f"{count / 1e6:.1f} million"


def _print_with_hanging_indent(console: Console, line: str, style: str = "") -> None:
    """Print a line, wrapped with its own indentation."""
    # Lines of a remedy are YAML to be copied: their indentation must survive the wrapping.
    indent = " " * (len(line) - len(line.lstrip()))
    for part in wrap_text(
        escape_invisible_characters(line.lstrip()), max(20, console.width - len(indent))
    ):
        console.print(Text(indent + part, style=style), soft_wrap=True)
