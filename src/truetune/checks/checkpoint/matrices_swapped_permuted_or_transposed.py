"""Matrices have the base's values in another place: rows reordered, transposed, or in another tensor.

## What it does
Takes the matrices that are far from the base's of the same name (a cosine below 0.8, while a fine-tune stays at 0.9 and
more), and looks for their values elsewhere in the base: in another tensor of the same shape, in the transposed matrix,
or row by row at other places. Models with another number of layers than the base are not judged, as layers were left
out or repeated on purpose.

## Why it is bad
The model loads and runs, but gives wrong results. Queries and keys in the rotary order of another format give each
token a wrong position. Swapped gate and up matrices, or rows in the order of another vocabulary, give garbage. The
training gets the blame for a fault of the conversion.

## Example
```yaml
tensors:
  model.layers.0.self_attn.q_proj.weight: {shape: [64, 32], turn_rows: 7}
  model.layers.0.self_attn.v_proj.weight: {shape: [64, 32], add: 0.01}
base:
  tensors:
    model.layers.0.self_attn.q_proj.weight: {shape: [64, 32]}
    model.layers.0.self_attn.v_proj.weight: {shape: [64, 32]}
```

## Use instead
```yaml
tensors:
  model.layers.0.self_attn.q_proj.weight: {shape: [64, 32], add: 0.01}
  model.layers.0.self_attn.v_proj.weight: {shape: [64, 32], add: 0.01}
base:
  tensors:
    model.layers.0.self_attn.q_proj.weight: {shape: [64, 32]}
    model.layers.0.self_attn.v_proj.weight: {shape: [64, 32]}
```

## Fix safety
There is no automatic fix. Convert the trained weights again with a corrected conversion; the trained weights themselves
do not change.

## References
- karpathy/llama2.c#286, huggingface/transformers#31766, huggingface/transformers#25199
- transformers/models/llama/convert_llama_weights_to_hf.py (`permute`)
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from truetune.checkpoint.find_displaced_weights import DisplacedTensor, find_displaced_tensors
from truetune.checks.checkpoint.read_text_part_of_model_config import (
    first_positive_text_model_setting,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule

LAYERS = "num_hidden_layers"
WORDS = {
    "rows": "the base's rows in another order",
    "transposed": "the base's matrix, transposed",
}


class MatricesSwappedPermutedOrTransposed(CheckpointRule):
    code = "CKP041"
    fault = Fault.SAVED_WEIGHTS_ALTERED
    symptoms = ("garbage-output",)
    severity = "error"
    stability = "preview"
    judges_changes = True
    kind = "model"
    compares = True

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if self._do_layer_counts_differ():
            return Unmet("it is about models of as many layers as their base")
        return (
            None
            if self.subject.sampled_changes_from_base
            else Unmet("no tensor can be compared with the base's")
        )

    def measurement_if_clean(self) -> str:
        """How many tensors were compared with the base's."""
        return f"none of {len(self.subject.sampled_changes_from_base):,} tensors has values of another place"

    def _do_layer_counts_differ(self) -> bool:
        """Do the configurations name different numbers of layers?"""
        base = self.subject.base
        if base is None:
            return False
        own, bases = (
            first_positive_text_model_setting(config, LAYERS)
            for config in (self.subject.config, base.config)
        )
        return own != bases

    @cached_property
    def _displaced(self) -> list[DisplacedTensor]:
        base = self.subject.base
        if base is None or self.subject.kind != "model" or self._do_layer_counts_differ():
            return []
        return list(
            find_displaced_tensors(
                self.subject.tensors, base.tensors, self.subject.sampled_changes_from_base
            )
        )

    def findings(self) -> Iterator[Finding]:
        displaced, base = self._displaced, self.subject.base
        if not displaced or base is None:
            return
        yield self.finding(
            f"{len(displaced):,} of {len(self.subject.sampled_changes_from_base):,} tensors have values of"
            f" {base.folder.name} in another place: {displaced[0].name} has"
            f" {self._describe_displaced_tensor(displaced[0])}",
            "correct the conversion that wrote these weights (queries and keys: undo the rotary order before saving),"
            " convert the trained weights again, and compare with the base",
            cases=[
                Case(f"{one.name}: {self._describe_displaced_tensor(one)}") for one in displaced
            ],
            count=len(displaced),
            total=len(self.subject.sampled_changes_from_base),
        )

    def _describe_displaced_tensor(self, one: DisplacedTensor) -> str:
        """What a tensor holds, in words."""
        return WORDS.get(one.how, f"the values of {one.other}")
