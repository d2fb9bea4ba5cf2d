"""What rules on console output say of a known message, and of how far a run came."""

from __future__ import annotations

from collections.abc import Iterator

from truetune.logs.console.console_output import ConsoleOutput
from truetune.logs.console.lines_of_one_rank import describe_rank_line
from truetune.logs.console.messages import KnownMessage


def describe_progress(step: float, total: int) -> str:
    """` after step 60 of 500`, as far as the output says it; empty where no step was made."""
    if not step:
        return ""
    return f" after step {step:,.0f}" + (f" of {total:,}" if total else "")


def describe_message(known: KnownMessage, *, cause: bool = True) -> Iterator[str]:
    """Why a known message is printed (`cause`: or is that proved already?), and where its page is."""
    if cause:
        yield f"cause: {known.cause}"
    yield f"known as {known.name} (truetune explain {known.name})"


def lines_of_one_rank(output: ConsoleOutput) -> Iterator[str]:
    """What one process alone printed before a time-out, where its last operation does not say it already."""
    for one in output.rank_lines:
        if not any(one.text in told for told in output.collectives):
            yield describe_rank_line(one)
