"""The learning rate rises again, and the run ends at a high one.

## What it does
Computes which share of the peak learning rate the schedule has at the end of the run, from its name and its settings:
`num_cycles` of a cosine (transformers' `lr_scheduler_kwargs`, torchtune's `lr_scheduler`, verl's `optim`), `min_lr` and
`min_lr_rate` of `cosine_with_min_lr`, Axolotl's `cosine_min_lr_ratio`, and the lowest rate of LitGPT and Megatron-LM
(`min_lr`). It fires if the learning rate falls and then rises above half of its peak by the last step, or if the
minimum is set above the peak.

## Why it is bad
`num_cycles` of a cosine counts waves. 0.5, the default, falls from the peak to 0. 1 falls to 0 in the middle and is
back at the peak at the last step. The saved weights come right after steps at the full learning rate, which undo the
fine adjustment of the low ones. The loss falls, and rises towards the end.

## Example
```yaml
config:
  model_name_or_path: some/model
  dataset_name: some/rows
  max_length: 2048
  learning_rate: 0.0002
  lr_scheduler_type: cosine
  lr_scheduler_kwargs: {num_cycles: 1}
```

## Use instead
```yaml
config:
  model_name_or_path: some/model
  dataset_name: some/rows
  max_length: 2048
  learning_rate: 0.0002
  lr_scheduler_type: cosine
  lr_scheduler_kwargs: {num_cycles: 0.5}
```

## Fix safety
The learning rate then falls to the end of the run. For several falls from the peak to 0, use `cosine_with_restarts`,
whose `num_cycles` counts restarts.

## References
- transformers, src/transformers/optimization.py (`get_cosine_schedule_with_warmup`: "the number of waves in the cosine
  schedule"); torchtune, training/lr_schedulers.py
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from truetune.checks.config.evidence.setting_places_and_known_keys import (
    setting_case,
    value_at_dotted_key,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.hyperparameter_limits import parse_setting_number
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule
from truetune.settings.config import Config
from truetune.settings.stacks.read_nested_rl_settings import ACTOR

WAVES_OF_FALL = 0.5
"""Waves of a cosine that fall from the peak to 0, and no further"""
HIGH_END = 0.5
"""Share of the peak at the end that no schedule is meant to have after a fall"""
KWARGS = "lr_scheduler_kwargs"
MINIMUM_SHARE_OF_AXOLOTL = "cosine_min_lr_ratio"
MINIMUM_RATE = {"litgpt": "train.min_lr", "megatron-lm": "min_lr"}
"""Stack -> its setting of the lowest learning rate, a number and no share of the peak"""
COSINES = ("cosine", "cosine_with_min_lr", "cosine_warmup_with_min_lr")
"""Schedules of transformers whose `num_cycles` counts waves"""


class Waves(NamedTuple):
    """The settings of a cosine."""

    cycles: float
    cycles_key: str
    lowest: float
    """Share of the peak"""
    lowest_key: str

    @property
    def share_of_peak_rate_at_end(self) -> float:
        """The share of the peak rate at the last step."""
        height = 0.5 * (1 + math.cos(2 * math.pi * self.cycles))
        return height * (1 - self.lowest) + self.lowest


class ScheduleEndsAtAHighRate(ConfigRule):
    code = "CFG183"
    fault = Fault.SCHEDULE_LENGTH_OR_DIRECTION_WRONG
    symptoms = ("loss-does-not-fall",)
    severity = "warning"

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Also unmet where no cosine has settings of its own.
        """
        if (lacking := super().unmet()) is not None:
            return lacking
        if _cosine_waves_of_run(self.subject) is None and _minimum_rate(self.subject) is None:
            return Unmet("it is about a cosine whose cycles or lowest rate are set")
        return None

    def measurement_if_clean(self) -> str:
        """What was measured: the share of the peak at the end."""
        waves = _cosine_waves_of_run(self.subject)
        if waves is None:
            return f"the lowest rate is {_minimum_rate(self.subject)}"
        return f"the last step has {waves.share_of_peak_rate_at_end:.0%} of the peak rate"

    def _findings_on_minimum_above_peak(self) -> Iterator[Finding]:
        """The finding on a schedule that does not fall, because its lowest rate is above its highest."""
        config, lowest = self.subject, _minimum_rate(self.subject)
        peak = config.spec.training.learning_rate
        if lowest is None or peak is None or lowest <= peak:
            return
        key = MINIMUM_RATE.get(config.stack, MINIMUM_SHARE_OF_AXOLOTL)
        cure = (
            "to 0.1"
            if key == MINIMUM_SHARE_OF_AXOLOTL
            else "below the learning rate (10 % of it is usual)"
        )
        yield self.finding(
            f"the lowest learning rate is {lowest:g} and the highest {peak:g}: after the warm-up the rate rises to the"
            " end",
            f"set {key} {cure}",
            cases=[
                setting_case(config, value_at_dotted_key(config.raw, key), key),
                setting_case(config, f"{peak:g}", "training.learning_rate"),
            ],
        )

    def findings(self) -> Iterator[Finding]:
        yield from self._findings_on_minimum_above_peak()
        config, waves = self.subject, _cosine_waves_of_run(self.subject)
        if waves is None:
            return
        if waves.lowest > 1:
            yield self.finding(
                f"{waves.lowest_key} sets the minimum learning rate to {waves.lowest:g} times the peak, so it rises"
                " to the end of the run",
                f"set {waves.lowest_key} so that the minimum is below the learning rate (10 % of it is usual)",
                cases=[
                    setting_case(
                        config, value_at_dotted_key(config.raw, waves.lowest_key), waves.lowest_key
                    )
                ],
            )
        elif waves.cycles > WAVES_OF_FALL and waves.share_of_peak_rate_at_end > HIGH_END:
            yield self.finding(
                f"with {waves.cycles_key} {waves.cycles:g}, the run ends at {waves.share_of_peak_rate_at_end:.0%} of"
                " the peak learning rate: each cycle of this cosine falls and rises again",
                f"set {waves.cycles_key} to {WAVES_OF_FALL:g}, or remove it",
                cases=[setting_case(config, f"{waves.cycles:g}", waves.cycles_key)],
            )


def _minimum_rate(config: Config) -> float | None:
    """The lowest learning rate that LitGPT or Megatron-LM is told; None where none is."""
    if config.stack == "axolotl":
        share = parse_setting_number(config.raw.get(MINIMUM_SHARE_OF_AXOLOTL))
        peak = config.spec.training.learning_rate
        return share * peak if share is not None and peak is not None else None
    key = MINIMUM_RATE.get(config.stack)
    return None if key is None else parse_setting_number(value_at_dotted_key(config.raw, key))


def _cosine_waves_of_run(config: Config) -> Waves | None:
    """The cosine of a run that sets its cycles or its lowest rate; None for others."""
    table = _cosine_key_and_settings(config)
    if table is None:
        return None
    prefix, values = table
    cycles = parse_setting_number(values.get("num_cycles"))
    lowest, lowest_name = _lowest_rate_share_and_setting(values, config.spec.training.learning_rate)
    if cycles is None and lowest is None:
        return None
    return Waves(
        WAVES_OF_FALL if cycles is None else cycles,
        f"{prefix}.num_cycles",
        lowest or 0.0,
        f"{prefix}.{lowest_name}",
    )


def _cosine_key_and_settings(config: Config) -> tuple[str, Mapping[str, Any]] | None:
    """The settings of a cosine's own, and the key of their table."""
    if config.stack == "torchtune":
        return _torchtune_cosine_key_and_settings(config)
    if config.stack == "verl":
        return _verl_cosine_key_and_settings(config)
    table = config.raw.get(KWARGS)
    schedule = str(config.spec.training.lr_scheduler_type or "").removeprefix("SchedulerType.")
    if not isinstance(table, Mapping) or schedule.lower() not in COSINES:
        return None
    return KWARGS, table


def _torchtune_cosine_key_and_settings(config: Config) -> tuple[str, Mapping[str, Any]] | None:
    """The table of torchtune's scheduler with its key; None where it is no cosine."""
    table = config.raw.get("lr_scheduler")
    if not isinstance(table, Mapping) or "cosine" not in str(table.get("_component_")):
        return None
    return "lr_scheduler", table


def _verl_cosine_key_and_settings(config: Config) -> tuple[str, Mapping[str, Any]] | None:
    """The cycles of verl's schedule with the key of their table; None where it is no cosine."""
    prefix = "optim" if config.spec.training.method == "sft" else f"{ACTOR}.optim"
    table = value_at_dotted_key(config.raw, prefix)
    if not isinstance(table, Mapping):
        return None
    # By default the rate is constant, and `warmup_style` is the earlier name.
    names = {str(table.get(key)) for key in ("lr_scheduler_type", "warmup_style")}
    return (prefix, {"num_cycles": table.get("num_cycles")}) if "cosine" in names else None


def _lowest_rate_share_and_setting(
    values: Mapping[str, Any], peak: float | None
) -> tuple[float | None, str]:
    """The lowest rate as a share of the peak, and the setting that gives it."""
    share = parse_setting_number(values.get("min_lr_rate"))
    if share is not None:
        return share, "min_lr_rate"
    lowest = parse_setting_number(values.get("min_lr"))
    return (lowest / peak if lowest is not None and peak else None), "min_lr"
