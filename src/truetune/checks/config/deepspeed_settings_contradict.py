"""The DeepSpeed settings contradict the run's own settings.

## What it does
Compares the DeepSpeed settings (a file, or a table in the config) with the run's own: the schedule, the optimizer with
its learning rate, betas, epsilon and weight decay, the gradient clipping, the warm-up, the steps and the precision. It
compares only values that both set; "auto" takes the run's value. It also reports a file without `gradient_clipping`:
DeepSpeed then clips nothing, whatever `max_grad_norm` is. `deepspeed-batch-size-contradicts` checks batch sizes, and
`deepspeed-schedule-sets-another-rate` the peak of a schedule.

## Why it is bad
A `scheduler` or `optimizer` block silently replaces the run's schedule or optimizer. With `WarmupLR`, a run with
`lr_scheduler_type: cosine` stays at its peak learning rate to the end. If numbers or the precision differ, the Trainer
stops at the start.

## Example
```yaml
config:
  model_name_or_path: some/model
  dataset_name: some/rows
  max_length: 2048
  learning_rate: 0.00001
  lr_scheduler_type: cosine
  deepspeed:
    zero_optimization: {stage: 2}
    scheduler: {type: WarmupLR, params: {warmup_max_lr: auto, warmup_num_steps: auto}}
```

## Use instead
```yaml
config:
  model_name_or_path: some/model
  dataset_name: some/rows
  max_length: 2048
  learning_rate: 0.00001
  lr_scheduler_type: cosine
  deepspeed:
    zero_optimization: {stage: 2}
```

## Fix safety
Without the block, the Trainer creates its own schedule and optimizer. If DeepSpeed offloads the optimizer to the CPU,
the Trainer's optimizer also needs `zero_force_ds_cpu_optimizer: false`.

## References
- hiyouga/LlamaFactory#394, axolotl-ai-cloud/axolotl#909, modelscope/ms-swift#491
- axolotl-ai-cloud/axolotl#1381 (no gradient_clipping in the file)
- transformers/integrations/deepspeed.py (`fill_match`, `deepspeed_optim_sched`)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from truetune.checks.compare_deepspeed_with_run import (
    COURSES,
    does_deepspeed_replace_optimizer,
    does_deepspeed_replace_schedule,
)
from truetune.checks.config.evidence.deepspeed_settings_of_run import (
    AUTO,
    DeepspeedSettings,
    deepspeed_settings_of_run,
)
from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule
from truetune.settings.config import Config

NUMBERS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("optimizer", "params", "lr"), "learning_rate"),
    (("optimizer", "params", "weight_decay"), "weight_decay"),
    (("optimizer", "params", "eps"), "adam_epsilon"),
    (("scheduler", "params", "warmup_num_steps"), "warmup_steps"),
    (("scheduler", "params", "total_num_steps"), "max_steps"),
    (("gradient_clipping",), "max_grad_norm"),
)
"""What the Trainer compares: path of DeepSpeed's key, its own name"""
BETAS = ("optimizer", "params", "betas")
BETA_NAMES = ("adam_beta1", "adam_beta2")
HALVES = ("bf16", "fp16")
# The Trainer fills in what is "auto" and adds no missing block, so a half precision without one stays off.
ADVICE_ON_PRECISION = '; bf16 and fp16 both need a block with enabled: "auto"'
# Chosen to read: two fit a line of a terminal; the cases hold all of them.
MAX_TOLD = 2


class _Difference(NamedTuple):
    """A value of DeepSpeed's settings and the run's other one."""

    deepspeed: Case
    run: Case


class DeepspeedSettingsContradict(ConfigRule):
    code = "CFG161"
    fault = Fault.SETTINGS_CONTRADICT
    symptoms = ("loss-does-not-fall", "several-gpus")
    severity = "warning"

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Also unmet where the run has no DeepSpeed settings.
        """
        if not self.subject.raw.get("deepspeed"):
            return Unmet("it is about runs with DeepSpeed settings")
        return super().unmet()

    def measurement_if_clean(self) -> str:
        """That no setting is named in two ways."""
        return "DeepSpeed's settings name no other schedule, optimizer, precision or value"

    def findings(self) -> Iterator[Finding]:
        settings = deepspeed_settings_of_run(self.subject)
        if settings is None:
            return
        yield from self._findings_on_replaced_schedule(settings)
        yield from self._findings_on_replaced_optimizer(settings)
        yield from self._findings_on_missing_clipping(settings)
        yield from self._findings_on_values_that_stop_the_run(settings)

    def _findings_on_replaced_schedule(self, settings: DeepspeedSettings) -> Iterator[Finding]:
        """Findings on a schedule that replaces the one that the run names."""
        own = settings.get("scheduler", "type")
        wanted = _written_value(self.subject, "lr_scheduler_type")
        if not does_deepspeed_replace_schedule(own, wanted):
            return
        yield self.finding(
            f"the learning rate follows {own} from {settings.name} instead of the schedule {wanted}: it"
            f" {COURSES[own]}",
            f"remove the scheduler block from {settings.name}: the Trainer then uses {wanted}",
            cases=[
                settings.case("scheduler", "type"),
                _case_of_run(self.subject, "lr_scheduler_type", wanted),
            ],
        )

    def _findings_on_replaced_optimizer(self, settings: DeepspeedSettings) -> Iterator[Finding]:
        """Findings on an optimizer that replaces the one that the run names."""
        own = settings.get("optimizer", "type")
        wanted = _written_value(self.subject, "optim")
        if not does_deepspeed_replace_optimizer(own, wanted):
            return
        yield self.finding(
            f"the optimizer is {own} from {settings.name} instead of {wanted}",
            f"remove the optimizer block from {settings.name}, or name the same optimizer in both",
            cases=[
                settings.case("optimizer", "type"),
                _case_of_run(self.subject, "optim", wanted),
            ],
        )

    def _findings_on_missing_clipping(self, settings: DeepspeedSettings) -> Iterator[Finding]:
        """The finding on gradients that DeepSpeed does not clip, because its settings do not say it."""
        wanted = _written_value(self.subject, "max_grad_norm")
        if settings.value.get("gradient_clipping") is not None or not _as_number(wanted):
            return
        yield self.finding(
            f"gradients are not clipped: max_grad_norm {wanted} only reaches DeepSpeed through gradient_clipping,"
            f" which {settings.name} does not have",
            f'add "gradient_clipping": "auto" to {settings.name}',
            cases=[
                _case_of_run(self.subject, "max_grad_norm", wanted),
                replace(settings.case("gradient_clipping"), text="gradient_clipping: not set"),
            ],
        )

    def _findings_on_values_that_stop_the_run(
        self, settings: DeepspeedSettings
    ) -> Iterator[Finding]:
        """Findings on numbers and precisions that the Trainer compares."""
        precisions = list(_differing_precisions(self.subject, settings))
        contradictions = [*_differing_numbers(self.subject, settings), *precisions]
        if not contradictions:
            return
        texts = [
            f"{one.deepspeed.text} against {one.run.text}" for one in contradictions[:MAX_TOLD]
        ]
        more = (
            f", and {len(contradictions) - MAX_TOLD} more" if len(contradictions) > MAX_TOLD else ""
        )
        yield self.finding(
            f"{settings.name} contradicts the run's settings ({'; '.join(texts)}{more}): the Trainer stops at the"
            " start",
            f'write "auto" for {"it" if len(contradictions) == 1 else "each of them"} in {settings.name}:'
            f" the Trainer fills in its own value{ADVICE_ON_PRECISION if precisions else ''}",
            severity="error",
            cases=[case for one in contradictions for case in one],
        )


def _written_value(config: Config, name: str) -> object:
    """The value that the file itself sets for a setting; None where it sets none, or "auto"."""
    if f"training.{name}" in config.places:
        value = getattr(config.spec.training, name)
        # What "auto" is read as is a guess, and so is what a key of another name was turned into.
        return None if config.raw.get(name) == AUTO else value
    return config.raw.get(name)


def _case_of_run(config: Config, name: str, value: object) -> Case:
    """A case for a message: a setting of the run."""
    return setting_case(config, value, f"training.{name}", name)


def _differing_numbers(config: Config, settings: DeepspeedSettings) -> Iterator[_Difference]:
    """Numbers of DeepSpeed's settings, each with the other one of the run."""
    for way, name in NUMBERS:
        wanted = _written_value(config, name)
        # Below 1, and without a limit of steps, the run's number is no number of steps.
        if way[-1].endswith("num_steps") and not (_as_number(wanted) or 0) >= 1:
            continue
        if _are_different_numbers(settings.get(*way), wanted):
            yield _Difference(settings.case(*way), _case_of_run(config, name, wanted))
    betas = settings.get(*BETAS)
    if not isinstance(betas, list) or len(betas) != len(BETA_NAMES):
        return
    for beta, name in zip(betas, BETA_NAMES, strict=True):
        wanted = _written_value(config, name)
        if _are_different_numbers(beta, wanted):
            yield _Difference(settings.case(*BETAS), _case_of_run(config, name, wanted))


def _differing_precisions(config: Config, settings: DeepspeedSettings) -> Iterator[_Difference]:
    """Precisions that DeepSpeed's settings switch on or off, each with the run's other word."""
    for half, other in (HALVES, HALVES[::-1]):
        own = settings.get(half, "enabled")
        wanted, rival = _written_value(config, half), _written_value(config, other)
        if not isinstance(own, bool):
            continue
        if isinstance(wanted, bool) and own is not wanted:
            yield _Difference(settings.case(half, "enabled"), _case_of_run(config, half, wanted))
        elif own and wanted is None and rival is True:
            yield _Difference(settings.case(half, "enabled"), _case_of_run(config, other, rival))


def _are_different_numbers(one: object, other: object) -> bool:
    """Are both numbers, and not the same?"""
    first, second = _as_number(one), _as_number(other)
    return first is not None and second is not None and first != second


def _as_number(value: object) -> float | None:
    """A number, also one that is written as text (`1e-5` is text in YAML); None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        return None
