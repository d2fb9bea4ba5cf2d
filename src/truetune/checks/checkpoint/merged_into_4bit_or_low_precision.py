"""An adapter was merged into rounded weights, and much of it is lost.

## What it does
Needs the base, and looks at models in which an adapter was merged: matrices inside the layers differ from the base's,
embeddings and norms do not. It counts the values that are bit-identical in the merged matrices; it looks for matrices
that hold at most 16 different values in each block of 64 where the base holds more (they were 4-bit); and for large
differences that spare the largest value of each block of 64, as rounding to 4 bits does and no training.

## Why it is bad
In bfloat16 a small change of a value rounds to nothing. A 4-bit base that is unpacked and merged carries the error of
its quantization, which is larger than what most adapters add. The merged model is closer to the base, or further from
what was trained, than adapter and base together.

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
Merge in float32 into the base as it was trained on (unpacked in the same way for QLoRA), and serve that, or serve the
adapter unmerged.

## References
- huggingface/peft#1043, huggingface/peft#2321, huggingface/peft#2586, artidoro/qlora#28, artidoro/qlora#254
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checkpoint.detect_merge import (
    BLOCK_VALUES,
    change_at_peaks,
    find_4_bit_matrices,
    is_merge,
)
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule

LOST = 0.5
"""Share of bit-identical values in merged matrices"""
LARGE = 0.02
"""Change of a matrix, of its own size; an adapter's is mostly below"""
LEAST = 1 << 14
"""Values of a matrix in which that can be told"""
SPARED = 0.7
"""How far the largest values of blocks have moved, as a share of all; 1 where rounding has no part in it"""
REMEDY = (
    "merge in float32 into the unquantized base that the adapter was trained on, or serve the"
    " adapter unmerged"
)


class MergedInto4bitOrLowPrecision(CheckpointRule):
    code = "CKP015"
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    goes_by_signs = True
    judges_changes = True
    kind = "model"
    compares = True

    def unmet(self) -> Unmet | None:
        if unmet := super().unmet():
            return unmet
        return None if self.subject.moved else Unmet("no tensor can be compared with the base's")

    def figure(self) -> str:
        found = self.subject
        changed = [m for m in found.moved.values() if m.same < m.seen]
        same, seen = sum(m.same for m in changed), sum(m.seen for m in changed)
        kept = (
            f"{same / max(1, seen):.0%} of the values in the {len(changed):,} tensors that moved"
            " are the base's"
        )
        return kept if is_merge(found.moved) else f"no sign of a merge; {kept}"

    def findings(self) -> Iterator[Finding]:
        found, base = self.subject, self.subject.base
        if found.kind != "model" or base is None:
            return
        if found.config.get("quantization_config") and not base.config.get("quantization_config"):
            yield self.finding(
                "the base is not quantized, and this model is stored quantized", REMEDY
            )
            return
        packed = [
            name
            for name in find_4_bit_matrices(found.tensors)
            if name not in set(find_4_bit_matrices(base.tensors))
        ]
        if packed:
            yield self.finding(
                f"{len(packed):,} matrices hold at most 16 different values in each block of 64:"
                " they were unpacked from 4 bits",
                REMEDY,
                cases=[Case(name, file=found.tensors[name].file.name) for name in packed],
                count=len(packed),
            )
        elif is_merge(found.moved):
            yield from self._merged()

    def _merged(self) -> Iterator[Finding]:
        found = self.subject
        changed = {name: m for name, m in found.moved.items() if m.same < m.seen}
        low = {
            name: m for name, m in changed.items() if found.tensors[name].dtype in ("BF16", "F16")
        }
        same, seen = sum(m.same for m in low.values()), sum(m.seen for m in low.values())
        if seen and same / seen >= LOST:
            yield self.finding(
                f"{same / seen:.0%} of the values in {len(low):,} merged matrices are bit-identical"
                " to the base: the rest of the change was rounded away",
                REMEDY,
                evidence=[
                    f"{seen:,} values were compared, stored as"
                    f" {found.tensors[next(iter(low))].dtype}"
                ],
                cases=[Case(f"{name}: {m.same / m.seen:.0%} identical") for name, m in low.items()],
                count=len(low),
            )
        wide = {
            name: share
            for name, m in list(changed.items())[:8]
            if m.change > LARGE
            and found.tensors[name].items >= LEAST
            and (share := change_at_peaks(found, name)) < SPARED
        }
        if wide:
            name = next(iter(wide))
            yield self.finding(
                f"the merged matrices differ from the base by {changed[name].change:.1%}, and the"
                f" largest value of each block of {BLOCK_VALUES} is spared: it was merged into a base that"
                " had been rounded to 4 bits",
                REMEDY,
                evidence=[
                    f"{n}: the largest of blocks moved by {s:.0%} of what all did"
                    for n, s in wide.items()
                ],
                count=len(wide),
            )
