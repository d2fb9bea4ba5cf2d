"""All norms are bit-identical to the base's, while the matrices moved.

## What it does
Needs a base whose norms are stored in bfloat16. Fires where every norm is as it was and nearly all matrices are not,
the embedding among them (a model into which an adapter was merged is left out). A warning where the matrices show
that training ran in bare bfloat16 (`bf16-updates-rounded-away`); else a note: the norms may have been frozen on
purpose, or a short run in float32 was rounded when it was saved.

## Why it is bad
A norm's weight is near 1, where bfloat16 has steps of 2^-8 and 2^-7. An update of less than half of that rounds to
nothing, at every step, for as long as the run lasts: the norms are frozen, whatever the settings say.

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
Load the model in float32 and train with `bf16=True` (autocast), or keep the norms in float32. It needs more memory.

## References
- huggingface/sentence-transformers#3773, meta-pytorch/torchtune#2254, pytorch/ao#1124
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checkpoint.detect_merge import is_merge
from truetune.checkpoint.rounding_cliff import count_moved_by_octave, find_cliff
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule
from truetune.checks.unmet_reasons import MERGED

NEARLY_ALL = 0.9
NAMES = ("norm", "ln_")


class NormsNeverMoved(CheckpointRule):
    code = "CKP027"
    severity = "warning"
    since = "0.1.0"
    judges_changes = True
    changes_answers = False
    kind = "model"
    compares = True

    def unmet(self) -> Unmet | None:
        if unmet := super().unmet():
            return unmet
        if is_merge(self.subject.moved):
            return MERGED
        return (
            None
            if self._norms()
            else Unmet("the base holds no norm in bfloat16 that can be compared")
        )

    def figure(self) -> str:
        found, norms = self.subject, self._norms()
        moved = sum(found.moved[name].same < found.moved[name].seen for name in norms)
        every = sum(m.same < m.seen for m in found.moved.values())
        return (
            f"{moved:,} of {len(norms):,} norms moved, and {every:,} of all {len(found.moved):,}"
            " tensors"
        )

    def _norms(self) -> list[str]:
        """Norms that the base holds in bfloat16."""
        base = self.subject.base
        tensors = base.tensors if base is not None else {}
        named = (name for name in self.subject.moved if any(part in name.lower() for part in NAMES))
        return [
            name
            for name in named
            if tensors[name].dtype == "BF16" and len(tensors[name].shape) == 1
        ]

    def findings(self) -> Iterator[Finding]:
        found, base = self.subject, self.subject.base
        if found.kind != "model" or base is None or is_merge(found.moved):
            return
        norms = self._norms()
        matrices = [name for name in found.moved if len(base.tensors[name].shape) > 1]
        moved = [name for name in matrices if found.moved[name].same < found.moved[name].seen]
        still = all(found.moved[name].same == found.moved[name].seen for name in norms)
        if not norms or not still or len(moved) < NEARLY_ALL * len(matrices) or not moved:
            return
        stored = [name for name in moved if base.tensors[name].dtype == "BF16"]
        bare = find_cliff(count_moved_by_octave(found, stored)) is not None
        yield self.finding(
            f"all {len(norms):,} norms equal the base bit by bit; {len(moved):,} of"
            f" {len(matrices):,} matrices are not",
            "train with float32 weights and bf16 autocast, or an optimizer that keeps a float32"
            " copy",
            severity="warning" if bare else "info",
            evidence=[
                "near 1, bfloat16 has steps of 2^-8 and 2^-7: an update of less than half of that"
                " rounds to nothing"
            ],
            cases=[Case(name, file=found.tensors[name].file.name) for name in norms],
            count=len(norms),
        )
