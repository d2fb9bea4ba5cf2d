"""Attention runs in the eager implementation, which is slow and memory-hungry on long rows.

## What it does
Reads which attention the settings or a script ask for: `attn_implementation: eager` (`eager_attention: true` in
Axolotl, `flash_attn: disabled` in LLaMA-Factory). It is a warning if rows may have 4,096 tokens or more, and info if
they are shorter or the length is unknown. It does not fire for models whose makers advise eager attention (Gemma,
gpt-oss) or that have no other (T5), or if code asks for `output_attentions`, which needs it.

## Why it is bad
Eager attention writes a length x length matrix for each head to memory, in float32 for the softmax, and reads it again
in the backward pass. Rows four times as long take sixteen times the time and memory there. The sdpa and flash attention
kernels never write that matrix: at 8,192 tokens a step is several times as fast.

## Example
```yaml
config:
  base_model: Qwen/Qwen2.5-7B-Instruct
  datasets: [{path: some/rows, type: alpaca}]
  sequence_len: 8192
  attn_implementation: eager
```

## Use instead
```yaml
config:
  base_model: Qwen/Qwen2.5-7B-Instruct
  datasets: [{path: some/rows, type: alpaca}]
  sequence_len: 8192
  attn_implementation: sdpa
```

## Fix safety
Results differ only by rounding. A hand-written 4D attention mask works with sdpa, but not with flash attention.

## References
- Dao et al. 2022, arXiv 2205.14135; transformers documentation, "Attention backends"
- google/gemma-2 model cards: eager attention is advised for training
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.measurement_without_findings import Measurement
from truetune.checks.rule import ConfigRule

HAS_KERNELS = re.compile(
    r"llama|qwen|qwq|mi[sx]tral|ministral|zephyr|phi[-_]?[1-4]|smollm|olmo|falcon|granite|yi[-_]|vicuna|hermes|deepseek-r1-distill",
    re.IGNORECASE,
)
"""Names of models that transformers computes with sdpa and flash attention"""
NEEDS_EAGER = re.compile(r"gemma|gpt[-_]?oss|deepseek-v", re.IGNORECASE)
"""Names of models that are trained with eager attention on purpose, or have no other, whatever else their names say"""
READS_WEIGHTS = "output_attentions"
FIELD = "training.attn_implementation"
REMEDIES = {
    FIELD: "set attn_implementation to sdpa (or flash_attention_2 if flash-attn is installed)",
    "eager_attention": (
        "remove eager_attention and set attn_implementation to sdpa (or flash_attention_2 if flash-attn is"
        " installed)"
    ),
    "flash_attn": "set flash_attn to sdpa (or fa2 if flash-attn is installed)",
}
"""The setting that asks for eager attention -> its edit"""
# At 2,048 many sound runs of small models are told; at 8,192 a run of 4,096, where half of the time is attention's, is
# passed over.
LONG_ROWS = 4096
"""Tokens of a row from which on the matrices of eager attention take most of a step"""


class AttentionComputedEagerly(ConfigRule):
    code = "CFG102"
    fault = Fault.MEMORY_SAVING_METHODS_OFF
    symptoms = ("slow-training", "out-of-memory")
    severity = "warning"
    stability = "preview"
    reads = (FIELD, "max_length")

    def measurement_if_clean(self) -> Measurement | str:
        """What was measured: the attention that is chosen."""
        chosen = self.subject.spec.training.attn_implementation
        return (
            f"attention is computed by {chosen}" if chosen else "eager attention is not asked for"
        )

    def findings(self) -> Iterator[Finding]:
        config = self.subject
        key = self._key_of_eager_attention()
        if key is None or READS_WEIGHTS in config.text:
            return
        model = config.spec.model or ""
        if NEEDS_EAGER.search(model) or not HAS_KERNELS.search(model):
            return
        limit = config.limit
        length = f" at rows of up to {limit:,} tokens" if limit else ""
        yield self.finding(
            (
                f"attention runs in the slow eager implementation{length}: each head of each layer writes a length x"
                " length matrix to memory"
            ),
            REMEDIES.get(key, REMEDIES[FIELD]),
            severity="warning" if limit and limit >= LONG_ROWS else "info",
            cases=[setting_case(config, config.raw.get(key, "eager"), key)],
        )

    def _key_of_eager_attention(self) -> str | None:
        """The setting that asks for eager attention; None where none does."""
        config = self.subject
        if config.stack == "axolotl" and config.raw.get("eager_attention") is True:
            return "eager_attention"
        if config.stack == "llama-factory" and config.raw.get("flash_attn") == "disabled":
            return "flash_attn"
        return FIELD if config.spec.training.attn_implementation == "eager" else None
