"""Answers come from another engine than the trainer's, and the importance correction is switched off.

## What it does
Looks at trainings by rewards that sample with an engine of their own and switch the correction off: TRL with `use_vllm`
and `vllm_importance_sampling_correction: false`; and at verl and NeMo RL if the engine is quantized to fp8 and nothing
corrects for it (`algorithm.rollout_correction`, `loss_fn.use_importance_sampling_correction`).

## Why it is bad
vLLM and the trainer give the same token different probabilities, from other kernels and other rounding. Without a
correction the gradient is that of a policy which did not write the answers. The differences are small per token (0.01)
and add up over long answers; with fp8 or mixtures of experts they are ten times larger, and runs collapse after some
hundred steps.

## Example
```yaml
config:
  model_name_or_path: some/model
  dataset_name: some/rows
  num_generations: 8
  max_completion_length: 512
  use_vllm: true
  vllm_importance_sampling_correction: false
```

## Use instead
```yaml
config:
  model_name_or_path: some/model
  dataset_name: some/rows
  num_generations: 8
  max_completion_length: 512
  use_vllm: true
  vllm_importance_sampling_correction: true
```

## Fix safety
The correction drops or weighs down answers whose ratio is far from 1. If the log then shows that most are dropped, the
engine has other weights or other sampling settings: find that cause instead of switching the correction off.

## References
- huggingface/trl#3867 (why the correction is there), huggingface/trl#4772 (it does not cause the ratios, it handles
  them), linkedin/Liger-Kernel#1088 (gradients 100 times larger without it), verl-project/verl#3694
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from truetune.checks.config.evidence.settings_of_reward_training import (
    RewardTrainingSetting,
    case_of_setting,
    setting_or_default,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule
from truetune.settings.stacks.read_nested_rl_settings import ROLLOUT


class Correction(NamedTuple):
    """The settings by which a program corrects for its sampling engine."""

    engine: str
    """The setting that makes the engine differ"""
    engine_values: tuple[str, ...]
    """Values of it with which it differs, in small letters"""
    switch: str
    is_off_by_default: bool
    value_that_corrects: str


CORRECTIONS: Mapping[str, Correction] = {
    "trl": Correction("use_vllm", ("true",), "vllm_importance_sampling_correction", False, "true"),
    # verl's default has no correction: only an engine that surely computes otherwise is worth a word.
    "verl": Correction(
        f"{ROLLOUT}.quantization",
        ("fp8",),
        "algorithm.rollout_correction.rollout_is",
        True,
        "token",
    ),
    "nemo-rl": Correction(
        "policy.generation.vllm_cfg.precision",
        ("fp8",),
        "loss_fn.use_importance_sampling_correction",
        True,
        "true",
    ),
}
"""Stack -> its correction"""
OFF_VALUES = ("false", "none", "null")


class SamplingEngineIsNotCorrectedFor(ConfigRule):
    code = "CFG206"
    fault = Fault.TRAINED_COMPLETIONS_NOT_AS_SAMPLED
    severity = "warning"
    symptoms = ("reward-does-not-rise",)
    methods = ("grpo",)
    stacks = tuple(CORRECTIONS)

    def unmet(self) -> Unmet | None:
        """Also unmet where the answers are not sampled by an engine that computes otherwise."""
        if (lacking := super().unmet()) is not None:
            return lacking
        correction = CORRECTIONS[self.subject.stack]
        engine = setting_or_default(self.subject, correction.engine)
        if engine.value_as_text.lower() not in correction.engine_values:
            return Unmet(
                "it is about sampling by an engine that computes otherwise than the trainer"
            )
        return None

    def measurement_if_clean(self) -> str:
        """The switch of the correction, as 0 or 1."""
        return f"{CORRECTIONS[self.subject.stack].switch}: {int(not self._is_off())}"

    def findings(self) -> Iterator[Finding]:
        """The finding on an engine without a correction."""
        if self.unmet() is not None or not self._is_off():
            return
        config = self.subject
        correction = CORRECTIONS[config.stack]
        engine = setting_or_default(config, correction.engine)
        state = "is off" if self._switch().is_written else "is not set"
        yield self.finding(
            f"answers are sampled with {engine.key} {engine.value_as_text}, and {correction.switch} {state}: nothing"
            " corrects for the difference between the engine's probabilities and the trainer's",
            f"set {correction.switch} to {correction.value_that_corrects}",
            cases=[case_of_setting(config, engine), case_of_setting(config, self._switch())],
        )

    def _switch(self) -> RewardTrainingSetting:
        """The setting that switches the correction on."""
        return setting_or_default(self.subject, CORRECTIONS[self.subject.stack].switch)

    def _is_off(self) -> bool:
        """Is the correction surely off?"""
        switch = self._switch()
        if not switch.is_written:
            return CORRECTIONS[self.subject.stack].is_off_by_default
        return switch.value is not None and switch.value_as_text.lower() in OFF_VALUES
