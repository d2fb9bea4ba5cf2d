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
        if unmet := super().unmet():
            return unmet
        found = self.subject
        if found.moved and set(found.moved) == set(found.tensors):
            return None
        return Unmet(
            f"{len(found.moved):,} of {len(found.tensors):,} tensors can be compared with the"
            " base's"
        )

    def figure(self) -> str:
        moved = sum(m.same < m.seen for m in self.subject.moved.values())
        return f"{moved:,} of {len(self.subject.moved):,} tensors differ from the base's"

    def findings(self) -> Iterator[Finding]:
        found = self.subject
        if (
            found.kind != "model"
            or found.base is None
            or not found.moved
            or set(found.moved) != set(found.tensors)
        ):
            return
        if all(m.same == m.seen for m in found.moved.values()):
            seen = sum(m.seen for m in found.moved.values())
            yield self.finding(
                f"all {len(found.moved):,} tensors are equal to those of {found.base.folder.name}:"
                " nothing was learned or merged",
                "check that the adapter has an effect before merging, and that it is the trained"
                " model that is saved",
                evidence=[
                    f"{seen:,} of {sum(t.items for t in found.tensors.values()):,} values were"
                    " compared"
                ],
            )
