"""Outlines the size and speed of a run by its log, as far as it can be compared with another run of
the same project.
"""

from __future__ import annotations

import numpy as np

from truetune.logs.console.read_console_output import ConsoleOutput
from truetune.logs.facts_in_files_beside_log import RunBeside
from truetune.logs.gpu_memory_curve import find_memory_curve
from truetune.logs.rows_and_steps_of_sibling_runs import count_rows_seen
from truetune.logs.run_log import RunLog
from truetune.logs.share_of_time_beside_training import measure_time_shares

LOSS_PLACES = 40
"""Places of a curve that another run is compared with. Chosen, not measured: enough to see where it falls"""
MIN_LOSSES = 9
"""Records from which three places have a median of three"""
MUCH_ASIDE = 0.1
"""Share of the time for evaluations, from which on bars and times of the whole run say nothing of a step"""


def outline_run(log: RunLog) -> RunBeside | None:
    """The size and speed of a run, for comparison with others; None if its log has no steps."""
    output = log.output or ConsoleOutput(log.path, lines=0)
    planned = log.planned_steps or output.total or _planned_steps_as_printed(log)
    if log.inference_server_name or not (log.last_step or planned):
        return None
    done = max(0.0 if log.is_numbered else log.last_step, float(output.done))
    return RunBeside(
        file=log.path,
        steps=done,
        total=planned or None,
        rows_a_step=_rows_per_optimizer_step(log, done),
        processes=_process_count(log),
        nodes=_node_count(log),
        step_seconds=seconds_of_optimizer_step(log),
        rows_a_second=log.fact_as_number("train_samples_per_second") or output.pace.rows_a_second,
        epochs=log.epochs_at_end,
        seconds=log.fact_as_number("train_runtime"),
        is_even=output.pace.is_even,
        losses=_loss_samples(log),
        peak_rate=_peak_learning_rate(log),
        epoch_batches=output.epoch_bars.batches,
        epoch_seconds=output.epoch_bars.seconds,
        batch=output.settings.batch,
        memory=_memory_samples(log),
    )


def _memory_samples(log: RunLog) -> tuple[tuple[float, float], ...]:
    """(step, GiB of GPU memory) at some steps over a run; empty if no memory is logged."""
    curve = find_memory_curve(log.curves).curve
    if log.is_numbered or not curve:
        return ()
    every = max(1, curve.step.size // LOSS_PLACES)
    places = [*range(0, curve.step.size - 1, every), curve.step.size - 1]
    return tuple((float(curve.step[one]), float(curve.value[one])) for one in places)


def _peak_learning_rate(log: RunLog) -> float | None:
    """The highest learning rate of a run; None if its log has none."""
    rate = log.curve("learning_rate").finite()
    return float(rate.value.max()) if rate else None


def _loss_samples(log: RunLog) -> tuple[tuple[float, float], ...]:
    """(step, loss) at some steps over a run; empty if its steps are not known."""
    loss = log.curve("loss").finite()
    if log.is_numbered or loss.step.size < MIN_LOSSES:
        return ()
    parts = np.array_split(np.arange(loss.step.size), min(LOSS_PLACES, loss.step.size // 3))
    return tuple(
        (float(np.median(loss.step[part])), float(np.median(loss.value[part]))) for part in parts
    )


def seconds_of_optimizer_step(log: RunLog) -> float | None:
    """Seconds of an optimizer step: as printed beside the steps, otherwise the run's time over its
    steps.
    """
    output = log.output
    shares = measure_time_shares(log)
    if shares is not None and shares.share >= MUCH_ASIDE and shares.step_seconds:
        return shares.step_seconds
    if output is not None and output.pace.seconds:
        return output.pace.seconds
    if output is not None and output.step_seconds:
        return output.step_seconds
    seconds = log.fact_as_number("train_runtime")
    return seconds / log.last_step if seconds and log.last_step and not log.is_numbered else None


def _process_count(log: RunLog) -> int | None:
    """The number of processes of a run: as printed, by NCCL, or by the rows of a step and of a
    device; None if it is not known.
    """
    if log.output is None:
        return None
    settings, ranks = log.output.settings, log.output.transports.ranks
    if settings.world or ranks:
        return settings.world or ranks
    on_device = (settings.batch or 0) * (settings.accumulation or 1)
    rows = settings.rows_a_step or 0
    return rows // on_device if on_device and rows and rows % on_device == 0 else None


def _node_count(log: RunLog) -> int | None:
    """The number of machines of a run, by NCCL or as printed; None if the log does not say."""
    if log.output is None:
        return None
    return log.output.transports.nodes or log.output.settings.nodes


def _planned_steps_as_printed(log: RunLog) -> float:
    """The number of steps that the trainer printed that it plans; 0 if it printed none."""
    settings = log.output.settings if log.output is not None else None
    return float(settings.steps or 0) if settings is not None else 0.0


def _rows_per_optimizer_step(log: RunLog, done: float) -> float | None:
    """Rows of an optimizer step over all processes: as printed, by its factors, or by rows and
    steps of the whole run.
    """
    settings = log.output.settings if log.output is not None else None
    if settings is not None and settings.rows_a_step:
        return float(settings.rows_a_step)
    if settings is not None and settings.batch and settings.world:
        return float(settings.batch * settings.world * (settings.accumulation or 1))
    rows = count_rows_seen(log)
    return rows / done if rows and done else None
