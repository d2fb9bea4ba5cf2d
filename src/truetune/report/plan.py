"""A plan of memory on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from truetune.memory.estimate import GIB, PARTS, Moment
from truetune.memory.plan import Plan, Verdict
from truetune.memory.remedies import Remedy
from truetune.report.shown import outcome
from truetune.report.text import drawn, many, visible, wrap

STYLES: dict[Verdict, str] = {"fits": "bold green", "tight": "bold yellow", "too large": "bold red"}
SAID: dict[Verdict, str] = {
    "fits": "it fits",
    "tight": "it fits only if nothing is lost to fragments",
    "too large": "it does not fit",
}
NEXT: Mapping[Verdict | None, str] = {
    None: "name the GPU: truetune plan PATH --gpu 24GB",
    "fits": "rehearse the run: truetune rehearse SETTINGS",
    "tight": "try a few of the longest rows before the whole run: fragments can take what is left",
    "too large": "take a larger GPU, more GPUs (--gpus) or a smaller model",
}
"""What to do where there is no remedy"""


def plan_as_text(plan: Plan) -> str:
    """As plain text, 100 columns wide."""
    return drawn(lambda console: render_plan(plan, console))


def render_plan(plan: Plan, console: Console, *, quiet: bool = False) -> None:
    """Draw what is trained, the moments of a step, the verdict and the remedies; `quiet`: the verdict alone."""
    verdict, style = _verdict(plan)
    if quiet:
        return _say(console, verdict, style)
    for line in _head(plan):
        _say(console, line)
    console.print(moments_table(plan))
    _say(console, verdict, style)
    _end(plan, console)


def plan_json(plan: Plan) -> dict[str, Any]:
    """The plan as plain values, sizes in bytes, with what a page of it needs."""
    first = plan.remedies[0] if plan.remedies else None
    return (
        plan.to_dict()
        | outcome(
            ("model", plan.model or plan.estimate.architecture.model_type),
            _summary(plan),
            f"{first.what}: {first.gain / GIB:.1f} GiB less" if first else NEXT[plan.verdict],
            lambda console: _parts(plan, console),
        )
        | {"failed": plan.verdict == "too large"}
    )


def _parts(plan: Plan, console: Console) -> None:
    """All but the verdict."""
    for line in _head(plan):
        _say(console, line)
    console.print(moments_table(plan))
    _end(plan, console)


def _end(plan: Plan, console: Console) -> None:
    for number, remedy in enumerate(plan.remedies, 1):
        for line in _remedy(number, remedy):
            _say(console, line)
    if plan.remedies and not plan.remedies[-1].fits:
        _say(
            console,
            "even so it does not fit: take a larger GPU, more GPUs (--gpus) or a smaller model",
            "bold red",
        )
    for note in plan.notes:
        _say(console, f"note: {note}", "dim")


def moments_table(plan: Plan) -> Table:
    """Parts by moments of a step, in GiB; the peak stands out."""
    moments, peak = plan.estimate.moments, plan.estimate.peak
    digits = 1 if peak.total >= 10 * GIB else 2
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("GiB")
    for moment in moments:
        table.add_column(moment.name, justify="right", style="bold" if moment is peak else None)
    for part in PARTS:
        sizes = [_size(moment, part) for moment in moments]
        if any(size >= 0.5 * GIB / 10**digits for size in sizes):
            table.add_row(part, *(_cell(size, digits) for size in sizes))
    table.add_row("all", *(f"{moment.total / GIB:.{digits}f}" for moment in moments), style="bold")
    return table


def _head(plan: Plan) -> Iterator[str]:
    found, settings = plan.estimate, plan.estimate.settings
    known = found.architecture
    yield (
        f"{plan.model or known.model_type}: {_billions(known.parameters)} parameters, "
        f"{_billions(found.trained)} trained ({known.model_type or 'unknown type'})"
    )
    rows = many(settings.batch, "row")
    yield (
        f"{rows} of {settings.length:,} tokens x {many(settings.accumulation, 'step')} of"
        f" accumulation x {many(settings.world, 'GPU')}: {many(settings.effective, 'row')} in a"
        " step of the optimizer"
    )


def _verdict(plan: Plan) -> tuple[str, str]:
    peak = plan.estimate.peak
    line = f"peak: {peak.total / GIB:.1f} GiB on each GPU, at the {peak.name}"
    if plan.memory is None or plan.verdict is None:
        return f"{line} (--gpu 24GB compares it with a GPU)", "bold"
    return f"{line}, of {plan.memory / GIB:.1f}: {SAID[plan.verdict]}", STYLES[plan.verdict]


def _summary(plan: Plan) -> str:
    peak = plan.estimate.peak
    takes = f"takes {peak.total / GIB:.1f} GiB on each GPU at its peak, the {peak.name}"
    if plan.memory is None or plan.verdict is None:
        return f"The run {takes}."
    said = SAID[plan.verdict]
    return f"{said[0].upper()}{said[1:]}: the run {takes}, and there are {plan.memory / GIB:.1f}."


def _remedy(number: int, remedy: Remedy) -> Iterator[str]:
    yield f"{number}. {remedy.what}: {remedy.gain / GIB:.1f} less, {remedy.total / GIB:.1f} GiB" + (
        ", which fits" if remedy.fits else ""
    )
    for line in remedy.lines:
        yield f"     {line}"


def _size(moment: Moment, part: str) -> float:
    return moment.margin if part == "margin" else moment.parts.get(part, 0.0)


def _cell(size: float, digits: int) -> str:
    return f"{size / GIB:.{digits}f}" if size else ""


def _billions(count: int) -> str:
    return f"{count / 1e9:.2f} billion" if count >= 1e9 else f"{count / 1e6:.1f} million"


def _say(console: Console, line: str, style: str = "") -> None:
    indent = " " * (len(line) - len(line.lstrip()))
    for part in wrap(visible(line.lstrip()), max(20, console.width - len(indent))):
        console.print(Text(indent + part, style=style), soft_wrap=True)
