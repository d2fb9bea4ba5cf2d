"""Most tensors of a fine-tuned model equal its base bit by bit, for no known reason.

## What it does
Compares the tensors with the base's. It warns if half of them or more are the same, while others changed. It is not
reported if that was meant: an adapter was merged (in the layers all modules of some kinds changed, and no embedding or
norm), the record of the run names an adapter or frozen layers, only rows of new tokens changed, or only norms stayed
the same. It is info if the tensors that changed are all those of one kind or of whole layers, as when layers are frozen
on purpose.

## Why it is bad
The loss of such a run falls, because the tensors that change learn what they can. The rest was frozen by a setting that
nobody intended, left out of the optimizer, without a gradient, or not saved.

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
There is no automatic fix. Before the next run, `truetune run -- COMMAND` shows which tensors are trained, get a
gradient, and are in the optimizer.

## References
- huggingface/sentence-transformers#3773, meta-pytorch/torchtune#2254
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checkpoint.detect_adapter_merged_into_weights import is_merge
from truetune.checkpoint.find_input_embedding_and_output_head import EMBEDDING_NAMES, HEAD_NAMES
from truetune.checks.checkpoint.find_layer_stacks_by_tensor_names import (
    are_adapter_targets,
    are_moved_whole_kinds_or_layers,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule

# Share of the tensors. Chosen, not measured: a partial fine-tune that somebody forgot freezes most. At half of it, a
# frozen vision tower would be named; near 1, a run that trains every second layer would pass.
MIN_UNMOVED_SHARE = 0.5
SHOWN_NAMES = 4
SETTINGS_THAT_FREEZE = (
    "lora",
    "adapter",
    "peft_config",
    "freeze",
    "frozen",
    "unfrozen_parameters",
    "trainable",
)
"""Settings of a run that leave weights as they are"""


class MostWeightsNeverMoved(CheckpointRule):
    code = "CKP033"
    fault = Fault.SAVED_MODEL_IS_THE_BASE
    symptoms = ("loss-does-not-fall", "nothing-is-learned")
    severity = "warning"
    judges_changes = True
    moot_where = ("bf16-updates-rounded-away",)
    kind = "model"
    compares = True

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        total, moved = len(self.subject.sampled_changes_from_base), len(self._moved_names())
        if not total:
            return Unmet("no tensor can be compared with the base's")
        if not moved:
            return Unmet("no tensor moved, which weights-equal-the-base is about")
        if total - moved < MIN_UNMOVED_SHARE * total or not self._is_lack_of_movement_explained():
            return None
        return Unmet(
            f"{moved:,} of {total:,} tensors moved, which an adapter, frozen layers or new tokens"
            " explain"
        )

    def measurement_if_clean(self) -> str:
        """How many tensors moved."""
        return f"{len(self._moved_names()):,} of {len(self.subject.sampled_changes_from_base):,} tensors moved"

    def _moved_names(self) -> set[str]:
        """Tensors of which a value differs from the base's."""
        return {
            name
            for name, movement in self.subject.sampled_changes_from_base.items()
            if movement.same < movement.seen
        }

    def findings(self) -> Iterator[Finding]:
        checkpoint, base = self.subject, self.subject.base
        if checkpoint.kind != "model" or base is None or self._is_lack_of_movement_explained():
            return
        moved = self._moved_names()
        unmoved = checkpoint.sampled_changes_from_base.keys() - moved
        # Norms alone may stay by rounding: norms-never-moved is about them.
        matrices = [name for name in unmoved if len(checkpoint.tensors[name].shape) > 1]
        is_most = len(unmoved) >= MIN_UNMOVED_SHARE * len(checkpoint.sampled_changes_from_base)
        if not moved or not matrices or not is_most:
            return
        are_chosen = are_moved_whole_kinds_or_layers(
            moved, set(checkpoint.sampled_changes_from_base)
        )
        shown = ", ".join(sorted(moved)[:SHOWN_NAMES])
        yield self.finding(
            f"{len(unmoved):,} of {len(checkpoint.sampled_changes_from_base):,} tensors equal those of"
            f" {base.folder.name} bit by bit, while {len(moved):,} changed",
            "check which tensors are trained and are in the optimizer (truetune run -- COMMAND),"
            " unless these were frozen on purpose",
            severity="info" if are_chosen else "warning",
            evidence=[f"changed: {shown}" + (", ..." if len(moved) > SHOWN_NAMES else "")],
            cases=[
                Case(name, file=checkpoint.tensors[name].file.name) for name in sorted(matrices)
            ],
            count=len(unmoved),
            total=len(checkpoint.sampled_changes_from_base),
        )

    def _is_lack_of_movement_explained(self) -> bool:
        """Do an adapter, a record of the run, or new tokens explain it?"""
        checkpoint = self.subject
        run_settings = checkpoint.run_record.get("settings")
        training = run_settings.get("training") if isinstance(run_settings, dict) else None
        settings = training if isinstance(training, dict) else {}
        if checkpoint.adapter is not None:
            return True
        if any(settings.get(name) for name in SETTINGS_THAT_FREEZE):
            return True
        moved = self._moved_names()
        if is_merge(checkpoint.sampled_changes_from_base) and are_adapter_targets(
            moved, set(checkpoint.sampled_changes_from_base)
        ):
            return True
        only_token_rows = all(name.endswith((*EMBEDDING_NAMES, *HEAD_NAMES)) for name in moved)
        return checkpoint.new_tokens is not None and only_token_rows
