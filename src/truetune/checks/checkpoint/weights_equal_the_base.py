"""The weights are those of the base, bit by bit.

## What it does
Compares samples of all tensors of a full model with those of the base that is given.

## Why it is bad
Training or merging changed nothing: an adapter without effect was merged, the base was saved in place of the tuned
model, or every update was rounded away.

## Example
```yaml
llama: 2
base: {llama: 2}
```

## Use instead
```yaml
llama: 2
tensors:
  model.layers.0.mlp.up_proj.weight: {add: 0.01}
base: {llama: 2}
```

## Fix safety
Look at the adapter before the merge (`adapter-file-empty`, `adapter-keys-do-not-match`), and at the object that was
saved.

## References
- huggingface/peft#2105, huggingface/transformers#31293
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule


class WeightsEqualTheBase(CheckpointRule):
    code = "CKP016"
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    goes_by_signs = True
    judges_changes = True
    kind = "model"
    compares = True

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        checkpoint = self.subject
        if checkpoint.moved and set(checkpoint.moved) == set(checkpoint.tensors):
            return None
        return Unmet(
            f"{len(checkpoint.moved):,} of {len(checkpoint.tensors):,} tensors can be compared with"
            " the base's"
        )

    def figure(self) -> str:
        """How many tensors differ from the base's."""
        movements = self.subject.moved.values()
        moved = sum(movement.same < movement.seen for movement in movements)
        return f"{moved:,} of {len(movements):,} tensors differ from the base's"

    def findings(self) -> Iterator[Finding]:
        checkpoint, base = self.subject, self.subject.base
        if checkpoint.kind != "model" or base is None or not checkpoint.moved:
            return
        # A tensor that the base has not was added by the training, so something was learned.
        if set(checkpoint.moved) != set(checkpoint.tensors):
            return
        movements = checkpoint.moved.values()
        if any(movement.same != movement.seen for movement in movements):
            return
        seen = sum(movement.seen for movement in movements)
        total = sum(tensor.items for tensor in checkpoint.tensors.values())
        yield self.finding(
            f"all {len(movements):,} tensors are equal to those of {base.folder.name}:"
            " nothing was learned or merged",
            "check that the adapter has an effect before merging, and that it is the trained"
            " model that is saved",
            evidence=[f"{seen:,} of {total:,} values were compared"],
        )
