"""Explains what a known message of the console output means, and how far the run had come."""

from __future__ import annotations

from collections.abc import Iterator

from truetune.logs.console.messages import KnownMessage
from truetune.logs.console.read_console_output import ConsoleOutput
from truetune.logs.console.skips_and_errors_of_one_rank import rank_line_as_evidence
from truetune.logs.run_log import RunLog

UNEVEN = "the processes (one per GPU) have different numbers of {}, and those with more waited for those with fewer"
EVEN_SHARES = (
    "give every process the same number of batches: filter rows before you split them among the processes, not after,"
    " and split them with DistributedSampler(drop_last=True); or stop all processes at the smallest number (all_reduce"
    " of len(loader) with ReduceOp.MIN); or run the loop under torch.distributed.algorithms.join.Join. A longer time"
    " limit does not help"
)


def optimizer_steps_made(log: RunLog, output: ConsoleOutput) -> float:
    """Optimizer steps as far as they are known: by the records' own numbers, else by the training's bar; else 0.

    A record without a step is one of many steps, and each takes one at least: a bar that stands below the number of
    records is that of an evaluation.
    """
    if not log.is_numbered:
        return log.last_step or output.done
    return float(output.done) if output.done >= log.last_step else 0.0


def describe_steps_or_records(log: RunLog, output: ConsoleOutput) -> str:
    """` after step 60 of 500`, or ` after record 12` where the log holds no steps and no bar of the
    training.
    """
    steps = optimizer_steps_made(log, output)
    if steps:
        return describe_progress(steps, output.total)
    return f" after record {log.last_step:,.0f}" if log.last_step else ""


def describe_progress(step: float, total: int) -> str:
    """A step in words, ` after step 60 of 500`, as far as the output says it; empty where no step
    was made.
    """
    if not step:
        return ""
    return f" after step {step:,.0f}" + (f" of {total:,}" if total else "")


def explain_message(known: KnownMessage, *, cause: bool = True) -> Iterator[str]:
    """Why a known message is printed, and where its page is.

    Args:
        cause: False where the cause is proved already, so that its usual causes are left out.
    """
    if cause:
        yield f"cause: {known.cause}"
    yield f"known as {known.name} (truetune explain {known.name})"


def lines_printed_by_one_rank(output: ConsoleOutput) -> Iterator[str]:
    """What one process alone printed before a time-out, where its last operation does not say it
    already.
    """
    for one in output.rank_lines:
        if not any(one.text in told for told in output.collectives):
            yield rank_line_as_evidence(one)
