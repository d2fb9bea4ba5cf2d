"""All norms are bit-identical to the base's, while the matrices changed.

## What it does
Needs a base whose norms are stored in bfloat16. It fires if every norm is the same and nearly all matrices are not,
including the embedding (a model into which an adapter was merged is not judged). It is a warning if the matrices show
that training ran in pure bfloat16 (`bf16-updates-rounded-away`). Otherwise it is info: the norms may have been frozen
on purpose, or a short run in float32 was rounded when it was saved.

## Why it is bad
A norm's weight is near 1, where bfloat16 has steps of 2^-8 and 2^-7. An update below half of that is rounded to
nothing, at every step: the norms are frozen, whatever the settings say.

## Example
```yaml
tensors:
  model.embed_tokens.weight: {shape: [64, 16], dtype: BF16, add: 0.01}
  model.layers.0.self_attn.q_proj.weight: {shape: [16, 16], dtype: BF16, add: 0.01}
  model.norm.weight: {shape: [16], dtype: BF16, fill: one}
base:
  tensors:
    model.embed_tokens.weight: {shape: [64, 16], dtype: BF16}
    model.layers.0.self_attn.q_proj.weight: {shape: [16, 16], dtype: BF16}
    model.norm.weight: {shape: [16], dtype: BF16, fill: one}
```

## Use instead
```yaml
tensors:
  model.embed_tokens.weight: {shape: [64, 16], dtype: BF16, add: 0.01}
  model.layers.0.self_attn.q_proj.weight: {shape: [16, 16], dtype: BF16, add: 0.01}
  model.norm.weight: {shape: [16], dtype: BF16, fill: one, add: 0.01}
base:
  tensors:
    model.embed_tokens.weight: {shape: [64, 16], dtype: BF16}
    model.layers.0.self_attn.q_proj.weight: {shape: [16, 16], dtype: BF16}
    model.norm.weight: {shape: [16], dtype: BF16, fill: one}
```

## Fix safety
Load the model in float32 and train with `bf16=True` (autocast), or keep the norms in float32. That needs more memory.

## References
- huggingface/sentence-transformers#3773, meta-pytorch/torchtune#2254, pytorch/ao#1124
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checkpoint.detect_adapter_merged_into_weights import is_merge
from truetune.checkpoint.size_above_which_bf16_weights_never_moved import (
    count_moved_by_octave,
    index_of_first_octave_beyond_cliff,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.reasons_rules_cannot_judge import MERGED
from truetune.checks.rule import CheckpointRule

# Share of the matrices that moved. Chosen, not measured: where many stood still too, most-weights-never-moved is nearer
# to the cause. At half of it partial fine-tunes would be named.
MIN_MOVED_SHARE = 0.9
NORM_NAMES = ("norm", "ln_")


class NormsNeverMoved(CheckpointRule):
    code = "CKP027"
    fault = Fault.UPDATES_ROUNDED_AWAY
    symptoms = ("loss-does-not-fall",)
    severity = "warning"
    since = "0.1.0"
    judges_changes = True
    changes_answers = False
    kind = "model"
    compares = True

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if is_merge(self.subject.sampled_changes_from_base):
            return MERGED
        if not self._norms_in_bfloat16():
            return Unmet("the base holds no norm in bfloat16 that can be compared")
        return None

    def measurement_if_clean(self) -> str:
        """How many norms moved, and how many of all tensors."""
        norms = self._norms_in_bfloat16()
        moved_norms = sum(map(self._has_moved, norms))
        moved = sum(map(self._has_moved, self.subject.sampled_changes_from_base))
        return (
            f"{moved_norms:,} of {len(norms):,} norms moved, and {moved:,} of all"
            f" {len(self.subject.sampled_changes_from_base):,} tensors"
        )

    def _has_moved(self, name: str) -> bool:
        """Does a value of a tensor differ from the base's?"""
        movement = self.subject.sampled_changes_from_base[name]
        return movement.same < movement.seen

    def _norms_in_bfloat16(self) -> list[str]:
        """Norms that the base holds in bfloat16."""
        base = self.subject.base
        tensors = base.tensors if base is not None else {}
        return [
            name
            for name in self.subject.sampled_changes_from_base
            if any(part in name.lower() for part in NORM_NAMES)
            and tensors[name].dtype == "BF16"
            and len(tensors[name].shape) == 1
        ]

    def _do_matrices_show_bare_bfloat16(self, matrices: list[str]) -> bool:
        """Do the matrices prove bare bfloat16? Without a cliff the norms may be frozen on purpose."""
        base = self.subject.base
        tensors = base.tensors if base is not None else {}
        in_bfloat16 = [name for name in matrices if tensors[name].dtype == "BF16"]
        return (
            index_of_first_octave_beyond_cliff(count_moved_by_octave(self.subject, in_bfloat16))
            is not None
        )

    def findings(self) -> Iterator[Finding]:
        checkpoint, base = self.subject, self.subject.base
        if (
            checkpoint.kind != "model"
            or base is None
            or is_merge(checkpoint.sampled_changes_from_base)
        ):
            return
        norms = self._norms_in_bfloat16()
        if not norms or any(map(self._has_moved, norms)):
            return
        matrices = [
            name
            for name in checkpoint.sampled_changes_from_base
            if len(base.tensors[name].shape) > 1
        ]
        moved = list(filter(self._has_moved, matrices))
        if not moved or len(moved) < MIN_MOVED_SHARE * len(matrices):
            return
        yield self.finding(
            f"all norms ({len(norms):,}) equal the base bit by bit, but {len(moved):,} of"
            f" {len(matrices):,} matrices changed",
            "train with float32 weights and bf16 autocast (load with dtype=torch.float32, set bf16=True), or use an"
            " optimizer that keeps a float32 copy",
            severity="warning" if self._do_matrices_show_bare_bfloat16(moved) else "info",
            evidence=[
                "near 1, bfloat16 has steps of 2^-8 and 2^-7: an update of less than half of that"
                " rounds to nothing"
            ],
            cases=[Case(name, file=checkpoint.tensors[name].file.name) for name in norms],
            count=len(norms),
        )
