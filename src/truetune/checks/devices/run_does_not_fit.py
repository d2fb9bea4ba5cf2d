"""The run needs more memory than the GPU has.

## What it does
Estimates the peak memory of a step (`truetune plan`, docs/plan.md) and compares it with the smallest GPU that the run
sees. An error where tensors and CUDA alone are more than it has; a warning where only the margin for fragments is.

## Why it is bad
The run ends with `CUDA out of memory`: in the first step, or hours later with the longest batch or an evaluation.

## Example
```yaml
config: {max_length: 4096, training: {per_device_train_batch_size: 8, dtype: bfloat16, bf16: true}}
model: {model_type: llama, hidden_size: 4096, intermediate_size: 14336, num_hidden_layers: 32, num_attention_heads: 32,
        num_key_value_heads: 8, vocab_size: 128256, tie_word_embeddings: false}
machine: {gpus: 1, memory: 24}
```

## Use instead
```yaml
config:
  max_length: 4096
  training:
    per_device_train_batch_size: 1
    gradient_accumulation_steps: 8
    dtype: bfloat16
    bf16: true
    gradient_checkpointing: true
    use_liger_kernel: true
    lora: {r: 16, target_modules: all-linear}
model: {model_type: llama, hidden_size: 4096, intermediate_size: 14336, num_hidden_layers: 32, num_attention_heads: 32,
        num_key_value_heads: 8, vocab_size: 128256, tie_word_embeddings: false}
machine: {gpus: 1, memory: 24}
```

## Fix safety
A smaller batch with more accumulation, and gradient checkpointing, change the time and not what is learned; a shorter
length and LoRA do. `truetune plan` lists what each gains.

## References
- docs/plan.md: the formulas and their sources
- huggingface/transformers documentation, "GPU memory usage"
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.keys import case
from truetune.checks.devices.model import architecture
from truetune.checks.findings import Finding
from truetune.checks.rule import DeviceRule
from truetune.memory.estimate import GIB, PARTS
from truetune.memory.plan import plan


class RunDoesNotFit(DeviceRule):
    code = "DEV007"
    severity = "error"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        sizes = [
            self.machine.gpus[index].memory
            for index in self.machine.visible
            if index < len(self.machine.gpus)
        ]
        known = architecture(self.config)
        if known is None or not sizes or (self.training.device_map and len(sizes) > 1):
            return
        size = min(sizes)
        found = plan(self.config, model=known, gpu_memory=size / GIB, gpus=self.subject.world)
        if found.verdict in (None, "fits"):
            return
        peak = found.estimate.peak
        parts = sorted(((peak.parts.get(part, 0.0), part) for part in PARTS), reverse=True)[:4]
        remedy = (
            "; ".join(step.what for step in found.remedies[:3])
            or "take a larger GPU, or several with FSDP"
        )
        yield self.finding(
            f"the run needs about {peak.total / GIB:.1f} GiB on each GPU, which has"
            f" {size / GIB:.1f}",
            remedy,
            severity="error" if found.verdict == "too large" else "warning",
            evidence=[
                f"most at the {peak.name}: "
                + ", ".join(f"{part} {held / GIB:.1f}" for held, part in parts if held),
                *(f"assumed: {note}" for note in found.notes),
            ],
            cases=[
                case(
                    self.config,
                    found.estimate.settings.batch,
                    "training.per_device_train_batch_size",
                )
            ],
        )
