"""Most tensors of a fine-tuned model equal its base bit by bit, and nothing says that they were to stay.

## What it does
Compares the tensors with the base's. It fires where half of them or more are the same, while others moved; but not
where that was meant: an adapter was merged (of the layers all of some kinds moved, and no embedding or norm), the
record of the run names an adapter or frozen layers, only rows of new tokens moved, or norms alone stayed. It is a note
where the tensors that moved are all those of one kind or of whole layers, as layers are frozen on purpose.

## Why it is bad
The loss of such a run falls, for what moved learns what it can. The rest was frozen by a setting that nobody meant,
left out of the optimizer, without a gradient, or not saved.

## Example
```yaml
tensors:
  model.embed_tokens.weight: {shape: [64, 16]}
  model.layers.0.self_attn.q_proj.weight: {shape: [16, 16], add: 0.01}
  model.layers.0.self_attn.k_proj.weight: {shape: [16, 16]}
  model.layers.1.self_attn.q_proj.weight: {shape: [16, 16]}
  model.layers.1.self_attn.k_proj.weight: {shape: [16, 16]}
  model.norm.weight: {shape: [16], add: 0.01}
base:
  tensors:
    model.embed_tokens.weight: {shape: [64, 16]}
    model.layers.0.self_attn.q_proj.weight: {shape: [16, 16]}
    model.layers.0.self_attn.k_proj.weight: {shape: [16, 16]}
    model.layers.1.self_attn.q_proj.weight: {shape: [16, 16]}
    model.layers.1.self_attn.k_proj.weight: {shape: [16, 16]}
    model.norm.weight: {shape: [16]}
```

## Use instead
```yaml
tensors:
  model.embed_tokens.weight: {shape: [64, 16], add: 0.01}
  model.layers.0.self_attn.q_proj.weight: {shape: [16, 16], add: 0.01}
  model.layers.0.self_attn.k_proj.weight: {shape: [16, 16], add: 0.01}
  model.layers.1.self_attn.q_proj.weight: {shape: [16, 16], add: 0.01}
  model.layers.1.self_attn.k_proj.weight: {shape: [16, 16], add: 0.01}
  model.norm.weight: {shape: [16], add: 0.01}
base:
  tensors:
    model.embed_tokens.weight: {shape: [64, 16]}
    model.layers.0.self_attn.q_proj.weight: {shape: [16, 16]}
    model.layers.0.self_attn.k_proj.weight: {shape: [16, 16]}
    model.layers.1.self_attn.q_proj.weight: {shape: [16, 16]}
    model.layers.1.self_attn.k_proj.weight: {shape: [16, 16]}
    model.norm.weight: {shape: [16]}
```

## Fix safety
There is no automatic fix. `truetune run -- COMMAND` shows which tensors are trained, get a gradient, and are in the
optimizer, before the next run.

## References
- huggingface/sentence-transformers#3773, meta-pytorch/torchtune#2254
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checkpoint.detect_merge import is_merge
from truetune.checkpoint.embedding_matrices import EMBEDDING_NAMES, HEAD_NAMES
from truetune.checks.checkpoint.layers import are_targets, are_whole
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule

MOST = 0.5
FROZEN = ("lora", "adapter", "peft_config", "freeze", "frozen", "unfrozen_parameters", "trainable")
"""Settings of a run that leave weights as they are"""


class MostWeightsNeverMoved(CheckpointRule):
    code = "CKP033"
    severity = "warning"
    judges_changes = True
    moot_where = ("bf16-updates-rounded-away",)
    kind = "model"
    compares = True

    def unmet(self) -> Unmet | None:
        if unmet := super().unmet():
            return unmet
        moved = self._moved()
        if not self.subject.moved:
            return Unmet("no tensor can be compared with the base's")
        if not moved:
            return Unmet("no tensor moved, which weights-equal-the-base is about")
        if (
            len(self.subject.moved) - len(moved) < MOST * len(self.subject.moved)
            or not self._is_meant()
        ):
            return None
        return Unmet(
            f"{len(moved):,} of {len(self.subject.moved):,} tensors moved, which an adapter, frozen"
            " layers or new tokens explain"
        )

    def figure(self) -> str:
        return f"{len(self._moved()):,} of {len(self.subject.moved):,} tensors moved"

    def _moved(self) -> set[str]:
        return {name for name, m in self.subject.moved.items() if m.same < m.seen}

    def findings(self) -> Iterator[Finding]:
        found = self.subject
        if found.kind != "model" or found.base is None or self._is_meant():
            return
        moved = self._moved()
        still = found.moved.keys() - moved
        matrices = [name for name in still if len(found.tensors[name].shape) > 1]
        if not moved or not matrices or len(still) < MOST * len(found.moved):
            return
        whole = are_whole(moved, set(found.moved))
        yield self.finding(
            f"{len(still):,} of {len(found.moved):,} tensors equal those of"
            f" {found.base.folder.name} bit by bit, while {len(moved):,} moved",
            "see which tensors are trained and reach the optimizer (truetune run -- COMMAND),"
            " unless these were frozen on purpose",
            severity="info" if whole else "warning",
            evidence=[
                f"moved: {', '.join(sorted(moved)[:4])}" + (", ..." if len(moved) > 4 else "")
            ],
            cases=[Case(name, file=found.tensors[name].file.name) for name in sorted(matrices)],
            count=len(still),
            total=len(found.moved),
        )

    def _is_meant(self) -> bool:
        """Do an adapter, a record of the run, or new tokens explain it?"""
        found = self.subject
        settings = found.run.get("settings")
        training = settings.get("training") if isinstance(settings, dict) else None
        named = training if isinstance(training, dict) else {}
        moved = self._moved()
        if found.adapter is not None or any(named.get(name) for name in FROZEN):
            return True
        if is_merge(found.moved) and are_targets(moved, set(found.moved)):
            return True
        return found.new_tokens is not None and all(
            name.endswith((*EMBEDDING_NAMES, *HEAD_NAMES)) for name in moved
        )
