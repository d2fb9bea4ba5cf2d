"""Finds the learning rate that a schedule in DeepSpeed's settings runs at, whatever the optimizer
is given.

`WarmupLR` and `WarmupDecayLR` set the rate of each parameter group to `warmup_max_lr`, which is 0.001 where it is not
written; `LRRangeTest` begins at 0.001 likewise; `OneCycle` has its own peak. `WarmupCosineLR` scales the rate of the
optimizer, and replaces nothing. Source: deepspeed/runtime/lr_schedules.py, DeepSpeed 0.17.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

DEFAULT_PEAK = 0.001
"""The peak that DeepSpeed's schedules take if `warmup_max_lr` is not written"""
PEAK_KEYS: Mapping[str, str] = {
    "WarmupLR": "warmup_max_lr",
    "WarmupDecayLR": "warmup_max_lr",
    "LRRangeTest": "lr_range_test_min_lr",
    "OneCycle": "cycle_max_lr",
}
"""Schedules that set the rate themselves, each with the key of its peak"""
WITHOUT_DEFAULT = ("OneCycle",)
BEGINS_AT_KEY = ("LRRangeTest",)
"""Schedules whose key is where they begin: the rate only grows from there"""
# Chosen, not measured: a rate that is rounded or set twice differs by less, and one that is wrong by more.
FACTOR = 2.0
"""How far the schedule's rate is from the written one, as a factor, before it is another rate"""


class ScheduleRate(NamedTuple):
    """The peak that a schedule sets."""

    schedule: str
    """`WarmupLR`"""
    key: str
    """`warmup_max_lr`"""
    peak: float
    is_written: bool
    """It stands in the settings; else it is DeepSpeed's default"""

    def differs_from(self, rate: float) -> bool:
        """Is the peak another rate than this one?"""
        return rate > 0 and not 1 / FACTOR < self.peak / rate < FACTOR

    def describe_effect_on_rate(self, rate: float) -> str:
        """What the schedule does to the written rate, as one sentence."""
        whose = (
            "as written" if self.is_written else f"DeepSpeed's default, since {self.key} is not set"
        )
        reach = "begins at" if self.schedule in BEGINS_AT_KEY else "is up to"
        return (
            f"the learning rate {reach} {self.peak:g} instead of {rate:g}: the schedule {self.schedule} sets it"
            f" ({self.key} {self.peak:g}, {whose})"
        )

    def advise_how_rate_takes_force(self, rate: float, file: str) -> str:
        """Advice on how the written rate becomes the one that is used."""
        own = f'"scheduler": {{"params": {{"{self.key}": {rate:g}}}}} in {file}'
        return f"write {own}, or remove the scheduler block; lr in the log shows the learning rate that is used"


def peak_rate_of_schedule(settings: object) -> ScheduleRate | None:
    """The peak rate that the schedule in DeepSpeed's settings sets; None if none sets one, or if
    its value is not known.
    """
    block = _table_under_key(settings, "scheduler")
    kind, params = block.get("type"), _table_under_key(block, "params")
    if not isinstance(kind, str) or kind not in PEAK_KEYS:
        return None
    key = PEAK_KEYS[kind]
    written = params.get(key)
    if written is None:
        return None if kind in WITHOUT_DEFAULT else ScheduleRate(kind, key, DEFAULT_PEAK, False)
    peak = positive_rate(written[0] if isinstance(written, list) and written else written)
    return None if peak is None else ScheduleRate(kind, key, peak, True)


def _table_under_key(settings: object, key: str) -> Mapping[str, Any]:
    """The table under a key of settings; empty if there is none."""
    value = settings.get(key) if isinstance(settings, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def optimizer_rate(settings: object) -> float | None:
    """`optimizer.params.lr` of DeepSpeed's settings; None where it is not written, or "auto"."""
    block = settings.get("optimizer") if isinstance(settings, Mapping) else None
    params = block.get("params") if isinstance(block, Mapping) else None
    return positive_rate(params.get("lr")) if isinstance(params, Mapping) else None


def positive_rate(value: Any) -> float | None:
    """A rate as a number, also one that is written as a text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        rate = float(value)
    except ValueError:
        return None
    return rate if 0 < rate < float("inf") else None
