"""What a server was seen to do, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from truetune.generation.server_observations import AdapterStrength, By, ServerObservations
from truetune.report.draw_by_kind import draw_more
from truetune.report.text import many, visible
from truetune.serving.report import ServiceReport

HOW: dict[By, str] = {
    "ids": "by their ids",
    "count": "by their number of tokens",
    "answers": "by their answers",
}
Line = tuple[str, str, bool]
"""What was looked at, what was seen, and is it as it should be?"""


@draw_more.register
def _(report: ServiceReport, console: Console, verbose: bool) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    for _column in range(2):
        table.add_column()
    for name, seen, good in lines(report.service):
        table.add_row(name, Text(visible(seen), style="" if good else "bold red"))
    console.print(table)
    for note in report.service.notes:
        console.print(Text(visible(f"note: {note}"), style="dim"), soft_wrap=True)
    console.print()


def lines(service: ServerObservations) -> Iterator[Line]:
    """A line for each part that was looked at."""
    yield from _prompts(service)
    stopping = service.stopping
    if stopping is not None:
        missed = sum(ending.runs_on or bool(ending.leaked) for ending in stopping.endings)
        ended = sum(ending.finish not in ("length", "") for ending in stopping.endings)
        count = many(len(stopping.endings), "answer")
        yield (
            "stops",
            f"{', '.join(stopping.trained) or 'none known'}: {ended} of {count} ended by themselves"
            + (f", {missed} run on behind their end" if missed else ""),
            not missed,
        )
    if service.sampling is not None:
        yield "sampling unasked", *_sampling(service)
    if service.repeats is not None:
        found = service.repeats
        same = found.alone + found.together - found.alone_differ - found.together_differ
        yield (
            "the same greedy request",
            (
                f"{same} of {found.alone + found.together} answers are equal ({found.alone} "
                f"alone, {found.together} at the same time)"
            ),
            same == found.alone + found.together,
        )
    if service.context is not None:
        yield "context", *_context(service)
    if service.strength is not None:
        yield "strength", _strength(service.strength), True
    if service.ignored:
        yield "ignored fields", ", ".join(service.ignored), True


def _prompts(service: ServerObservations) -> Iterator[Line]:
    for by, how in HOW.items():
        asked = [
            prompt for prompt in service.prompts if prompt.by == by and prompt.same is not None
        ]
        if asked:
            equal = sum(bool(prompt.same) for prompt in asked)
            yield "prompts", f"{equal} of {len(asked)} equal, {how}", equal == len(asked)
    unknown = sum(prompt.same is None and not prompt.refused for prompt in service.prompts)
    refused = sum(bool(prompt.refused) for prompt in service.prompts)
    if unknown:
        yield "prompts", f"{unknown} can't be told", True
    if refused:
        yield "prompts", f"{refused} refused", False


def _sampling(service: ServerObservations) -> tuple[str, bool]:
    found = service.sampling
    assert found is not None
    named = f" ({', '.join(found.settings)})" if found.settings else ""
    how = {None: "not told", True: "answers are sampled", False: "answers are greedy"}[
        found.samples
    ]
    return (
        how + named + (", and penalties hold at temperature 0" if found.penalised else ""),
        not found.penalised,
    )


def _context(service: ServerObservations) -> tuple[str, bool]:
    found = service.context
    assert found is not None
    told = f"{found.told:,} tokens" if found.told is not None else "not told"
    if found.sent is None:
        return f"{told}; no long prompt was sent", True
    if found.refused:
        return f"{told}; a prompt of {found.sent:,} tokens is refused", True
    read = "not told" if found.counted is None else f"{found.counted:,}"
    cut = (found.counted is not None and found.counted < found.sent) or found.beginning is False
    return f"{told}; of a prompt of {found.sent:,} tokens and more it read {read}", not cut


def _strength(found: AdapterStrength) -> str:
    if found.by == "answers":
        return (
            f"at {many(found.places, 'prompt')} where base and tuned model part, {found.as_tuned}"
            f" answers are the tuned model's and {found.as_base} the base's"
        )
    if found.factor is None:
        return (
            f"{found.distance:.2g} nats a token off the model's own over {found.places:,} tokens;"
            " no base is known"
        )
    return (
        f"{found.factor:.1%} of what training changed (cosine {found.cosine:.3f}) over"
        f" {found.places:,} tokens; {found.distance:.2g} nats a token off, of an effect of"
        f" {found.effect:.2g}"
    )
