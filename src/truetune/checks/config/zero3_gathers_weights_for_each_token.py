"""Under ZeRO-3, every generated token gathers all weights from the GPUs.

## What it does
Looks at TRL trainers that generate (GRPO, RLOO, online DPO) with `ds3_gather_for_generation: false` and without
`use_vllm`. It is a warning if the settings, the command or files next to them show ZeRO-3, and info otherwise: without
ZeRO-3 the setting has no effect. It also fires for `predict_with_generate` (LLaMA-Factory) under ZeRO-3.

## Why it is bad
Under ZeRO-3 each GPU holds a part of every layer. With the setting on, the weights are gathered once per batch of
answers. With it off, every layer is sent to all GPUs again for every token. A step of a 7B model takes half an hour
instead of one minute, and the log does not say why.

## Example
```yaml
config:
  model_name_or_path: some/model
  dataset_name: some/rows
  num_generations: 8
  deepspeed: {zero_optimization: {stage: 3, stage3_gather_16bit_weights_on_model_save: true}}
  ds3_gather_for_generation: false
```

## Use instead
```yaml
config:
  model_name_or_path: some/model
  dataset_name: some/rows
  num_generations: 8
  deepspeed: {zero_optimization: {stage: 3, stage3_gather_16bit_weights_on_model_save: true}}
  ds3_gather_for_generation: true
```

## Fix safety
Each GPU holds all weights while it generates. If they do not fit, generate with vLLM.

## References
- huggingface/trl `GRPOConfig.ds3_gather_for_generation`; huggingface/trl#3858
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import ConfigRule
from truetune.checks.source.evidence.does_script_train_sharded_weights import (
    Sharding,
    sharding_by_commands_or_files_beside,
    sharding_by_deepspeed_file,
)

GATHER_KEY = "ds3_gather_for_generation"
GENERATES_KEY = "predict_with_generate"


class Zero3GathersWeightsForEachToken(ConfigRule):
    code = "CFG053"
    fault = Fault.ZERO3_SLOWS_GENERATION
    symptoms = ("out-of-memory", "several-gpus", "slow-generation")
    severity = "warning"
    stacks = ("trl", "transformers", "llama-factory")
    about = (GATHER_KEY, GENERATES_KEY)

    def findings(self) -> Iterator[Finding]:
        raw = self.subject.raw
        leaves_apart = raw.get(GATHER_KEY) is False and raw.get("use_vllm") is not True
        if not leaves_apart and raw.get(GENERATES_KEY) is not True:
            return
        stage = self.subject.spec.training.deepspeed_stage
        sharding = self._sharding_of_run() if stage is None else None
        if not _may_be_zero3(stage, sharding):
            return
        if leaves_apart:
            is_known = stage == 3 or sharding is not None
            yield self._finding_on_gathering_switched_off(sharding, is_known=is_known)
        # A file of DeepSpeed that only lies beside the settings may be that of another run.
        elif stage == 3 or (sharding is not None and sharding.certain):
            yield self._finding_on_predictions_from_sharded_weights(sharding)

    def _finding_on_gathering_switched_off(
        self, sharding: Sharding | None, *, is_known: bool
    ) -> Finding:
        """The finding on answers that are generated while the gathering is switched off; a note where it is not
        known that ZeRO-3 holds the weights."""
        return self.finding(
            f"answers are generated with {GATHER_KEY} off and without vLLM: "
            + ("ZeRO-3 gathers" if is_known else "under ZeRO-3, this gathers")
            + " all weights from the GPUs for every token, so nearly all of a step's time goes into generation",
            f"set {GATHER_KEY} to true (each GPU then holds all weights while it generates), or set use_vllm: true"
            " and vllm_mode: colocate",
            severity="warning" if is_known else "info",
            evidence=[f"ZeRO-3 by {sharding.where}"] if sharding is not None else (),
            cases=[setting_case(self.subject, False, GATHER_KEY)],
        )

    def _sharding_of_run(self) -> Sharding | None:
        """How the weights are held, by the file that the settings name, else by what lies beside them."""
        path = Path(self.subject.path)
        return sharding_by_deepspeed_file(
            self.subject.raw.get("deepspeed"), path
        ) or sharding_by_commands_or_files_beside(path)

    def _finding_on_predictions_from_sharded_weights(self, sharding: Sharding | None) -> Finding:
        """The finding on predictions that are generated while the weights are held in parts."""
        apart = (
            (
                "predict in a separate run without deepspeed, or with vLLM (scripts/vllm_infer.py), from the saved"
                " weights"
            )
            if self.subject.stack == "llama-factory"
            else "generate after training from the saved weights, with vLLM or in a run without DeepSpeed"
        )
        return self.finding(
            f"{GENERATES_KEY} is on under ZeRO-3: every token gathers all weights from the GPUs, so an evaluation"
            " takes hours",
            f"{apart}; or use ZeRO stage 2 if the model fits on one GPU",
            evidence=[f"ZeRO-3 by {sharding.where}"] if sharding is not None else (),
            cases=[setting_case(self.subject, True, GENERATES_KEY)],
        )


def _may_be_zero3(stage: int | None, sharding: Sharding | None) -> bool:
    """May ZeRO-3 hold the weights: by the stage that the settings name, else by the sharding that is seen?"""
    if stage is not None:
        return stage == 3
    return sharding is None or sharding.how == "ZeRO-3"
