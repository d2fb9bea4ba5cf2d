"""Matrices of the model are zero, or one value, throughout.

## What it does
Looks for tensors of two dimensions or more in which all values are equal. What is so in the base too is left out, and
so are the pairs of adapters (`adapter-file-empty`) and quantized models.

## Why it is bad
Such a layer passes nothing on. It was never initialized, or a merge or conversion wrote zeros for what it did not
find.

## Example
```yaml
llama: 2
tensors:
  model.layers.1.mlp.down_proj.weight: {fill: zero}
```

## Use instead
```yaml
llama: 2
```

## Fix safety
Convert or merge again. Layers that were put in as empty ones (block expansion) must be trained first.

## References
- huggingface/transformers#26259, deepspeedai/DeepSpeed#2413
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule
from truetune.checks.unmet_reasons import NO_VALUES


class WeightsAllZero(CheckpointRule):
    code = "CKP018"
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    judges_changes = True

    def unmet(self) -> Unmet | None:
        if unmet := super().unmet():
            return unmet
        if self.subject.config.get("quantization_config"):
            return Unmet("the model is quantized")
        return None if self.subject.values else NO_VALUES

    def figure(self) -> str:
        return (
            f"0 of {len(self.subject.values):,} tensors are matrices that hold one value throughout"
        )

    def findings(self) -> Iterator[Finding]:
        found = self.subject
        if found.config.get("quantization_config"):
            return
        flat = {
            name: values
            for name, values in found.values.items()
            if (values.zero or values.constant)
            and min(found.tensors[name].shape) > 1
            and len(found.tensors[name].shape) > 1
            and ".lora_" not in name
            and "mask" not in name
        }
        if flat and found.base is not None:
            before = found.base.values
            flat = {
                n: v
                for n, v in flat.items()
                if n not in before or not (before[n].zero or before[n].constant)
            }
        if flat:
            zero = sum(values.zero for values in flat.values())
            yield self.finding(
                f"{len(flat):,} of {len(found.values):,} tensors hold one value throughout"
                f" ({zero:,} of them zero)",
                "convert or merge again from the trained weights",
                cases=[
                    Case(f"{t.name} {list(t.shape)}", file=t.file.name)
                    for t in map(found.tensors.get, flat)
                    if t
                ],
                count=len(flat),
                total=len(found.values),
            )
