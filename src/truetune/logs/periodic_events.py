"""Finds what happens at fixed distances in a run (epochs, evaluations, checkpoints), so that a
period in its loss need not come from its learning rate.

A swing that the learning rate makes drifts with it and knows no calendar. The order of the rows, the evaluations, the
checkpoints and the accumulation of gradients do: they repeat after a fixed number of steps. A period that one of them
may have made proves nothing about the rate.

Length-grouped batches: the sampler of transformers (`group_by_length`, or `train_sampling_strategy: group_by_length`)
shuffles all rows, sorts each stretch of 50 steps by length, longest first, and deals the steps to the processes; fewer
than 200 steps an epoch are sorted in four stretches. Source: get_length_grouped_indices in transformers'
trainer_pt_utils.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from truetune.logs.run_log import RunLog

GROUPED_STEPS = 50
"""Steps that the length-grouped sampler sorts together, on one process"""
USUAL_PROCESS_COUNTS = (1, 2, 4)
"""Taken where the log does not say how many"""
MIN_GROUPED_STEPS = 7
"""Steps: in shorter stretches little is sorted"""
STRETCHES_OF_SHORT_EPOCH = 4
"""Stretches of an epoch of fewer steps than so many times 50"""
PERIOD_TOLERANCE = 0.05
"""Of the event's period. Chosen, not measured: a wider one excuses more swings of the learning rate, a narrower one
blames it for epochs whose last batch is short"""
LENGTH_GROUPING = "batches grouped by length (group_by_length)"
EVENTS_OF_SETTINGS = (
    ("eval_steps", "evaluations"),
    ("save_steps", "checkpoints"),
    ("gradient_accumulation_steps", "accumulation of gradients"),
)
"""Settings that are a period in steps, and what happens then"""


class PeriodicEvent(NamedTuple):
    """Something that happens every so many steps."""

    name: str
    period: float
    """In steps"""
    multiples: bool = False
    """May it be seen at twice, three times, ... the period too?"""

    def may_explain_period_of_loss(self, period: float, gap: float) -> bool:
        """May the event have made this period of the loss, which was measured on records `gap`
        steps apart?
        """
        # a swing over two epochs returns with the rows too; one over half of an epoch does not
        times = max(1, round(period / self.period)) if self.multiples else 1
        return abs(period - times * self.period) <= max(0.5 * gap, PERIOD_TOLERANCE * self.period)


def find_periodic_events(log: RunLog) -> tuple[PeriodicEvent, ...]:
    """Every periodic event that the log names or can't exclude; `period` in steps."""
    return tuple(event for event in _possible_events_of_log(log) if event.period > 0)


def describe_periods(events: tuple[PeriodicEvent, ...]) -> str:
    """The periods as text: `epochs (every 310 steps), evaluations (every 100 steps)`; one entry for
    each name.
    """
    periods: dict[str, list[str]] = {}
    for event in events:
        texts = periods.setdefault(event.name, [])
        period = f"{event.period:,.4g}"
        if period not in texts:
            texts.append(period)
    return ", ".join(
        f"{name} (every {' or '.join(texts)} steps)" for name, texts in periods.items()
    )


def _possible_events_of_log(log: RunLog) -> Iterator[PeriodicEvent]:
    """The events by curves, settings and checkpoints; some have a period of 0, where two records share a step."""
    yield from _epoch_events(log)
    if may_group_by_length(log):
        devices = log.fact_as_number("devices")
        counts = (devices,) if devices else USUAL_PROCESS_COUNTS
        for count in counts:
            yield PeriodicEvent(LENGTH_GROUPING, GROUPED_STEPS / count)
    evaluations = log.curve("eval_loss").step
    if evaluations.size > 2:
        yield PeriodicEvent("evaluations", float(np.median(np.diff(evaluations))))
    for setting, name in EVENTS_OF_SETTINGS:
        number = log.fact_as_number(setting)
        if number is not None and number > 1:
            yield PeriodicEvent(name, number)
    if len(log.checkpoints) > 2:
        yield PeriodicEvent("checkpoints", float(np.median(np.diff(log.checkpoints))))


def _epoch_events(log: RunLog) -> Iterator[PeriodicEvent]:
    """The events of an epoch: rows that return in the same order, and the parts of an epoch that a
    sampler sorts.
    """
    epoch = log.curve("epoch").finite()
    passed = float(np.ptp(epoch.value)) if epoch else 0.0
    if passed <= 0:
        return
    an_epoch = float(np.ptp(epoch.step)) / passed
    yield PeriodicEvent("epochs", an_epoch, multiples=True)
    if (
        may_group_by_length(log)
        and MIN_GROUPED_STEPS * STRETCHES_OF_SHORT_EPOCH
        <= an_epoch
        < GROUPED_STEPS * STRETCHES_OF_SHORT_EPOCH
    ):
        yield PeriodicEvent(LENGTH_GROUPING, an_epoch / STRETCHES_OF_SHORT_EPOCH)


def may_group_by_length(log: RunLog) -> bool:
    """Does the log leave open whether batches are grouped by length? trainer_state.json never says."""
    grouped = log.facts.get("group_by_length")
    strategy = log.facts.get("train_sampling_strategy")
    if strategy is not None:
        return strategy == "group_by_length"
    return grouped is None or bool(grouped)
