"""What `truetune serve-check` saw a server do, on a terminal: prompts, stops, sampling, context,
strength of the adapter.

A line for each part that was looked at. What could not be told is said as such and counts as no fault: servers
differ in what they report, and a check that calls silence a fault would fail for all of one kind.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from truetune.generation.server_observations import AdapterStrength, By, ServerObservations
from truetune.report.draw_what_each_kind_of_report_adds import draw_details_by_kind
from truetune.report.terminal_output import borderless_table
from truetune.report.visible_text import count_noun, escape_invisible_characters
from truetune.serving.service_report import ServiceReport

# From the strongest evidence to the weakest: equal ids are equal prompts, equal answers only
# make them likely.
COMPARED_BY: dict[By, str] = {
    "ids": "by their ids",
    "count": "by their number of tokens",
    "answers": "by their answers",
}
Observation = tuple[str, str, bool]
"""What was looked at, what was seen, and is it as it should be?"""


@draw_details_by_kind.register
def _draw_server_check(report: ServiceReport, console: Console, verbose: bool) -> None:
    """Draw a table of what a server was seen to do, and the notes on it."""
    table = borderless_table(header=False)
    for _column in range(2):
        table.add_column()
    for name, seen, good in observation_lines(report.service):
        table.add_row(
            name, Text(escape_invisible_characters(seen), style="" if good else "bold red")
        )
    console.print(table)
    for note in report.service.notes:
        console.print(
            Text(escape_invisible_characters(f"note: {note}"), style="dim"), soft_wrap=True
        )
    console.print()


def observation_lines(service: ServerObservations) -> Iterator[Observation]:
    """(name, what was seen, is it good) of each part of the server that was looked at."""
    yield from _prompt_observations(service)
    stopping = service.stopping
    if stopping is not None:
        missed = sum(ending.runs_on or bool(ending.leaked) for ending in stopping.endings)
        # "length" means that the limit ended it, "" that the server does not say what did.
        ended = sum(ending.finish not in ("length", "") for ending in stopping.endings)
        count = count_noun(len(stopping.endings), "answer")
        yield (
            "stops",
            f"{', '.join(stopping.trained) or 'none known'}: {ended} of {count} ended by themselves"
            + (f", {missed} run on after their end" if missed else ""),
            not missed,
        )
    if service.sampling is not None:
        yield "sampling unasked", *_default_sampling_text_and_is_good(service)
    if service.repeats is not None:
        repeats = service.repeats
        # Greedy requests that run together may differ by the batch they are computed in: both
        # are counted.
        same = repeats.alone + repeats.together - repeats.alone_differ - repeats.together_differ
        yield (
            "the same greedy request",
            (
                f"{same} of {repeats.alone + repeats.together} answers are equal ({repeats.alone} "
                f"alone, {repeats.together} at the same time)"
            ),
            same == repeats.alone + repeats.together,
        )
    if service.context is not None:
        yield "context", *_context_text_and_is_good(service)
    if service.strength is not None:
        yield "strength", _describe_adapter_strength(service.strength), True
    if service.ignored:
        yield "ignored fields", ", ".join(service.ignored), True


def _prompt_observations(service: ServerObservations) -> Iterator[Observation]:
    """Observations on whether prompts are built as trained, one for each way in which that was
    seen.
    """
    for by, how in COMPARED_BY.items():
        compared = [
            prompt for prompt in service.prompts if prompt.by == by and prompt.same is not None
        ]
        if compared:
            equal = sum(bool(prompt.same) for prompt in compared)
            yield "prompts", f"{equal} of {len(compared)} equal, {how}", equal == len(compared)
    unknown = sum(prompt.same is None and not prompt.refused for prompt in service.prompts)
    refused = sum(bool(prompt.refused) for prompt in service.prompts)
    if unknown:
        yield "prompts", f"{unknown} can't be compared", True
    if refused:
        yield "prompts", f"{refused} refused", False


def _default_sampling_text_and_is_good(service: ServerObservations) -> tuple[str, bool]:
    """(text, good): what the server does where no sampling is asked for."""
    sampling = service.sampling
    assert sampling is not None
    named = f" ({', '.join(sampling.settings)})" if sampling.settings else ""
    how = {None: "not reported", True: "answers are sampled", False: "answers are greedy"}[
        sampling.samples
    ]
    return (
        how + named + (", and penalties hold at temperature 0" if sampling.penalised else ""),
        not sampling.penalised,
    )


def _context_text_and_is_good(service: ServerObservations) -> tuple[str, bool]:
    """(text, good): how long prompts may be, and whether longer ones are cut in silence."""
    context = service.context
    assert context is not None
    length = f"{context.told:,} tokens" if context.told is not None else "not reported"
    if context.sent is None:
        return f"{length}; no long prompt was sent", True
    if context.refused:
        return f"{length}; a prompt of {context.sent:,} tokens is refused", True
    read = "not reported" if context.counted is None else f"{context.counted:,}"
    # Fewer tokens read than were sent, or the beginning forgotten: either shows a silent cut.
    cut = (
        context.counted is not None and context.counted < context.sent
    ) or context.beginning is False
    return f"{length}; of a prompt of {context.sent:,} tokens and more it read {read}", not cut


def _describe_adapter_strength(strength: AdapterStrength) -> str:
    """How much of what training changed arrives through the server."""
    # Some servers report no log-probabilities: then only answers at which both models part can
    # tell them apart.
    if strength.by == "answers":
        return (
            f"at {count_noun(strength.places, 'prompt')} where base and tuned model part, {strength.as_tuned}"
            f" answers are the tuned model's and {strength.as_base} the base's"
        )
    if strength.factor is None:
        return (
            f"{strength.distance:.2g} nats/token off the model's own over {strength.places:,} tokens;"
            " no base is known"
        )
    return (
        f"{strength.factor:.1%} of what training changed (cosine {strength.cosine:.3f}) over"
        f" {strength.places:,} tokens; {strength.distance:.2g} nats/token off, of an effect of"
        f" {strength.effect:.2g}"
    )
