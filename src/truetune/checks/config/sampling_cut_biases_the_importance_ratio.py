"""Answers are sampled with top_p, top_k or min_p, but the importance ratio compares with the whole distribution.

## What it does
Looks at trainings by rewards that correct for the sampling engine by an importance ratio: TRL with `use_vllm` and
`vllm_importance_sampling_correction` (its default), ms-swift with `rollout_importance_sampling_mode`, verl with
`algorithm.rollout_correction.rollout_is`. It warns if `top_p` is below 0.95, `top_k` below 10, or a repetition penalty
is set. A milder `top_p`, `top_k` or a `min_p` is a note.

## Why it is bad
The engine's log-probabilities are those of the distribution that is left after the cut. The trainer computes its own
over the whole vocabulary. Their ratio is the probability that the cut leaves, and no change of the policy: at
`top_p: 0.8` it is 0.9 on average, and half of the tokens are below 0.9. Over a whole answer the factors multiply, so
answers are weighted down by their length, or masked out.

## Example
```yaml
config:
  model_name_or_path: some/model
  dataset_name: some/rows
  num_generations: 8
  max_completion_length: 512
  use_vllm: true
  top_p: 0.8
```

## Use instead
```yaml
config:
  model_name_or_path: some/model
  dataset_name: some/rows
  num_generations: 8
  max_completion_length: 512
  use_vllm: true
  top_p: 1.0
```

## Fix safety
Answers become more varied, and a few may hold rare tokens. If the policy needs the cut to write sensible text, lower
the temperature to 0.9 instead: the trainer divides its logits by the temperature too.

## References
- huggingface/trl#6789 (the ratio is the mass that the cut leaves), huggingface/trl#7269 (measured: mean 0.896 at top_p
  0.8), modelscope/ms-swift#8442, PrimeIntellect-ai/prime-rl#2601
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from truetune.checks.config.evidence.settings_of_reward_training import (
    RewardTrainingSetting,
    SettingName,
    case_of_setting,
    reward_training_setting,
    setting_or_default,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule
from truetune.settings.config import Config
from truetune.settings.stacks.config_draft import is_switched_on

CUTTING_SETTINGS: tuple[SettingName, ...] = ("top_p", "top_k", "min_p", "repetition penalty")
# The ratio is 0.896 on average at top_p 0.8, and 0.965 at top_k 20 (trl#7269); TRL's own examples sample at top_k 10
# and 50.
MIN_MILD_TOP_P, MIN_MILD_TOP_K = 0.95, 10
CORRECTION_KEYS: Mapping[str, tuple[str, object]] = {
    "trl": ("vllm_importance_sampling_correction", True),
    "ms-swift": ("rollout_importance_sampling_mode", None),
    "verl": ("algorithm.rollout_correction.rollout_is", None),
}
"""Stack -> the setting that switches the ratio on, and its default"""
ENGINE_KEYS = {"trl": "use_vllm", "ms-swift": "use_vllm"}
"""Stack -> the setting that switches the sampling engine on; verl always has one"""


class SamplingCutBiasesTheImportanceRatio(ConfigRule):
    code = "CFG200"
    fault = Fault.TRAINED_COMPLETIONS_NOT_AS_SAMPLED
    severity = "warning"
    symptoms = ("reward-does-not-rise",)
    methods = ("grpo",)
    stacks = tuple(CORRECTION_KEYS)

    def unmet(self) -> Unmet | None:
        """Also unmet where no importance ratio is computed against the engine."""
        if (lacking := super().unmet()) is not None:
            return lacking
        if not _is_ratio_computed(self.subject):
            return Unmet("it is about trainings that correct for the sampling engine by a ratio")
        return None

    def measurement_if_clean(self) -> str:
        """The settings that may cut the distribution."""
        settings = (reward_training_setting(self.subject, name) for name in CUTTING_SETTINGS)
        known = [one for one in settings if one.value is not None]
        return ", ".join(f"{one.key}: {one.value_as_text}" for one in known)

    def findings(self) -> Iterator[Finding]:
        """The finding on the settings that cut the distribution."""
        if self.unmet() is not None:
            return
        cutting = _cutting_settings(self.subject)
        if not cutting:
            return
        names = " and ".join(f"{one.key} {one.value_as_text}" for one in cutting)
        yield self.finding(
            f"answers are sampled with {names}, and the importance ratio compares the engine's log-probabilities with"
            " those of the whole distribution: the ratio is below 1 by what the cut leaves out",
            f"remove {' and '.join(one.key for one in cutting)}, so that answers are drawn from the whole distribution",
            severity="warning" if any(map(_cuts_deeply, cutting)) else "info",
            cases=[case_of_setting(self.subject, one) for one in cutting],
        )


def _is_ratio_computed(config: Config) -> bool:
    """Does the training compute an importance ratio against the engine that samples?"""
    key, default = CORRECTION_KEYS[config.stack]
    correction = setting_or_default(config, key, default).value
    engine_key = ENGINE_KEYS.get(config.stack)
    has_engine = engine_key is None or is_switched_on(setting_or_default(config, engine_key).value)
    return has_engine and correction not in (None, False, "null", "none")


def _cutting_settings(config: Config) -> list[RewardTrainingSetting]:
    """The settings that take tokens out of the distribution, or reweight it."""
    cutting = []
    for name in CUTTING_SETTINGS:
        setting = reward_training_setting(config, name)
        if _does_cut(name, setting.number):
            cutting.append(setting)
    return cutting


def _cuts_deeply(setting: RewardTrainingSetting) -> bool:
    """Does a setting change the ratio by a twentieth and more, by what TRL's users measured?"""
    last = setting.key.rpartition(".")[2]
    assert setting.number is not None, "it cuts"
    if last == "top_p":
        return setting.number < MIN_MILD_TOP_P
    return last == "repetition_penalty" or (last == "top_k" and setting.number < MIN_MILD_TOP_K)


def _does_cut(name: SettingName, value: float | None) -> bool:
    """Does a value of one of these settings change the distribution?"""
    if value is None:
        return False
    if name == "top_p":
        return value < 1
    # 0 and -1 both switch them off.
    return value != 1 if name == "repetition penalty" else value > 0
