"""Weights or optimizer states are offloaded to the CPU although the run fits on one GPU.

## What it does
Looks at DeepSpeed and FSDP with CPU offload, and estimates the memory of the same run on one GPU without them
(`truetune plan`). The GPU is the one in files next to the settings (nvidia-smi output, a job's `--gres`, names in a
log), or else that of this machine. If none is known, it assumes the smallest usual one; a LoRA run that fits in 24 GB
is then info.

## Why it is bad
Offloading moves all weights over PCIe and runs the optimizer on the CPU: a step takes ten times as long or more, and
the GPUs are idle. ZeRO-3 and FSDP gather every layer twice per step. For an adapter on a model that fits, each GPU can
hold everything: DDP then only exchanges the gradients of the adapter.

## Example
```yaml
config:
  max_length: 1024
  training:
    deepspeed_stage: 3
    per_device_train_batch_size: 1
    gradient_checkpointing: true
    dtype: bfloat16
    bf16: true
    lora: {r: 16, target_modules: all-linear}
    other: {offload_optimizer: {device: cpu}, offload_param: {device: cpu}}
model: {model_type: llama, hidden_size: 1024, intermediate_size: 4096, num_hidden_layers: 16, num_attention_heads: 16,
        num_key_value_heads: 8, vocab_size: 32000, tie_word_embeddings: true}
machine: {gpus: 1, memory: 24}
```

## Use instead
```yaml
config:
  max_length: 1024
  training:
    per_device_train_batch_size: 1
    gradient_checkpointing: true
    dtype: bfloat16
    bf16: true
    lora: {r: 16, target_modules: all-linear}
model: {model_type: llama, hidden_size: 1024, intermediate_size: 4096, num_hidden_layers: 16, num_attention_heads: 16,
        num_key_value_heads: 8, vocab_size: 32000, tie_word_embeddings: true}
machine: {gpus: 1, memory: 24}
```

## Fix safety
The training result stays the same. If the longest batch is near the limit, use ZeRO-2, which only shards gradients and
optimizer states.

## References
- docs/plan.md: the formulas and their sources; DeepSpeed documentation, "ZeRO-Offload" (arXiv:2101.06840)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.devices.read_architecture_and_row_count import find_local_architecture
from truetune.checks.faults import Fault
from truetune.checks.find_cpu_offload_of_launcher import find_launch_offload
from truetune.checks.find_gpus_in_files_beside import GpuBeside, find_gpus_beside
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import DeviceRule
from truetune.errors import SpecError
from truetune.memory.estimate_memory import GIB, estimate_memory
from truetune.memory.matrices_and_parameters_from_config import Architecture, parse_architecture
from truetune.memory.memory_settings import MemorySettings, Offload, resolve_memory_settings
from truetune.memory.published_model_shapes import published_config
from truetune.settings.config import Config

# Where the GPU is not known: the smallest that is common for fine-tuning (T4, V100). A larger one fits all the more.
ASSUMED_GPU_BYTES = 16 * GIB
LORA_GPU_BYTES = 24 * GIB
"""The same for a LoRA of a larger model, which is mostly trained on a card of 24 GB or more: worth a note"""
# The estimate is good to some percent (docs/plan.md), and advice that ends in "out of memory" is worse than none. At
# 0.4 most offloaded runs that fit would stay unnamed; near 1 the advice would fail where the estimate is low.
MAX_SHARE_OF_GPU = 0.8
SHARDING_SETTINGS = ("training.deepspeed_stage", "training.fsdp")


class _Offloading(NamedTuple):
    """Parts of a run that are kept on the CPU."""

    how: str
    """`ZeRO-3`, `FSDP`"""
    parts: frozenset[Offload]
    case: Case
    """Where it is set"""


class OffloadedThoughItFits(DeviceRule):
    code = "DEV013"
    fault = Fault.NEEDLESS_OFFLOADING
    symptoms = ("several-gpus", "slow-training")
    severity = "warning"

    def findings(self) -> Iterator[Finding]:
        model = _architecture_of_files_or_name(self.config)
        if model is None:
            return
        settings = resolve_memory_settings(self.config, model)
        offloading = self._parts_kept_on_cpu(settings)
        if offloading is None:
            return
        unsharded = replace(
            settings, world=1, sharding="none", deepspeed=False, offload=frozenset()
        )
        needed = estimate_memory(model, unsharded).peak.total
        gpu = self._smallest_gpu_of_run()
        smallest = LORA_GPU_BYTES if self.training.lora is not None else ASSUMED_GPU_BYTES
        gpu_bytes = gpu.memory if gpu is not None else smallest
        if needed > MAX_SHARE_OF_GPU * gpu_bytes:
            return
        is_sure = gpu is not None or needed <= MAX_SHARE_OF_GPU * ASSUMED_GPU_BYTES
        what = " and ".join(sorted(offloading.parts, reverse=True))
        least = "" if gpu is not None else "at least "
        cases = [offloading.case]
        if gpu is not None and gpu.file:
            cases.append(Case(gpu.text, file=gpu.file, line=gpu.line))
        yield self.finding(
            f"{offloading.how} offloads {what} to the CPU, although the run fits on one GPU: it needs about"
            f" {needed / GIB:.1f} GiB of {least}{gpu_bytes / GIB:.0f} GiB",
            "remove DeepSpeed and FSDP from the settings (plain DDP), or use ZeRO-2 without offload",
            severity="warning" if is_sure else "info",
            evidence=[
                "every step moves them over PCIe, which takes many times as long as the computation",
                *_evidence_of_nvidia_smi(gpu),
            ],
            cases=cases,
        )

    def _parts_kept_on_cpu(self, settings: MemorySettings) -> _Offloading | None:
        """What the run puts on the CPU, by its settings, else by the command that launches it; None: nothing."""
        training = self.training
        if training.deepspeed_stage or training.fsdp:
            how = "FSDP" if training.fsdp else f"ZeRO-{training.deepspeed_stage}"
            place = setting_case(self.config, how, *SHARDING_SETTINGS)
            return _Offloading(how, settings.offload, place) if settings.offload else None
        launched = find_launch_offload(self.config.path)
        if launched is None:
            return None
        return _Offloading(launched.how, launched.offload, Case(launched.how, file=launched.file))

    def _smallest_gpu_of_run(self) -> GpuBeside | None:
        """The smallest GPU of the run: that of the files beside it, else of this machine; None: not known."""
        beside = find_gpus_beside(self.config.path, self.config.text)
        here = [GpuBeside(gpu.name, gpu.memory, "", 0, gpu.name) for gpu in self.machine.gpus]
        return min(beside or here, key=lambda gpu: gpu.memory, default=None)


def _architecture_of_files_or_name(config: Config) -> Architecture | None:
    """The model's architecture, from its files on this machine, else by its published name."""
    model = find_local_architecture(config)
    published = published_config(config.spec.model or "") if model is None else None
    try:
        return parse_architecture(published) if published is not None else model
    except SpecError:
        return None


def _evidence_of_nvidia_smi(gpu: GpuBeside | None) -> Iterator[str]:
    """What nvidia-smi measured while the run was going."""
    reading = gpu.reading if gpu is not None else None
    if reading is None or reading.used is None or not reading.total:
        return
    busy = f", at {reading.busy:.0f}% utilization" if reading.busy is not None else ""
    yield f"nvidia-smi: {reading.used / GIB:.1f} of {reading.total / GIB:.0f} GiB are used{busy}"
