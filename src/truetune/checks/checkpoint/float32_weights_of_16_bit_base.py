"""The model is stored in float32, but its base in 16 bits.

## What it does
Needs the base, and compares the number formats of the tensors that both have. It is info.

## Why it is bad
Every generated token reads all weights once: with twice the bytes it takes twice as long, and twice the memory. Engines
that follow config.json keep float32. It happens if an adapter is merged into a base that was loaded without a dtype.

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
Save in the base's format: `model.to(torch.bfloat16).save_pretrained(...)`. Small changes can be rounded away: compare
the answers (`truetune sample`), or serve with `--dtype bfloat16` and keep the file.

## References
- https://huggingface.co/docs/transformers/main_classes/model (`dtype`); vLLM's `--dtype`
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import CheckpointRule

NARROW_DTYPES = ("BF16", "F16")
# Share of the values from which on the file is as good as twice as long. Chosen: norms and a head in float32 are common
# and small. At half of it, a small model with a large head in float32 would be named.
MIN_WIDE_SHARE = 0.5


class Float32WeightsOf16BitBase(CheckpointRule):
    code = "CKP037"
    fault = Fault.WEIGHTS_IN_UNSUITABLE_FORMAT
    severity = "info"
    kind = "model"
    compares = True

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        _, total = self._count_widened_and_all_values()
        return None if total else Unmet("no tensor is in the base too")

    def measurement_if_clean(self) -> Measurement:
        """How many values are float32 here and 16 bits in the base."""
        wide, total = self._count_widened_and_all_values()
        return make_count_measurement(
            "values in float32 that have 16 bits in the base", wide, total
        )

    def _count_widened_and_all_values(self) -> tuple[int, int]:
        """(values that are float32 here and 16 bits in the base, all values that both have)."""
        base_tensors = self.subject.base.tensors if self.subject.base is not None else {}
        pairs = [
            (tensor, base_tensors[name])
            for name, tensor in self.subject.tensors.items()
            if name in base_tensors
        ]
        wide = sum(
            tensor.value_count
            for tensor, of_base in pairs
            if tensor.dtype == "F32" and of_base.dtype in NARROW_DTYPES
        )
        return wide, sum(tensor.value_count for tensor, _ in pairs)

    def findings(self) -> Iterator[Finding]:
        wide, total = self._count_widened_and_all_values()
        if not total or wide <= MIN_WIDE_SHARE * total:
            return
        base_size = self.subject.base.total_tensor_bytes if self.subject.base is not None else 0
        yield self.finding(
            f"{wide / total:.0%} of the values are stored in float32, but in the base in 16 bits:"
            " each generated token reads twice the bytes",
            "save the model in the base's dtype (model.to(torch.bfloat16).save_pretrained(FOLDER)), or serve it with"
            " --dtype bfloat16",
            evidence=[f"{self.subject.total_tensor_bytes:,} bytes; the base has {base_size:,}"],
        )
