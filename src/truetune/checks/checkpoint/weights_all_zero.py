"""Matrices of the model are zero, or one value, throughout.

## What it does
Looks for tensors with two dimensions or more in which all values are equal. Those that are the same in the base are not
reported, nor are the pairs of adapters (`adapter-file-empty`) and quantized models.

## Why it is bad
Such a layer passes nothing on. It was never initialized, or a merge or conversion wrote zeros for what it did not find.

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
Convert or merge again. Layers that were added as empty ones on purpose (block expansion) must be trained first.

## References
- huggingface/transformers#26259, deepspeedai/DeepSpeed#2413
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checkpoint.scan_tensors_for_nan_zeros_and_constants import TensorValues
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.reasons_rules_cannot_judge import NO_VALUES
from truetune.checks.rule import CheckpointRule


class WeightsAllZero(CheckpointRule):
    code = "CKP018"
    fault = Fault.SAVED_WEIGHTS_ALTERED
    symptoms = ("garbage-output",)
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    judges_changes = True

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if self.subject.config.get("quantization_config"):
            return Unmet("the model is quantized")
        return None if self.subject.nan_inf_and_constant_counts else NO_VALUES

    def measurement_if_clean(self) -> str:
        """That no tensor is a matrix of one value throughout, of how many tensors."""
        count = len(self.subject.nan_inf_and_constant_counts)
        return f"0 of {count:,} tensors are matrices with one value throughout"

    def findings(self) -> Iterator[Finding]:
        checkpoint = self.subject
        if checkpoint.config.get("quantization_config"):
            return
        # What the base holds so was meant, or is its fault.
        of_base = checkpoint.base.nan_inf_and_constant_counts if checkpoint.base is not None else {}
        uniform = {
            name: values
            for name, values in checkpoint.nan_inf_and_constant_counts.items()
            if _is_uniform(values)
            and self._is_weight_matrix(name)
            and not (name in of_base and _is_uniform(of_base[name]))
        }
        if not uniform:
            return
        zero = sum(values.zero for values in uniform.values())
        tensors = [checkpoint.tensors[name] for name in uniform]
        yield self.finding(
            f"{len(uniform):,} of {len(checkpoint.nan_inf_and_constant_counts):,} tensors have the same value"
            f" throughout ({zero:,} of them zero)",
            "convert or merge again from the trained weights, and check that it finds these tensors",
            cases=[
                Case(f"{tensor.name} {list(tensor.shape)}", file=tensor.file.name)
                for tensor in tensors
            ],
            count=len(uniform),
            total=len(checkpoint.nan_inf_and_constant_counts),
        )

    def _is_weight_matrix(self, name: str) -> bool:
        """Has a tensor two dimensions or more, and is it neither an adapter's nor a mask?"""
        # Norms begin as ones, biases and lora_B as zeros, and masks are made of two values.
        shape = self.subject.tensors[name].shape
        return len(shape) > 1 and min(shape) > 1 and ".lora_" not in name and "mask" not in name


def _is_uniform(values: TensorValues) -> bool:
    """Are all values of a tensor the same?"""
    return values.zero or values.constant
