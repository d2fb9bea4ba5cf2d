"""Packing fills every row to the maximum length, and the batch holds several such rows.

## What it does
Reads settings that pack short rows into one (`sample_packing`, `packing`) with a batch size above 1 per device, if rows
x maximum length is above 32,768 tokens. It is info: if such a batch fits in memory, it is fine.

## Why it is bad
The training result is not affected. But every row takes the memory of the maximum length, however short your rows are:
4 rows of 16,384 tokens are 65,536 tokens per pass, with logits for all of them. A packed batch of 1 already contains
many short rows, and gradient accumulation keeps the tokens per optimizer step.

## Example
```yaml
config:
  base_model: meta-llama/Llama-3.1-8B-Instruct
  datasets: [{path: some/rows, type: chat_template}]
  adapter: lora
  attn_implementation: flash_attention_2
  sequence_len: 16384
  sample_packing: true
  micro_batch_size: 4
```

## Use instead
```yaml
config:
  base_model: meta-llama/Llama-3.1-8B-Instruct
  datasets: [{path: some/rows, type: chat_template}]
  adapter: lora
  attn_implementation: flash_attention_2
  sequence_len: 16384
  sample_packing: true
  micro_batch_size: 1
  gradient_accumulation_steps: 4
```

## Fix safety
Safe if you multiply the gradient accumulation by the factor by which the batch size shrinks.

## References
- Axolotl documentation, "Multipack (Sample Packing)"; TRL, `SFTConfig.packing`
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.setting_places_and_known_keys import (
    setting_case,
    setting_place,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import ConfigRule

MAX_TOKENS = 32_768
"""Of a pass, up to which nothing is said: logits of 128,256 words take 16 GB in float32 there. Chosen, not measured"""
BATCH = "training.per_device_train_batch_size"


class PackedBatchOfManyTokens(ConfigRule):
    code = "CFG131"
    fault = Fault.RUN_EXCEEDS_GPU_MEMORY
    symptoms = ("out-of-memory",)
    severity = "info"
    stability = "preview"
    reads = ("training.packing", BATCH, "max_length")

    def measurement_if_clean(self) -> str:
        """What was measured: that no packed batch exceeds the limit."""
        return f"no packed batch holds more than {MAX_TOKENS:,} tokens"

    def findings(self) -> Iterator[Finding]:
        config = self.subject
        training, limit = config.spec.training, config.limit
        rows = training.per_device_train_batch_size
        if not training.packing or not isinstance(rows, int) or limit is None:
            return
        if rows < 2 or rows * limit <= MAX_TOKENS:
            return
        yield self.finding(
            f"packing fills each row to {limit:,} tokens, and a batch holds {rows} of them: {rows * limit:,} tokens"
            " per pass, however short your rows are",
            f"set {setting_place(config, BATCH).key or 'per_device_train_batch_size'} to 1 if the GPU runs out of"
            f" memory, and multiply the gradient accumulation by {rows}",
            cases=[
                setting_case(config, rows, BATCH),
                setting_case(config, limit, "max_length"),
            ],
        )
