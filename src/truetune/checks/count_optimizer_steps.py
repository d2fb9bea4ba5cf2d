"""Counts how many optimizer steps a run makes in all, with the arithmetic that users do by hand.

One fact for settings (`checks.config.evidence.upper_bound_of_optimizer_steps`), scripts and logs:
rows x epochs / (batch x accumulation x processes).
From settings and scripts it is an upper bound, for rows may be dropped or packed, and more processes may be launched
than the settings say. From a log it is what the run made.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from truetune.logs.run_log import RunLog

FEW = 10
"""Steps below which a run can't have learned: a warm-up of 3 to 10 % takes one of them, and AdamW moves each weight by
at most the learning rate a step. The smallest published recipes make hundreds (LIMA: 1,000 rows x 15 epochs / 32 rows
= 470), the notebooks that try a method 30 to 60."""
SCARCE = 30
"""Steps below which a run hardly begins: fewer than any notebook of Unsloth or TRL makes to try a method (30 to 60)."""
ENDED = 0.999
"""Share of the planned steps from which a run has come to its end; the last records may not be logged."""
EARLY = 0.5
"""Share of the planned steps below which a run that ended was ended early"""
MIN_PACKED = 2
"""Rows in a sequence on average from which it is packed. Chosen: a few dropped rows make no factor of 2"""
ROUNDED = 0.0005
"""Half of the last digit of the speeds that transformers prints"""


class OptimizerSteps(NamedTuple):
    """Optimizer steps of a run."""

    most: int
    """Those that it makes at most; of a log, those that it made"""
    why: str
    """The arithmetic, one line"""
    rows: int | None = None
    """Training rows, where they are known"""
    rows_a_step: int | None = None
    """Rows of one step, over all processes"""
    epochs: float | None = None
    is_limit: bool = False
    """`max_steps` sets them, whatever the rows are"""
    is_packed: bool = False
    """`rows` are packed sequences; of settings those that packing makes at most, which may be far fewer"""
    planned: int | None = None
    """Steps that the trainer planned, where the run ended before half of them"""
    packed_rows: int | None = None
    """The user's rows that were packed into `rows`, where a log shows how many they were"""


def count_optimizer_steps(
    rows: int,
    why: str,
    *,
    batch: int,
    accumulation: int,
    processes: int,
    epochs: float,
    is_packed: bool = False,
) -> OptimizerSteps:
    """The optimizer steps of a run over so many rows, or packed sequences.

    Each epoch ends with a step of its own, even if it is not full. `why` says how the rows were
    counted.
    """
    a_step = batch * processes * accumulation
    # At least one step an epoch: fewer rows than a batch make one that is not full.
    most = math.ceil(epochs * max(1, math.ceil(rows / a_step)))
    factors = [str(number) for number in (batch, processes, accumulation) if number != 1]
    product = " x ".join(factors) or "1"
    unit = unit_of_rows(is_packed=is_packed)
    arithmetic = f"{rows:,} {unit} / batch {product} x {epochs:g} epochs = {most:,} steps"
    return OptimizerSteps(most, f"{why}; {arithmetic}", rows, a_step, epochs, is_packed=is_packed)


def steps_of_ended_log(log: RunLog) -> OptimizerSteps | None:
    """The steps that a run made, where its log shows that it ended; None where it may continue.

    A console log may print records without a step: then the banner of the trainer counts them, or its speed.
    """
    if not has_run_ended(log):
        return None
    stopped = _steps_of_early_stop(log)
    if stopped is not None:
        return stopped
    count, why = _steps_made_and_evidence(log)
    if count < 1:
        return None
    settings = log.output.settings if log.output is not None else None
    rows_a_step = settings.rows_a_step if settings is not None else None
    steps = OptimizerSteps(
        count,
        why,
        _row_count_of_epoch(log),
        rows_a_step or _rows_per_step_of_settings(log),
        log.epochs_at_end or None,
        is_packed=counts_packed_sequences(log),
        packed_rows=_tokenized_row_count_if_packed(log),
    )
    return steps._replace(why=why + _describe_rows_steps_and_epochs(steps))


def unit_of_rows(*, is_packed: bool) -> str:
    """The word for what a trainer counts: packed sequences, or rows."""
    return "packed sequences" if is_packed else "rows"


def counts_packed_sequences(log: RunLog) -> bool:
    """Are a trainer's rows packed sequences, by the settings beside its log, or by the rows that it tokenized?"""
    return (
        any(one.is_packed for one in log.files_beside.rows)
        or _tokenized_row_count_if_packed(log) is not None
    )


def _row_count_of_epoch(log: RunLog) -> int | None:
    """The rows of an epoch as the trainer counts them; None where that is not known."""
    printed = log.output.settings.examples if log.output is not None else None
    # The banner says them exactly; speeds are rounded figures, so they are read only without it.
    if printed is not None:
        return printed
    # The speed of a packed run counts full batches, and sequences that are not full leave some of them out: it holds
    # only where the rows that were tokenized show a far larger number.
    if counts_packed_sequences(log) and _tokenized_row_count_if_packed(log) is None:
        return None
    return _row_count_from_speed_summary(log)


def _tokenized_row_count_if_packed(log: RunLog) -> int | None:
    """The rows that were tokenized, where the trainer counts far fewer: sequences of several of them."""
    settings = log.output.settings if log.output is not None else None
    if settings is None or not settings.rows_mapped or settings.examples is not None:
        return None
    sequences = _row_count_from_speed_summary(log)
    is_packed = bool(sequences) and settings.rows_mapped >= MIN_PACKED * (sequences or 0)
    return settings.rows_mapped if is_packed else None


def _describe_rows_steps_and_epochs(steps: OptimizerSteps) -> str:
    """What is known of a run's rows, steps and epochs, in words that continue a sentence."""
    parts = []
    if steps.rows is not None:
        parts.append(f"; an epoch has {steps.rows:,} {unit_of_rows(is_packed=steps.is_packed)}")
        if steps.packed_rows is not None:
            parts.append(f", into which {steps.packed_rows:,} rows are packed")
    if steps.rows_a_step is not None:
        parts.append(f", a step {steps.rows_a_step:,}")
    if steps.epochs:
        parts.append(f"; {steps.epochs:.3g} epochs")
    return "".join(parts)


def _steps_of_early_stop(log: RunLog) -> OptimizerSteps | None:
    """The steps of a run that ended far before the step that the trainer planned; None for any other."""
    # Where records have steps, the last one counts; only without them the epochs have to tell.
    if not log.is_numbered and log.last_step >= 1:
        return None
    settings = log.output.settings if log.output is not None else None
    by_epochs = _step_count_from_epochs_and_rows(log)
    if settings is None or not settings.steps or by_epochs is None:
        return None
    if by_epochs >= EARLY * settings.steps:
        return None
    return OptimizerSteps(
        by_epochs,
        f"{log.epochs_at_end:.3g} epochs of {settings.examples:,} rows in steps of {settings.rows_a_step:,}"
        f" are {by_epochs:,} steps; the trainer planned {settings.steps:,}",
        settings.examples,
        settings.rows_a_step,
        log.epochs_at_end,
        planned=settings.steps,
    )


def _steps_made_and_evidence(log: RunLog) -> tuple[int, str]:
    """(the steps of a run that ended, what says so); 0 steps if nothing does."""
    count = int(log.done_steps)
    if not log.is_numbered and count >= 1:
        return count, f"the log ends at step {count:,}"
    # Records without a step are numbered by us, and trainers log each tenth step or so: their number is no count.
    printed = log.output.settings.steps if log.output is not None else None
    if printed:
        return printed, f"the trainer counts {printed:,}"
    by_speed = _step_count_from_speed_summary(log) or 0
    return by_speed, f"its speed and its time make {by_speed:,} steps"


def has_run_ended(log: RunLog) -> bool:
    """Did the run come to its last planned step, or write the summary that stands behind it?"""
    if log.fact_as_number("train_runtime") is not None:
        return True
    if log.output is not None and log.output.is_finished:
        return True
    total = log.planned_steps
    return total is not None and log.last_step >= ENDED * total


def _step_count_from_epochs_and_rows(log: RunLog) -> int | None:
    """Steps by the epochs of the last record and the rows that the trainer printed; None where one is not known."""
    settings = log.output.settings if log.output is not None else None
    if (
        settings is None
        or not settings.examples
        or not settings.rows_a_step
        or not log.epochs_at_end
    ):
        return None
    # An epoch of fewer rows than a step has makes one step all the same, which is not full.
    return round(log.epochs_at_end * max(1.0, settings.examples / settings.rows_a_step))


def _step_count_from_speed_summary(log: RunLog) -> int | None:
    """Steps by the summary; None where it is not there, or too coarse to tell one step."""
    rate, seconds = (
        log.fact_as_number("train_steps_per_second"),
        log.fact_as_number("train_runtime"),
    )
    # The rounding of the speed times the seconds is the error in steps: half a step or more tells nothing.
    if not rate or not seconds or ROUNDED * seconds > 0.5:
        return None
    return round(rate * seconds)


def _row_count_from_speed_summary(log: RunLog) -> int | None:
    """Rows of an epoch by the summary; None where it is not there, or too coarse to tell one row."""
    rate, seconds = (
        log.fact_as_number("train_samples_per_second"),
        log.fact_as_number("train_runtime"),
    )
    # The same in rows of one epoch.
    if (
        not rate
        or not seconds
        or not log.epochs_at_end
        or ROUNDED * seconds > 0.5 * log.epochs_at_end
    ):
        return None
    return round(rate * seconds / log.epochs_at_end)


def _rows_per_step_of_settings(log: RunLog) -> int | None:
    """The rows of an optimizer step by the settings in the log; None if one of them is missing."""
    batch = log.fact_as_number("per_device_train_batch_size") or log.fact_as_number(
        "train_batch_size"
    )
    accumulation = log.fact_as_number("gradient_accumulation_steps")
    if not batch or not accumulation:
        return None
    return int(batch * accumulation * (log.fact_as_number("devices") or 1))
