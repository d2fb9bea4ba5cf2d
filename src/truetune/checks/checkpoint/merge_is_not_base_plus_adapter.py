"""A merged model is not the sum of its base and its adapter.

## What it does
Needs the base and the adapter that was merged (`truetune movement MERGED --base BASE --adapter ADAPTER`; `truetune
merge` does it by itself). It computes from the files what each value should be, and compares. Modules that were left
out, another scale than the adapter's, magnitudes of DoRA that are missing, or something else altogether are an error.
It is a warning if the merge is right but the format of the merged model rounds much of the change away.

If no adapter is named, one in a folder beside the model is taken, if its change is what separates the model from its
base. Then some rows of each tensor are compared.

## Why it is bad
The merged model gives other answers than the adapter that was tested. A scale of `lora_alpha / r` where rsLoRA trained
with `lora_alpha / sqrt(r)` leaves a small part of the effect. So does a change that is smaller than the steps of
bfloat16.

## Example
```yaml
llama: 2
merge: 0.5
adapter: {lora: [q_proj]}
base: {llama: 2}
```

## Use instead
```yaml
llama: 2
merge: 1.0
adapter: {lora: [q_proj]}
base: {llama: 2}
```

## Fix safety
Merge again, in float32, with the adapter_config.json that was saved with the adapter. If bfloat16 rounds the change
away, keep float32 (twice the size), or serve the adapter unmerged.

## References
- huggingface/peft#1043, huggingface/peft#2321, vllm-project/vllm#6909, vllm-project/vllm#10798
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from truetune.checkpoint.adapter_started_from_base import part_of_base_at_start
from truetune.checkpoint.find_dora_merged_without_magnitudes import (
    tensors_merged_without_magnitudes,
)
from truetune.checkpoint.find_merged_adapter_beside import (
    SampledMerge,
    find_merged_adapter_beside,
    median_correlation,
)
from truetune.checkpoint.load_checkpoint import Checkpoint
from truetune.checkpoint.weight_diff import KeptChange, TensorMovement
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule

# Share of the change that must be left to tell its scale: below, rounding makes any number of it. Chosen, not measured.
MIN_SHARE_TO_TELL = 0.05
# How far a scale may be off. Chosen, not measured: rounding to bfloat16 moves the scale of a tensor by some percent. At
# half, small adapters in bfloat16 would be named; at double, an alpha that is off by a sixth would pass.
MAX_SCALE_ERROR = 0.1
# Share of the change that the format may round away. Chosen: at half of it nearly every merge into bfloat16 would be
# named, at double one whose adapter is half gone would not.
MAX_ROUNDED_SHARE = 0.25
# Share of the changed values that are the base's from which a tensor was left out: a few come out equal by rounding.
LEFT_OUT_SHARE = 0.999
MIN_CORRELATION_TO_TELL_SCALE = 0.97
"""Of the model's change and that of an adapter that nobody named. Chosen, not measured: those of two checkpoints of one
training, a tenth of it apart, have less"""
MIN_SHARE_WITHOUT_MAGNITUDES = 0.5
"""Of the tensors that have them. Chosen: a script leaves out all, and single ones may be near by chance"""
REMEDY = "merge again in float32 with the adapter_config.json that was saved with the adapter: truetune merge ADAPTER"
STARTS_FROM_BASE = Unmet(
    "the adapter was started from a part of its base, which is taken out of the base: base plus adapter is not the"
    " merged model"
)


class MergeIsNotBasePlusAdapter(CheckpointRule):
    code = "CKP028"
    fault = Fault.MERGE_LOSES_ADAPTER
    severity = "error"
    since = "0.1.0"
    judges_changes = True
    kind = "model"
    compares = True

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        adapter = self.subject.adapter
        if adapter is not None:
            return STARTS_FROM_BASE if part_of_base_at_start(adapter.adapter_config) else None
        if self._adapter_beside is not None:
            return None
        return Unmet(
            "the adapter that was merged is not named", "name it with truetune movement --adapter"
        )

    def measurement_if_clean(self) -> str:
        """How many tensors are base plus adapter, and how much of the adapter's change is preserved."""
        if self.subject.adapter is None:
            count = len(self._adapter_beside[1]) if self._adapter_beside is not None else 0
            return f"{count:,} tensors are base plus the adapter beside it, in the rows that were sampled"
        tensors = [
            tensor for tensor in self.subject.full_comparison_with_base.tensors if tensor.merged
        ]
        total = self.subject.full_comparison_with_base.merged
        share = f"; {total.kept:.1%} of the adapter's change is preserved" if total else ""
        return f"{len(tensors):,} tensors are base plus adapter{share}"

    def findings(self) -> Iterator[Finding]:
        checkpoint = self.subject
        if checkpoint.kind != "model" or checkpoint.base is None:
            return
        if checkpoint.adapter is None:
            yield from self._findings_by_adapter_beside()
            return
        if part_of_base_at_start(checkpoint.adapter.adapter_config):
            return
        merged = {
            tensor: tensor.merged
            for tensor in checkpoint.full_comparison_with_base.tensors
            if tensor.merged
        }
        if not merged:
            yield self.finding("the model has none of the tensors that the adapter changes", REMEDY)
            return
        faults = list(self._finding_on_lost_magnitudes(checkpoint.adapter, checkpoint.base))
        faults = faults or list(self._findings_on_wrong_tensors(merged, checkpoint.adapter))
        yield from faults
        # What is wrong by itself explains the rest; only a right merge is asked for its rounding.
        if not faults:
            yield from self._finding_on_rounded_merge(merged)

    @cached_property
    def _adapter_beside(self) -> tuple[Checkpoint, dict[str, SampledMerge]] | None:
        """The adapter in a folder beside it whose change is in the weights, with how often it is in each tensor."""
        return find_merged_adapter_beside(self.subject)

    def _findings_by_adapter_beside(self) -> Iterator[Finding]:
        """The findings on a model into which an adapter beside it was merged, by samples of its rows."""
        if self._adapter_beside is None:
            return
        adapter, merged = self._adapter_beside
        left_out = [name for name, one in merged.items() if one.is_base]
        if left_out:
            yield self._finding_by_samples(
                left_out, merged, f"are the base's: {adapter.folder.name} was not merged into them"
            )
        # Another checkpoint of the same training resembles the one that was merged: its scale says nothing.
        if median_correlation(merged) < MIN_CORRELATION_TO_TELL_SCALE:
            return
        changed = {name: one.times for name, one in merged.items() if not one.is_base}
        median = sorted(changed.values())[len(changed) // 2]
        misscaled = [name for name, times in changed.items() if abs(times - 1) > MAX_SCALE_ERROR]
        if abs(median - 1) > MAX_SCALE_ERROR and misscaled:
            yield self._finding_by_samples(
                misscaled,
                merged,
                f"contain the change of {adapter.folder.name} {median:.3g} times, not once",
            )

    def _finding_by_samples(
        self, names: Sequence[str], merged: Mapping[str, SampledMerge], meaning: str
    ) -> Finding:
        """The finding on some of the sampled tensors; `meaning` says what they hold instead."""
        return self.finding(
            f"{len(names):,} of {len(merged):,} tensors {meaning}",
            REMEDY,
            evidence=["some rows of each tensor were compared with base and adapter"],
            cases=[Case(f"{name}: {merged[name].times:.3g} times") for name in names],
            count=len(names),
            total=len(merged),
        )

    def _finding_on_lost_magnitudes(
        self, adapter: Checkpoint, base: Checkpoint
    ) -> Iterator[Finding]:
        """The finding on a DoRA adapter that was merged as if it was plain LoRA."""
        names, total = tensors_merged_without_magnitudes(self.subject, adapter, base)
        if not names or len(names) < MIN_SHARE_WITHOUT_MAGNITUDES * total:
            return
        yield self.finding(
            f"{len(names):,} of {total:,} tensors are base plus B A, and the magnitudes of DoRA were left out:"
            f" {adapter.folder.name} has a lora_magnitude_vector for each",
            "merge again with merge_and_unload of peft, or with truetune merge ADAPTER, which scale each row to its"
            " magnitude",
            cases=[Case(name) for name in names],
            count=len(names),
            total=total,
        )

    def _findings_on_wrong_tensors(
        self, merged: Mapping[TensorMovement, KeptChange], adapter: Checkpoint
    ) -> Iterator[Finding]:
        """The findings on tensors that were left out, and on those with another scale."""
        left_out = [tensor for tensor, kept in merged.items() if _is_change_left_out(kept)]
        if left_out:
            meaning = "are the base's: the adapter was not merged into them"
            yield self._finding_on_wrongly_merged_tensors(left_out, len(merged), meaning)
        misscaled = [tensor for tensor, kept in merged.items() if _is_change_misscaled(kept)]
        if misscaled:
            meaning = _describe_scales(misscaled, adapter)
            yield self._finding_on_wrongly_merged_tensors(misscaled, len(merged), meaning)

    def _finding_on_rounded_merge(
        self, merged: Mapping[TensorMovement, KeptChange]
    ) -> Iterator[Finding]:
        """The finding on a correct merge into a format that is too coarse for the change."""
        total = self.subject.full_comparison_with_base.merged
        if not total or total.best >= 1 - MAX_ROUNDED_SHARE:
            return
        tensors = sorted(merged, key=lambda tensor: merged[tensor].best)
        yield self.finding(
            f"{1 - total.best:.0%} of the adapter's change is rounded away in"
            f" {tensors[0].dtype}: {total.lost:,} of {total.changed:,} values are the same as in the"
            " base",
            "merge into float32 (--dtype float32), or serve the adapter unmerged",
            severity="warning",
            cases=[
                Case(f"{tensor.name}: {1 - merged[tensor].best:.0%} rounded away")
                for tensor in tensors
            ],
            count=len(merged),
        )

    def _finding_on_wrongly_merged_tensors(
        self, tensors: Sequence[TensorMovement], total: int, meaning: str
    ) -> Finding:
        """The finding on some of the merged tensors; `meaning` says what they hold instead."""
        return self.finding(
            f"{len(tensors):,} of {total:,} tensors {meaning}",
            REMEDY,
            cases=[
                Case(
                    f"{tensor.name}: {tensor.merged.kept:.3g} of the adapter's change is preserved"
                )
                for tensor in tensors
                if tensor.merged
            ],
            count=len(tensors),
            total=total,
        )


def _is_change_left_out(kept: KeptChange) -> bool:
    """Are all values that the adapter would change those of the base, beyond what rounding explains?"""
    return kept.lost >= LEFT_OUT_SHARE * kept.changed > kept.least


def _is_change_misscaled(kept: KeptChange) -> bool:
    """Is another multiple of the adapter's change there than once? What was left out is another fault."""
    if _is_change_left_out(kept) or kept.best <= MIN_SHARE_TO_TELL:
        return False
    return abs(_scale_of_change(kept) - 1) > MAX_SCALE_ERROR


def _scale_of_change(kept: KeptChange) -> float:
    """How many times the change is there; `best` is what the format lets through of a right merge."""
    return kept.kept / kept.best


def _describe_scales(tensors: Sequence[TensorMovement], adapter: Checkpoint) -> str:
    """What tensors with another scale hold: one multiple of the change for all, or something else."""
    scales = sorted(_scale_of_change(tensor.merged) for tensor in tensors if tensor.merged)
    median = scales[len(scales) // 2]
    is_one_scale = scales[-1] - scales[0] <= MAX_SCALE_ERROR * abs(median)
    if not is_one_scale or abs(median) < MIN_SHARE_TO_TELL:
        return "are not base plus adapter at any scale: another adapter or another base was used"
    config = adapter.adapter_config
    rank, is_rslora = config.get("r"), bool(config.get("use_rslora"))
    # alpha / r instead of alpha / sqrt(r) is smaller by sqrt(r), and the other way round.
    root = math.sqrt(rank) if isinstance(rank, int) and rank > 0 else math.nan
    note = ""
    if math.isclose(median, 1 / root if is_rslora else root, rel_tol=MAX_SCALE_ERROR):
        note = ": use_rslora was ignored" if is_rslora else ": as if use_rslora was set"
    return f"contain the adapter's change {median:.3g} times, not once{note}"
