"""The DeepSpeed schedule replaces the learning rate in the settings.

## What it does
Reads the `scheduler` block of the run's DeepSpeed settings (a file, or a table in the config). `WarmupLR`,
`WarmupDecayLR`, `LRRangeTest` and `OneCycle` set the learning rate themselves; `warmup_max_lr` is 0.001 by default. The
rule fires if that differs from the learning rate in the settings by a factor of two or more. "auto" takes the learning
rate of the settings and `WarmupCosineLR` scales it: both are fine. A `warmup_max_lr` that is written and differs stops
the run at the start, because the Trainer compares the two.

## Why it is bad
The Trainer only compares `warmup_max_lr` with its own learning rate if it is written. Without it, full fine-tuning at
1e-5 trains at 1e-3 and the loss jumps; an adapter at 2e-4 trains at five times the intended rate.

## Example
```yaml
config:
  model_name_or_path: some/model
  dataset_name: some/rows
  max_length: 2048
  learning_rate: 0.00001
  deepspeed: {zero_optimization: {stage: 2}, scheduler: {type: WarmupLR, params: {warmup_num_steps: 100}}}
```

## Use instead
```yaml
config:
  model_name_or_path: some/model
  dataset_name: some/rows
  max_length: 2048
  learning_rate: 0.00001
  deepspeed:
    zero_optimization: {stage: 2}
    scheduler: {type: WarmupLR, params: {warmup_num_steps: 100, warmup_max_lr: auto}}
```

## Fix safety
Safe: the Trainer replaces "auto" by `learning_rate`. Without the scheduler block, the Trainer uses its own schedule
(`lr_scheduler_type`).

## References
- deepspeed/runtime/lr_schedules.py, transformers/integrations/deepspeed.py (`trainer_config_finalize`)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.faults import Fault
from truetune.checks.find_deepspeed_schedule_rate import ScheduleRate, peak_rate_of_schedule
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.read_settings_in_launch_files import find_in_folder_or_parents
from truetune.checks.rule import ConfigRule
from truetune.errors import TruetuneError
from truetune.settings import located_document

FILLED_BY_TRAINER = "warmup_max_lr"
"""The one peak that the Trainer fills in for "auto", and compares with its own rate where it is written"""


class _NamedSchedule(NamedTuple):
    """The schedule of a run's DeepSpeed settings, and where it stands."""

    rate: ScheduleRate
    file: str
    line: int | None


class DeepspeedScheduleSetsAnotherRate(ConfigRule):
    code = "CFG100"
    fault = Fault.ANOTHER_LEARNING_RATE_APPLIES
    symptoms = ("loss-does-not-fall", "nothing-is-learned")
    severity = "error"
    about = ("training.learning_rate",)

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Also unmet where the run has no DeepSpeed settings.
        """
        if not self.subject.raw.get("deepspeed"):
            return Unmet("it is about runs with DeepSpeed settings")
        return super().unmet()

    def measurement_if_clean(self) -> str:
        """What was measured: the settings' learning rate, and the one of DeepSpeed's schedule."""
        rate = self.subject.spec.training.learning_rate
        named_schedule = self._deepspeed_schedule()
        scheduled = (
            f"{named_schedule.rate.schedule} up to {named_schedule.rate.peak:g}"
            if named_schedule
            else "sets none"
        )
        return f"learning_rate {rate}, the schedule of the DeepSpeed settings {scheduled}"

    def findings(self) -> Iterator[Finding]:
        config = self.subject
        rate = config.spec.training.learning_rate
        named_schedule = self._deepspeed_schedule()
        if named_schedule is None or not rate or not named_schedule.rate.differs_from(rate):
            return
        is_table = isinstance(config.raw.get("deepspeed"), Mapping)
        written = f"{named_schedule.rate.key} {named_schedule.rate.peak:g}"
        text = f"scheduler {named_schedule.rate.schedule}: " + (
            written if named_schedule.rate.is_written else f"{written} by default"
        )
        yield self.finding(
            _describe_rate_in_force(named_schedule.rate, rate),
            _advise_how_rate_takes_force(named_schedule, rate),
            cases=[
                setting_case(config, f"{rate:g}", "training.learning_rate"),
                setting_case(config, text, "deepspeed")
                if is_table
                else Case(text, file=named_schedule.file, line=named_schedule.line),
            ],
        )

    def _deepspeed_schedule(self) -> _NamedSchedule | None:
        """The schedule of the DeepSpeed settings; None where they are not here, or set no rate."""
        config = self.subject
        value = config.raw.get("deepspeed")
        if isinstance(value, Mapping):
            rate = peak_rate_of_schedule(value)
            return None if rate is None else _NamedSchedule(rate, config.path, None)
        if not isinstance(value, str):
            return None
        path = find_in_folder_or_parents(Path(config.path).parent, value)
        try:
            document = located_document.read_located_document(path) if path is not None else None
        except (TruetuneError, OSError, ValueError):
            return None
        rate = peak_rate_of_schedule(document.value) if document is not None else None
        if rate is None or document is None:
            return None
        spot = document.position_of_key(
            "scheduler", "params", rate.key
        ) or document.position_of_key("scheduler", "type")
        return _NamedSchedule(rate, str(path), spot.line if spot is not None else 1)


def _describe_rate_in_force(scheduled: ScheduleRate, rate: float) -> str:
    """What becomes of the settings' learning rate under the schedule, in words."""
    if scheduled.is_written and scheduled.key == FILLED_BY_TRAINER:
        return (
            f"the run stops at the start: {scheduled.key} {scheduled.peak:g} of the schedule {scheduled.schedule}"
            f" differs from learning_rate {rate:g}"
        )
    return scheduled.describe_effect_on_rate(rate)


def _advise_how_rate_takes_force(found: _NamedSchedule, rate: float) -> str:
    """Advice how the settings' rate becomes the one in force."""
    name = Path(found.file).name
    if found.rate.key != FILLED_BY_TRAINER:
        return found.rate.advise_how_rate_takes_force(rate, name)
    return (
        f'write "{found.rate.key}": "auto" in the scheduler\'s params of {name} (the Trainer fills in learning_rate),'
        " or remove the scheduler block"
    )
