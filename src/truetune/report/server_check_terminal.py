"""What a server was seen to do, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from truetune.generation.service import By, Service, Strength
from truetune.report.draw_by_kind import draw_more
from truetune.report.terminal_output import borderless_table
from truetune.report.visible_text import count_noun, visible
from truetune.serving.report import ServiceReport

COMPARED_BY: dict[By, str] = {
    "ids": "by their ids",
    "count": "by their number of tokens",
    "answers": "by their answers",
}
Observation = tuple[str, str, bool]
"""What was looked at, what was seen, and is it as it should be?"""


@draw_more.register
def _(report: ServiceReport, console: Console, verbose: bool) -> None:
    table = borderless_table(header=False)
    for _column in range(2):
        table.add_column()
    for name, seen, good in observation_lines(report.service):
        table.add_row(name, Text(visible(seen), style="" if good else "bold red"))
    console.print(table)
    for note in report.service.notes:
        console.print(Text(visible(f"note: {note}"), style="dim"), soft_wrap=True)
    console.print()


def observation_lines(service: Service) -> Iterator[Observation]:
    """A line for each part that was looked at."""
    yield from _prompt_lines(service)
    stopping = service.stopping
    if stopping is not None:
        missed = sum(ending.runs_on or bool(ending.leaked) for ending in stopping.endings)
        ended = sum(ending.finish not in ("length", "") for ending in stopping.endings)
        count = count_noun(len(stopping.endings), "answer")
        yield (
            "stops",
            f"{', '.join(stopping.trained) or 'none known'}: {ended} of {count} ended by themselves"
            + (f", {missed} run on behind their end" if missed else ""),
            not missed,
        )
    if service.sampling is not None:
        yield "sampling unasked", *_describe_sampling(service)
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
        yield "context", *_describe_context(service)
    if service.strength is not None:
        yield "strength", _describe_strength(service.strength), True
    if service.ignored:
        yield "ignored fields", ", ".join(service.ignored), True


def _prompt_lines(service: Service) -> Iterator[Observation]:
    for by, how in COMPARED_BY.items():
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


def _describe_sampling(service: Service) -> tuple[str, bool]:
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


def _describe_context(service: Service) -> tuple[str, bool]:
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


def _describe_strength(found: Strength) -> str:
    if found.by == "answers":
        return (
            f"at {count_noun(found.places, 'prompt')} where base and tuned model part, {found.as_tuned}"
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
