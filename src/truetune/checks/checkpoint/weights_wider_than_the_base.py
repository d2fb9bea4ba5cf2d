"""The model is stored in float32, and its base in 16 bits.

## What it does
Needs the base, and compares the number formats of the tensors that both have.

## Why it is bad
Every token that is generated reads all weights once: at twice the bytes it takes twice as long, and twice the memory.
Engines that load what config.json says keep float32. A merge of an adapter into a base that was loaded without a dtype
saves it so.

## Example
```yaml
llama: 1
base:
  llama: 1
  tensors:
    model.embed_tokens.weight: {dtype: BF16}
    lm_head.weight: {dtype: BF16}
    model.layers.0.mlp.up_proj.weight: {dtype: BF16}
    model.layers.0.mlp.gate_proj.weight: {dtype: BF16}
    model.layers.0.mlp.down_proj.weight: {dtype: BF16}
```

## Use instead
```yaml
llama: 1
base: {llama: 1}
```

## Fix safety
Save as the base is stored: `model.to(torch.bfloat16).save_pretrained(...)`. Small changes can be rounded away; compare
the answers (`truetune sample`), or serve with `--dtype bfloat16` and keep the file.

## References
- https://huggingface.co/docs/transformers/main_classes/model (`dtype`); vLLM's `--dtype`
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement import Measurement, counted
from truetune.checks.rule import CheckpointRule

NARROW = ("BF16", "F16")
MOST = 0.5
"""Share of the values from which on the file is as good as twice as long"""


class WeightsWiderThanTheBase(CheckpointRule):
    code = "CKP037"
    severity = "info"
    kind = "model"
    compares = True

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        return None if self._items()[1] else Unmet("no tensor is in the base too")

    def figure(self) -> Measurement:
        wide, all_items = self._items()
        return counted("values that are float32 and 16 bits in the base", wide, all_items)

    def _items(self) -> tuple[int, int]:
        """Values that are float32 here and 16 bits in the base, of those that both have."""
        base = self.subject.base
        there = base.tensors if base is not None else {}
        both = [(one, there[name]) for name, one in self.subject.tensors.items() if name in there]
        wide = sum(a.items for a, b in both if a.dtype == "F32" and b.dtype in NARROW)
        return wide, sum(a.items for a, _ in both)

    def findings(self) -> Iterator[Finding]:
        wide, all_items = self._items()
        if not all_items or wide <= MOST * all_items:
            return
        yield self.finding(
            f"{wide / all_items:.0%} of the values are stored in float32, and the base's in 16 bits:"
            " twice the bytes are read for each token that is generated",
            "save the model in the base's dtype (bfloat16), or serve it with --dtype bfloat16",
            evidence=[f"{self.subject.size:,} bytes; the base has {self._base_size():,}"],
        )

    def _base_size(self) -> int:
        return self.subject.base.size if self.subject.base is not None else 0
