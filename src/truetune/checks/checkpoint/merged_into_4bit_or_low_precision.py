"""An adapter was merged into rounded weights, and much of it is lost.

## What it does
Needs the base, and reads models into which an adapter was merged: matrices inside the layers differ from the base's,
embeddings and norms do not. It counts the values in merged matrices that are bit-identical to the base's. It looks for
matrices with at most 16 different values in each block of 64 where the base has more (they were 4-bit). And it looks
for large differences that leave out the largest value of each block of 64, as rounding to 4 bits does and training does
not.

## Why it is bad
In bfloat16 a small change of a value is rounded to nothing. A 4-bit base that is unpacked and merged has the error of
its quantization, which is larger than what most adapters add. The merged model is closer to the base, or further from
what was trained, than base and adapter together.

## Example
```yaml
llama: 2
tensors:
  model.layers.0.self_attn.q_proj.weight: {dtype: BF16, add: 0.00002}
  model.layers.1.self_attn.q_proj.weight: {dtype: BF16, add: 0.00002}
base:
  llama: 2
  tensors:
    model.layers.0.self_attn.q_proj.weight: {dtype: BF16}
    model.layers.1.self_attn.q_proj.weight: {dtype: BF16}
```

## Use instead
```yaml
llama: 2
tensors:
  model.layers.0.self_attn.q_proj.weight: {add: 0.00002}
  model.layers.1.self_attn.q_proj.weight: {add: 0.00002}
base:
  llama: 2
  tensors:
    model.layers.0.self_attn.q_proj.weight: {dtype: BF16}
    model.layers.1.self_attn.q_proj.weight: {dtype: BF16}
```

## Fix safety
Merge in float32 into the base as it was in training (unpacked in the same way for QLoRA), and serve that, or serve the
adapter unmerged. A float32 model takes twice the space.

## References
- huggingface/peft#1043, huggingface/peft#2321, huggingface/peft#2586, artidoro/qlora#28, artidoro/qlora#254
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from truetune.checkpoint.compare_tensor_samples import SampledChange
from truetune.checkpoint.detect_adapter_merged_into_weights import (
    BLOCK_VALUES,
    change_at_block_peaks,
    find_matrices_of_4_bit_values,
    is_merge,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule

# Share of bit-identical values in merged matrices. Chosen, not measured: a sound merge into bfloat16 keeps some of the
# small changes from its large values. At half of it most such merges would be named; near 1 only those without effect.
MIN_IDENTICAL_SHARE = 0.5
# Change of a matrix, of its own size: an adapter's is mostly below, the error of 4 bits is about a tenth.
MIN_CHANGE = 0.02
# Values of a matrix in which the blocks can be told: 256 blocks of 64.
MIN_VALUES = 1 << 14
# How far the largest values of blocks have moved, as a share of all: 1 where rounding has no part in it, near 0 where
# it is all of the change. Chosen between: an adapter that was merged besides moves them too.
MAX_CHANGE_AT_PEAKS = 0.7
# Matrices whose blocks are read; reading all would take as long as the merge.
MAX_SAMPLED_MATRICES = 8
REMEDY = (
    "merge in float32 into the unquantized base that the adapter was trained on (truetune merge ADAPTER --base BASE"
    " --dtype float32), or serve the adapter unmerged"
)


class MergedInto4bitOrLowPrecision(CheckpointRule):
    code = "CKP015"
    fault = Fault.MERGE_LOSES_ADAPTER
    severity = "warning"
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
        return (
            None
            if self.subject.sampled_changes_from_base
            else Unmet("no tensor can be compared with the base's")
        )

    def measurement_if_clean(self) -> str:
        """The share of the base's values in the tensors that moved, and whether it looks like a merge."""
        movements = self.subject.sampled_changes_from_base
        changed = [movement for movement in movements.values() if movement.same < movement.seen]
        same = sum(movement.same for movement in changed)
        seen = sum(movement.seen for movement in changed)
        share = (
            f"{same / max(1, seen):.0%} of the values in the {len(changed):,} tensors that moved"
            " are the base's"
        )
        return share if is_merge(movements) else f"no sign of a merge; {share}"

    def findings(self) -> Iterator[Finding]:
        checkpoint, base = self.subject, self.subject.base
        if checkpoint.kind != "model" or base is None:
            return
        is_quantized = bool(checkpoint.config.get("quantization_config"))
        if is_quantized and not base.config.get("quantization_config"):
            yield self.finding(
                "the base is not quantized, but this merged model is stored quantized", REMEDY
            )
            return
        # A base that was itself unpacked from 4 bits is so with and without a merge.
        of_base = set(find_matrices_of_4_bit_values(base.tensors))
        unpacked = [
            name
            for name in find_matrices_of_4_bit_values(checkpoint.tensors)
            if name not in of_base
        ]
        if unpacked:
            yield self.finding(
                f"{len(unpacked):,} matrices have at most 16 different values in each block of 64:"
                " they were unpacked from 4 bits",
                REMEDY,
                cases=[Case(name, file=checkpoint.tensors[name].file.name) for name in unpacked],
                count=len(unpacked),
            )
        elif is_merge(checkpoint.sampled_changes_from_base):
            changed = {
                name: movement
                for name, movement in checkpoint.sampled_changes_from_base.items()
                if movement.same < movement.seen
            }
            yield from self._finding_on_unchanged_values(changed)
            yield from self._finding_on_rounded_blocks(changed)

    def _finding_on_unchanged_values(
        self, changed: Mapping[str, SampledChange]
    ) -> Iterator[Finding]:
        """The finding on 16-bit matrices in which many values are still the base's."""
        tensors = self.subject.tensors
        narrow = {
            name: movement
            for name, movement in changed.items()
            if tensors[name].dtype in ("BF16", "F16")
        }
        same = sum(movement.same for movement in narrow.values())
        seen = sum(movement.seen for movement in narrow.values())
        if not seen or same / seen < MIN_IDENTICAL_SHARE:
            return
        yield self.finding(
            f"{same / seen:.0%} of the values in {len(narrow):,} merged matrices are bit-identical"
            " to the base: the rest of the change was rounded away",
            REMEDY,
            evidence=[
                f"{seen:,} values were compared, stored as {tensors[next(iter(narrow))].dtype}"
            ],
            cases=[
                Case(f"{name}: {movement.same / movement.seen:.0%} identical")
                for name, movement in narrow.items()
            ],
            count=len(narrow),
        )

    def _finding_on_rounded_blocks(self, changed: Mapping[str, SampledChange]) -> Iterator[Finding]:
        """The finding on matrices whose change is that of rounding: it spares the largest value of each block."""
        spared = {}
        for name, movement in list(changed.items())[:MAX_SAMPLED_MATRICES]:
            is_readable = self.subject.tensors[name].value_count >= MIN_VALUES
            if movement.change > MIN_CHANGE and is_readable:
                share = change_at_block_peaks(self.subject, name)
                if share < MAX_CHANGE_AT_PEAKS:
                    spared[name] = share
        if not spared:
            return
        first = next(iter(spared))
        yield self.finding(
            f"the merged matrices differ from the base by {changed[first].change:.1%}, except for the"
            f" largest value of each block of {BLOCK_VALUES}: the adapter was merged into a base that"
            " had been rounded to 4 bits",
            REMEDY,
            evidence=[
                f"{name}: the largest values of blocks changed by only {share:.0%} of what all values did"
                for name, share in spared.items()
            ],
            count=len(spared),
        )
