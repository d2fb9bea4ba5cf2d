"""The weights are trained in bfloat16, in which such small updates are rounded away.

## What it does
For runs that train the weights in bfloat16 without a float32 copy (plain AdamW or Lion; no FSDP or DeepSpeed in the
settings, a command or a file next to them). The learning rate is about how far a weight moves in one step. The rule
compares it with half the distance to the next bfloat16 number, for the weights on this machine or else for a typical
weight of 0.02. It fires if the file sets bfloat16 weights (`pure_bf16`, the dtype that a model is loaded in) or if the
weights are known. It does not fire if the program freezes parameters itself, since it is then unknown which are
trained.

## Why it is bad
bfloat16 keeps 8 significant bits: near 0.02 its numbers are 0.00012 apart, near 1 they are 0.0078 apart. A smaller
update is rounded back to the old value, in every step. The loss falls a little and stops; norm weights never change.
After 20 AdamW steps at 1e-5, 84 % of the linear weights were bit-identical.

## Example
```yaml
files:
  model/config.json: {model_type: llama, dtype: bfloat16}
config:
  model_name_or_path: model
  stage: sft
  do_train: true
  dataset: rows
  finetuning_type: full
  pure_bf16: true
  learning_rate: 0.00001
```

## Use instead
```yaml
files:
  model/config.json: {model_type: llama, dtype: bfloat16}
config:
  model_name_or_path: model
  stage: sft
  do_train: true
  dataset: rows
  finetuning_type: full
  bf16: true
  learning_rate: 0.00001
```

## Fix safety
With LLaMA-Factory replace `pure_bf16: true` by `bf16: true`; with others load the model as float32 and set `bf16:
true`. float32 weights take 2 bytes more per weight, and the gradients and optimizer states that are kept in float32 up
to 6 more. An optimizer with Kahan summation or stochastic rounding costs less memory.

## References
- huggingface/sentence-transformers#3773, pytorch/torchtune#2254, pytorch/ao#1124, vllm-project/speculators#668
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from truetune.checks.config.evidence.do_adamw_rates_apply import is_optimizer_decided_beside_optim
from truetune.checks.config.evidence.facts_from_model_folder import (
    sample_linear_weights,
    stored_dtype,
)
from truetune.checks.config.evidence.setting_places_and_known_keys import (
    is_config_of_python_program,
    is_value_unknown,
    setting_case,
    setting_place,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import ConfigRule
from truetune.checks.source.evidence.does_script_train_sharded_weights import (
    may_keep_float32_weights,
)
from truetune.settings.config import Config

PLAIN_OPTIMIZERS = (
    "adamw_torch",
    "adamw_torch_fused",
    "adamw_torch_8bit",
    "adamw_hf",
    "adamw_8bit",
    "adamw_bnb_8bit",
    "paged_adamw",
    "paged_adamw_32bit",
    "paged_adamw_8bit",
    "lion",
    "lion_32bit",
    "lion_8bit",
)
"""Optimizers that add the step to the weight as it is; their step is about the learning rate."""
TYPICAL_WEIGHT = 0.02
"""Size of a weight where the weights are not available: the usual standard deviation at the start"""

FAR_FACTOR = 30
"""So many times smaller than what a usual weight can take, a step is lost for all but the smallest weights."""


class PureBf16UpdatesRoundedAway(ConfigRule):
    code = "CFG012"
    fault = Fault.UPDATES_ROUNDED_AWAY
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    about = ("training.learning_rate",)
    reads = ("training.dtype", "training.optim")

    def measurement_if_clean(self) -> str:
        """What was measured: the settings that were compared, and whether all weights are trained in bfloat16."""
        pure = _is_pure_bfloat16(self.subject)
        how = (
            "all weights are trained in bfloat16"
            if pure
            else "not all weights are trained in bfloat16 alone"
        )
        return f"{self.describe_compared_settings()}; {how}"

    def findings(self) -> Iterator[Finding]:
        config = self.subject
        rate = config.spec.training.learning_rate
        if (
            not rate
            or not _is_pure_bfloat16(config)
            or not _has_optimizer_without_copy_or_rounding(config)
        ):
            return
        weights = sample_linear_weights(config)
        lost = (
            float((_half_distances_to_next_bfloat16(weights) > rate).mean())
            if weights is not None
            else None
        )
        few = _half_distance_to_next_bfloat16(TYPICAL_WEIGHT) < rate if lost is None else lost < 0.5
        is_sure = _are_updates_surely_lost(config, rate, lost)
        # Axolotl has no setting like pure_bf16: there only what is sure is said.
        if few or (config.stack == "axolotl" and not is_sure):
            return
        # Last: it opens files beside the settings.
        if may_keep_float32_weights(Path(config.path)):
            return
        of_what = (
            f"{lost:.0%} of the weights"
            if lost is not None
            else f"weights of {TYPICAL_WEIGHT} or more"
        )
        yield self.finding(
            (
                f"updates of about {rate:g} (the learning rate) are rounded away in bfloat16 for {of_what}: these"
                " weights do not change"
            ),
            "keep the weights in float32 and set bf16: true (autocast), or use an optimizer with stochastic"
            " rounding",
            severity="warning" if is_sure else "info",
            evidence=[
                f"the smallest change that bfloat16 keeps is {_half_distance_to_next_bfloat16(TYPICAL_WEIGHT):.1e}"
                f" at {TYPICAL_WEIGHT}, {_half_distance_to_next_bfloat16(1.0):.1e} at 1"
            ],
            cases=[
                setting_case(config, f"{rate:g}", "training.learning_rate"),
                *_cases_of_bfloat16_weight_setting(config),
            ],
        )


def _has_optimizer_without_copy_or_rounding(config: Config) -> bool:
    """Does the optimizer write its step into the weights as it is, without a copy of them or a rounding of its own?"""
    name = str(config.spec.training.optim or PLAIN_OPTIMIZERS[0])
    return name in PLAIN_OPTIMIZERS and not is_optimizer_decided_beside_optim(config)


def _are_updates_surely_lost(config: Config, rate: float, lost: float | None) -> bool:
    """Is nearly every step lost, or are the weights known, or is it said that there is no other copy?"""
    if rate * FAR_FACTOR < _half_distance_to_next_bfloat16(TYPICAL_WEIGHT):
        return True
    return not is_config_of_python_program(config) and (
        lost is not None or bool(config.raw.get("pure_bf16"))
    )


def _is_pure_bfloat16(config: Config) -> bool:
    """Are all weights trained, in bfloat16, without a float32 copy?"""
    # What a program freezes itself is not seen, and so not which weights are trained.
    if config.freezes_by_hand or is_value_unknown(config, "optim") or _is_sharded(config):
        return False
    if _trains_adapter_or_quantized(config):
        return False
    training, raw = config.spec.training, config.raw
    if config.stack == "llama-factory":
        return bool(raw.get("pure_bf16")) and raw.get("finetuning_type") == "full"
    if config.stack == "axolotl":
        return training.dtype == "bfloat16" and not raw.get("adapter")
    if training.dtype == "auto":
        return stored_dtype(config) == "bfloat16"
    return training.dtype == "bfloat16"


def _trains_adapter_or_quantized(config: Config) -> bool:
    """Do the settings name an adapter, or a load in fewer bits, so that not all weights are trained?"""
    training = config.spec.training
    return bool(training.lora or training.adapter or training.load_in)


def _is_sharded(config: Config) -> bool:
    """Is the run sharded by FSDP or DeepSpeed? Both may keep a float32 copy of the weights."""
    training, raw = config.spec.training, config.raw
    if raw.get("fsdp") is not None or raw.get("deepspeed") is not None:
        return True
    if config.stack == "axolotl" and raw.get("fsdp_config"):
        return True
    return bool(training.fsdp) or training.deepspeed_stage is not None


def _cases_of_bfloat16_weight_setting(config: Config) -> list[Case]:
    """The setting that says that the weights are bfloat16, at its place."""
    name = "pure_bf16" if config.raw.get("pure_bf16") else "training.dtype"
    key = setting_place(config, name).key
    return [setting_case(config, config.raw.get(key, config.spec.training.dtype), name)]


def _half_distances_to_next_bfloat16(values: NDArray[np.float32]) -> NDArray[np.float64]:
    """Half the distance to the next bfloat16 number: 8 bits, so 2^-8 of the power of two below."""
    below: NDArray[np.float64] = np.floor(np.log2(np.maximum(np.abs(values), 1e-30)))
    return np.exp2(below - 8)


def _half_distance_to_next_bfloat16(value: float) -> float:
    """Half the distance to the next bfloat16 number of one value."""
    return float(_half_distances_to_next_bfloat16(np.asarray([value], np.float32))[0])
