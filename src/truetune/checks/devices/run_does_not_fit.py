"""The run needs more memory than the GPU has.

## What it does
Estimates the peak memory of a step (`truetune plan`, docs/plan.md) and compares it with the smallest GPU that the run
sees. It is an error if tensors and CUDA alone need more, and a warning if only the reserve for fragmentation exceeds
it.

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
A smaller batch with more accumulation, and gradient checkpointing, change the time but not the result. A shorter length
and LoRA change the result. `truetune plan` lists what each saves.

## References
- docs/plan.md: the formulas and their sources
- huggingface/transformers documentation, "GPU memory usage"
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.devices.read_architecture_and_row_count import find_local_architecture
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import DeviceRule
from truetune.memory.estimate_memory import GIB, PARTS
from truetune.memory.plan_memory import plan_memory

# Chosen to fit one line of a terminal; the plan itself (`truetune plan`) lists all.
SHOWN_REMEDIES = 3
SHOWN_PARTS = 4


class RunDoesNotFit(DeviceRule):
    code = "DEV007"
    fault = Fault.RUN_EXCEEDS_GPU_MEMORY
    symptoms = ("out-of-memory",)
    severity = "error"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        gpu_bytes = self._memory_of_smallest_gpu()
        model = find_local_architecture(self.config)
        if model is None or gpu_bytes is None:
            return
        memory_plan = plan_memory(
            self.config, model=model, gpu_memory=gpu_bytes / GIB, gpus=self.subject.world_size
        )
        if memory_plan.verdict in (None, "fits"):
            return
        peak = memory_plan.estimate.peak
        remedy = (
            "; ".join(step.what for step in memory_plan.remedies[:SHOWN_REMEDIES])
            or "use a larger GPU, or several with FSDP"
        )
        yield self.finding(
            f"the run needs about {peak.total / GIB:.1f} GiB per GPU, but the GPU has {gpu_bytes / GIB:.1f} GiB",
            remedy,
            severity="error" if memory_plan.verdict == "too large" else "warning",
            evidence=[
                f"most at the {peak.name}: {_describe_largest_parts(peak.parts)}",
                *(f"assumed: {note}" for note in memory_plan.notes),
            ],
            cases=[
                setting_case(
                    self.config,
                    memory_plan.estimate.settings.batch,
                    "training.per_device_train_batch_size",
                )
            ],
        )

    def _memory_of_smallest_gpu(self) -> float | None:
        """Bytes of the smallest GPU that the run sees; None where there is none to compare with."""
        sizes = [
            self.machine.gpus[index].memory
            for index in self.machine.visible_gpu_indices
            if index < len(self.machine.gpus)
        ]
        # A device map spreads the model over them, and no single size is the limit.
        if not sizes or (self.training.device_map and len(sizes) > 1):
            return None
        return min(sizes)


def _describe_largest_parts(parts: Mapping[str, float]) -> str:
    """The largest parts of a peak in GiB, the largest first."""
    by_size = sorted(((parts.get(part, 0.0), part) for part in PARTS), reverse=True)
    return ", ".join(f"{part} {held / GIB:.1f}" for held, part in by_size[:SHOWN_PARTS] if held)
