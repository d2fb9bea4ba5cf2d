"""Measures how a run divides its time between training and evaluations, saving and sampling."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from truetune.logs.run_log import RunLog

MIN_RATIO = 1.02
"""The time of a run is at least that of its evaluations: below, the two are of different stretches"""


class TimeShares(NamedTuple):
    """Seconds of a run."""

    aside: float
    total: float
    times: int
    """Evaluations (or saves) that took them"""
    kinds: tuple[str, ...]
    source: str
    """What says how long the whole took"""
    steps: float
    """Steps that were made in the whole time"""

    @property
    def share(self) -> float:
        """The share of the time that is no training."""
        return self.aside / self.total

    @property
    def step_seconds(self) -> float | None:
        """Seconds of an optimizer step without evaluations; None if no step is counted."""
        return (self.total - self.aside) / self.steps if self.steps else None


def measure_time_shares(log: RunLog) -> TimeShares | None:
    """How a run divides its time; None if its log does not say how long it evaluated, or how long
    it took.
    """
    whole = _total_time(log)
    # Who samples answers to train on them (GRPO, PPO) spends the time on training.
    if whole is None or log.kind == "reinforcement":
        return None
    aside, times, kinds = _seconds_count_and_kinds_beside_training(log, whole)
    if not times or aside <= 0 or whole.seconds < aside * MIN_RATIO:
        return None
    return TimeShares(aside, whole.seconds, times, kinds, whole.source, whole.steps)


def step_seconds_without_evaluations(log: RunLog) -> float | None:
    """Seconds of a step by the console output, without the evaluations that its progress bar counts
    in; None if the output shows no time.
    """
    if log.output is None or log.output.step_seconds is None:
        return None
    shares = measure_time_shares(log)
    return shares.step_seconds if shares is not None else log.output.step_seconds


class _Whole(NamedTuple):
    """The time of a run, or of its part up to the last drawing of a bar."""

    seconds: float
    source: str
    steps: float
    evaluations: int | None = None
    """How many of its evaluations lie in that time; None: all"""


def _seconds_count_and_kinds_beside_training(
    log: RunLog, whole: _Whole
) -> tuple[float, int, tuple[str, ...]]:
    """(seconds, how often, kinds) of evaluations, saving and sampling: as logged with each
    evaluation, otherwise as printed.
    """
    runtime = log.curve("eval_runtime").finite()
    printed = log.output.aside if log.output is not None else None
    if not runtime:
        return (
            (printed.seconds, printed.times, printed.kinds) if printed is not None else (0.0, 0, ())
        )
    values = runtime.value[: whole.evaluations]
    seconds, times = float(np.sum(values)), int(values.size)
    if printed is None or printed.by_clock or "evaluation" in printed.kinds:
        return seconds, times, ("evaluation",)
    return seconds + printed.seconds, times, ("evaluation", *printed.kinds)


def _total_time(log: RunLog) -> _Whole | None:
    """The time of the whole run, by the surest source; None if there is none."""
    runtime = log.fact_as_number("train_runtime")
    if runtime:
        return _Whole(runtime, "train_runtime", _steps_in_total_time(log, runtime))
    by_bar = _time_shown_by_bar(log)
    if by_bar is not None:
        return by_bar
    wall = log.curve("wall_time").finite()
    if wall and wall.step.size > 1:
        # Records without steps are counted, and each may be one of many steps.
        steps = 0.0 if log.is_numbered else float(wall.step[-1] - wall.step[0])
        return _Whole(float(wall.value[-1] - wall.value[0]), "the times of its records", steps)
    output = log.output
    if output is not None and output.aside.clock_seconds:
        steps = 0.0 if log.is_numbered else log.last_step
        return _Whole(output.aside.clock_seconds, "the clock of its lines", steps)
    return None


def _steps_in_total_time(log: RunLog, seconds: float) -> float:
    """Steps of the whole training: by its records' numbers, otherwise by the rate that the Trainer
    printed; otherwise 0.
    """
    if not log.is_numbered:
        return log.last_step
    rate = log.fact_as_number("train_steps_per_second")
    return float(round(rate * seconds)) if rate else 0.0


def _time_shown_by_bar(log: RunLog) -> _Whole | None:
    """The time that the training's bar shows at the last step that the log has; None if it shows
    none.
    """
    bars = log.output.aside.bars if log.output is not None else ()
    # The console may go on behind the last state that a trainer saved.
    last = log.last_step if log.last_step and not log.is_numbered else float("inf")
    reached = [bar for bar in bars if 0 < bar.done <= last]
    if not reached:
        return None
    bar = reached[-1]
    evaluations = bar.evaluations
    if not evaluations:
        # The records stand in another file than the bar: one at the last step may lie behind its drawing.
        evaluations = int(np.sum(log.curve("eval_runtime").finite().step < bar.done))
    return _Whole(bar.gone, "the training's progress bar", float(bar.done), evaluations)
