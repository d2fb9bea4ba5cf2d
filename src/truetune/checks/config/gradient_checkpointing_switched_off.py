"""Gradient checkpointing, on by default, is switched off for long rows.

## What it does
Reads `disable_gradient_checkpointing: true` in LLaMA-Factory and `gradient_checkpointing: false` in ms-swift, where
checkpointing is on by default. It is info, for rows of 2,048 tokens or more.

## Why it is bad
The forward pass then keeps the activations of all layers until the backward pass, instead of one tensor per layer. On
long rows that is several times the memory. It saves about a third of the time if the memory suffices. The line is often
copied from a benchmark into a run that has no memory to spare.

## Example
```yaml
config:
  stage: sft
  do_train: true
  model_name_or_path: Qwen/Qwen2.5-7B-Instruct
  finetuning_type: lora
  dataset: support
  template: qwen
  cutoff_len: 4096
  output_dir: out
  disable_gradient_checkpointing: true
```

## Use instead
```yaml
config:
  stage: sft
  do_train: true
  model_name_or_path: Qwen/Qwen2.5-7B-Instruct
  finetuning_type: lora
  dataset: support
  template: qwen
  cutoff_len: 4096
  output_dir: out
```

## Fix safety
Safe: gradients are the same. Each layer's forward pass runs twice, so a step takes about a third longer.

## References
- LLaMA-Factory, src/llamafactory/hparams/model_args.py; ms-swift, `gradient_checkpointing` (default true)
- Chen et al. 2016, arXiv 1604.06174
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import ConfigRule

SWITCHES = {
    "llama-factory": ("disable_gradient_checkpointing", True),
    "swift": ("gradient_checkpointing", False),
}
"""Stack -> the key, and the value by which it stops what is on by default"""
MIN_LENGTH = 2_048
"""Tokens of a row from which activations are most of the memory of a LoRA run. Chosen, not measured"""


class GradientCheckpointingSwitchedOff(ConfigRule):
    code = "CFG130"
    fault = Fault.MEMORY_SAVING_METHODS_OFF
    symptoms = ("out-of-memory",)
    severity = "info"
    stability = "preview"
    reads = ("training.gradient_checkpointing", "max_length")

    def measurement_if_clean(self) -> str:
        """What was measured: that checkpointing is not switched off where it is on by default."""
        return "gradient checkpointing is not switched off where it is on by default"

    def findings(self) -> Iterator[Finding]:
        config = self.subject
        key, value = SWITCHES.get(config.stack, ("", None))
        if not key or config.raw.get(key) is not value or (config.limit or 0) < MIN_LENGTH:
            return
        yield self.finding(
            "gradient checkpointing, on by default, is switched off: the activations of all layers stay in memory,"
            f" for rows of up to {config.limit:,} tokens",
            (
                f"if the GPU runs out of memory, set {key} to {str(not value).lower()}; a step then takes about a"
                " third longer"
            ),
            cases=[setting_case(config, config.raw[key], key)],
        )
