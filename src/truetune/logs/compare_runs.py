"""What a run did, as far as it can be compared with another run of the same project by their logs."""

from __future__ import annotations

from truetune.logs.files_beside import RunBeside
from truetune.logs.run_log import RunLog
from truetune.logs.sibling_runs import count_rows_seen


def outline_run(log: RunLog) -> RunBeside | None:
    """The size and speed of a run; None where its log has no steps."""
    output = log.output
    planned = log.total_steps or (output.total if output is not None else 0) or _printed_steps(log)
    if not log.last_step and not planned:
        return None
    if log.server:
        return None
    done = 0.0 if log.is_numbered else log.last_step
    done = max(done, float(output.done) if output is not None else 0.0)
    settings = output.settings if output is not None else None
    seconds = log.number("train_runtime")
    return RunBeside(
        file=log.path,
        steps=done,
        total=planned or None,
        rows_a_step=_rows_a_step(log, done),
        processes=(settings.world if settings else None)
        or (output.transports.ranks or None if output else None),
        nodes=(output.transports.nodes or None) if output is not None else None,
        step_seconds=measure_step_seconds(log),
        rows_a_second=log.number("train_samples_per_second")
        or (output.pace.rows_a_second if output else None),
        epochs=log.epochs,
        seconds=seconds,
    )


def measure_step_seconds(log: RunLog) -> float | None:
    """Seconds of an optimizer step: as printed beside the steps, else the run's time over its steps."""
    output = log.output
    if output is not None and output.pace.seconds:
        return output.pace.seconds
    if output is not None and output.step_seconds:
        return output.step_seconds
    seconds = log.number("train_runtime")
    return seconds / log.last_step if seconds and log.last_step and not log.is_numbered else None


def _printed_steps(log: RunLog) -> float:
    """Steps that the trainer said it plans; 0 where it did not."""
    settings = log.output.settings if log.output is not None else None
    return float(settings.steps or 0) if settings is not None else 0.0


def _rows_a_step(log: RunLog, done: float) -> float | None:
    """Rows of an optimizer step over all processes: printed, by its factors, or by rows and steps of the whole run."""
    settings = log.output.settings if log.output is not None else None
    if settings is not None and settings.rows_a_step:
        return float(settings.rows_a_step)
    if settings is not None and settings.batch and settings.world:
        return float(settings.batch * settings.world * (settings.accumulation or 1))
    rows = count_rows_seen(log)
    return rows / done if rows and done else None
