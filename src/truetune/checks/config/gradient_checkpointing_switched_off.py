"""Gradient checkpointing is switched off, which the stack has on by default.

## What it does
Reads `disable_gradient_checkpointing: true` of LLaMA-Factory and `gradient_checkpointing: false` of ms-swift, where the
stack itself would checkpoint. It is a note, for rows of 2,048 tokens and more.

## Why it is bad
The forward pass then keeps the activations of all layers until the backward pass has used them, in place of one tensor
for each layer: several times the memory at long rows. It is faster by about a third where the memory suffices, and a
line of a benchmark that is copied into another run costs it the memory.

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
Safe: gradients are the same, each layer's forward pass is computed twice.

## References
- LLaMA-Factory, src/llamafactory/hparams/model_args.py; ms-swift, `gradient_checkpointing` (default true)
- Chen et al. 2016, arXiv 1604.06174
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
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
            "gradient checkpointing, on by default, is switched off: the activations of all layers are kept, at rows"
            f" of up to {config.limit:,} tokens",
            f"set {key} to {str(not value).lower()} where the memory does not suffice: a step takes a third longer",
            cases=[setting_case(config, config.raw[key], key)],
        )
