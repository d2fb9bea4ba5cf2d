"""A key in the DeepSpeed settings has no effect.

## What it does
Looks in a run's DeepSpeed settings for keys that belong in a block (`zero_optimization`, `fp16`,
`activation_checkpointing`) but are at the top level, where DeepSpeed ignores them. It also reports an
`activation_checkpointing` block if the run has no gradient checkpointing: transformers models never call DeepSpeed's.
And it reports an offload that the ZeRO stage does not support: parameters are offloaded only by stage 3, the optimizer
from stage 1 on. A file without a `stage` has stage 0.

## Why it is bad
There is no error message, and the default is used. With `stage3_gather_16bit_weights_on_model_save` at the top level,
ZeRO-3 does not gather the weights and the saved model is empty. An `offload_optimizer` at the top level offloads
nothing.

## Example
```yaml
config:
  model_name_or_path: some/model
  dataset_name: some/rows
  max_length: 2048
  learning_rate: 0.00001
  deepspeed:
    zero_optimization: {stage: 3}
    stage3_gather_16bit_weights_on_model_save: true
```

## Use instead
```yaml
config:
  model_name_or_path: some/model
  dataset_name: some/rows
  max_length: 2048
  learning_rate: 0.00001
  deepspeed:
    zero_optimization: {stage: 3, stage3_gather_16bit_weights_on_model_save: true}
```

## Fix safety
The setting takes effect for the first time: an offload makes steps slower, and a gathered save takes longer.

## References
- ymcui/Chinese-LLaMA-Alpaca-2#141
- https://www.deepspeed.ai/docs/config-json/; DeepSpeed, deepspeed/runtime/zero/config.py and precision_config.py
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from truetune.checks.config.evidence.deepspeed_settings_of_run import (
    DeepspeedSettings,
    deepspeed_settings_of_run,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule
from truetune.memory.write_remedies_as_stack_settings import setting_lines_of_changes

KEYS_OF_BLOCKS: Mapping[str, frozenset[str]] = {
    "zero_optimization": frozenset(
        (
            "stage", "offload_optimizer", "offload_param", "overlap_comm", "contiguous_gradients", "reduce_scatter",
            "reduce_bucket_size", "allgather_partitions", "allgather_bucket_size", "round_robin_gradients",
            "sub_group_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold",
            "stage3_max_live_parameters", "stage3_max_reuse_distance", "zero_hpz_partition_size",
            "stage3_gather_16bit_weights_on_model_save", "stage3_gather_fp16_weights_on_model_save",
            "zero_quantized_weights", "zero_quantized_nontrainable_weights", "zero_quantized_gradients",
            "stage3_model_persistence_threshold", "stage3_module_granularity_threshold", "ignore_unused_parameters",
            "load_from_fp32_weights", "memory_efficient_linear", "mics_shard_size",
            "mics_hierarchical_params_gather", "cpu_offload", "cpu_offload_param", "cpu_offload_use_pin_memory",
        )
    ),
    "fp16": frozenset(
        (
            "loss_scale", "initial_scale_power", "loss_scale_window", "hysteresis", "consecutive_hysteresis",
            "min_loss_scale", "auto_cast",
        )
    ),
    "activation_checkpointing": frozenset(
        (
            "partition_activations", "cpu_checkpointing", "contiguous_memory_optimization", "number_checkpoints",
            "synchronize_checkpoint_boundary",
        )
    ),
}  # fmt: skip
"""Block -> keys that DeepSpeed's page and source have in it, and nowhere else"""
FIRST_STAGE_OF_OFFLOAD = {"offload_param": 3, "offload_optimizer": 1}
"""Block of zero_optimization -> the stage of ZeRO from which it is read"""
OFFLOAD_DEVICES = ("cpu", "nvme")
OWN_CHECKPOINTING = ("partition_activations", "cpu_checkpointing", "number_checkpoints")
"""Keys by which a block asks for checkpointing of DeepSpeed's own"""


class DeepspeedKeyNotRead(ConfigRule):
    code = "CFG163"
    fault = Fault.SETTINGS_NOT_USED
    symptoms = ("out-of-memory", "several-gpus")
    severity = "warning"

    def unmet(self) -> Unmet | None:
        """Also unmet where the run has no DeepSpeed settings."""
        if not self.subject.raw.get("deepspeed"):
            return Unmet("it is about runs with DeepSpeed settings")
        return super().unmet()

    def measurement_if_clean(self) -> str:
        """How many keys are at the top level."""
        settings = deepspeed_settings_of_run(self.subject)
        count = 0 if settings is None else len(settings.value)
        return f"{count} keys at the top level, none of which belongs into a block"

    def findings(self) -> Iterator[Finding]:
        settings = deepspeed_settings_of_run(self.subject)
        if settings is None:
            return
        for block, keys in KEYS_OF_BLOCKS.items():
            yield from self._findings_on_keys_outside_their_block(settings, block, keys)
        yield from self._findings_on_unused_checkpointing(settings)
        yield from self._findings_on_offload_of_other_stage(settings)

    def _findings_on_offload_of_other_stage(self, settings: DeepspeedSettings) -> Iterator[Finding]:
        """Findings on an offload that the stage of ZeRO does not read."""
        stage = settings.get("zero_optimization", "stage") or 0
        for block, first in FIRST_STAGE_OF_OFFLOAD.items():
            device = settings.get("zero_optimization", block, "device")
            if device not in OFFLOAD_DEVICES or not isinstance(stage, int) or stage >= first:
                continue
            yield self.finding(
                f"{block} in {settings.name} has no effect: ZeRO supports it from stage {first} on, and the stage is"
                f" {stage}",
                f"set zero_optimization.stage to {first}, or remove {block}",
                cases=[
                    settings.case("zero_optimization", block, "device"),
                    settings.case("zero_optimization", "stage"),
                ],
            )

    def _findings_on_keys_outside_their_block(
        self, settings: DeepspeedSettings, block: str, keys: frozenset[str]
    ) -> Iterator[Finding]:
        """The finding on keys of a block that are at the top level."""
        misplaced = [key for key in settings.value if key in keys]
        if misplaced:
            they, are, them = ("it", "is", "it") if len(misplaced) == 1 else ("they", "are", "them")
            yield self.finding(
                f"{settings.name} has {', '.join(misplaced)} at its top level, where DeepSpeed ignores {them}:"
                f" {they} {are} only read inside {block}",
                f"move {them} into the {block} block",
                cases=[settings.case(key) for key in misplaced],
            )

    def _findings_on_unused_checkpointing(self, settings: DeepspeedSettings) -> Iterator[Finding]:
        """The finding on a block for activations where the run keeps all of them."""
        block = settings.get("activation_checkpointing")
        if not isinstance(block, Mapping) or not any(block.get(key) for key in OWN_CHECKPOINTING):
            return
        if self.subject.spec.training.gradient_checkpointing is not False:
            return
        (line,) = setting_lines_of_changes(self.subject.stack, {"checkpointing": True})
        yield self.finding(
            f"the activation_checkpointing block in {settings.name} has no effect: transformers models never call"
            " DeepSpeed's checkpointing, and the run's own is off",
            f"set {line} in the run's settings, and remove the block",
            cases=[settings.case("activation_checkpointing")],
        )
