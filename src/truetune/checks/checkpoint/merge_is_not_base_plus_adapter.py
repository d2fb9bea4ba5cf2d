"""A merged model is not what base and adapter make.

## What it does
Needs the base and the adapter that was merged (`truetune movement MERGED --base BASE --adapter ADAPTER`; `truetune
merge` does it by itself). Computes from the files what each tensor should be, all values of it, and compares. An
error: modules that were left out, another scale than the adapter's, something else altogether. A warning: the format
of the merged model rounds much of the change away, though the merge is right.

## Why it is bad
The merged model answers otherwise than the adapter that was tested. A scale of `lora_alpha / r` where rsLoRA trained
with `lora_alpha / sqrt(r)` leaves a small part of the effect; so does a change that is smaller than the steps of
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
Merge again, in float32, with the adapter_config.json that was saved with the adapter. Keep float32 where bfloat16
rounds the change away, or serve the adapter unmerged.

## References
- huggingface/peft#1043, huggingface/peft#2321, vllm-project/vllm#6909, vllm-project/vllm#10798
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from truetune.checkpoint.load_checkpoint import Checkpoint
from truetune.checkpoint.weight_diff import KeptChange, TensorMovement
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule

LEAST = 0.05
"""Share of the change that must be left to tell its scale"""
OFF = 0.1
"""Of the scale"""
LOST = 0.25
"""Share of the change that the format may round away"""
EVERY = 0.999
REMEDY = "merge again in float32, with the adapter_config.json that was saved with the adapter"


class MergeIsNotBasePlusAdapter(CheckpointRule):
    code = "CKP028"
    severity = "error"
    since = "0.1.0"
    judges_changes = True
    kind = "model"
    compares = True

    def unmet(self) -> Unmet | None:
        if unmet := super().unmet():
            return unmet
        if self.subject.adapter is not None:
            return None
        return Unmet(
            "the adapter that was merged is not named", "name it with truetune movement --adapter"
        )

    def figure(self) -> str:
        tensors = [t for t in self.subject.manifest.tensors if t.merged]
        whole = self.subject.manifest.merged
        return f"{len(tensors):,} tensors are base plus adapter" + (
            f"; {whole.kept:.1%} of the adapter's change is there" if whole else ""
        )

    def findings(self) -> Iterator[Finding]:
        found = self.subject
        if found.kind != "model" or found.base is None or found.adapter is None:
            return
        merged = {t: t.merged for t in found.manifest.tensors if t.merged}
        left_out = [
            t for t, kept in merged.items() if kept.lost >= EVERY * kept.changed > kept.least
        ]
        odd = [
            t
            for t, kept in merged.items()
            if t not in left_out and kept.best > LEAST and abs(_scale(kept) - 1) > OFF
        ]
        if not merged:
            yield self.finding("no tensor of the model is one that the adapter changes", REMEDY)
        if left_out:
            yield self._told(
                left_out, len(merged), "are the base's: the adapter was not merged into them"
            )
        if odd:
            yield self._told(odd, len(merged), self._meaning(odd, found.adapter))
        whole = found.manifest.merged
        if whole and not left_out and not odd and whole.best < 1 - LOST:
            tensors = sorted(merged, key=lambda t: merged[t].best)
            yield self.finding(
                f"{1 - whole.best:.0%} of the adapter's change is rounded away in"
                f" {tensors[0].dtype}: {whole.lost:,} of {whole.changed:,} values come out as the"
                " base's alone",
                "merge into float32 (--dtype float32), or serve the adapter unmerged",
                severity="warning",
                cases=[Case(f"{t.name}: {1 - merged[t].best:.0%} rounded away") for t in tensors],
                count=len(merged),
            )

    def _told(self, tensors: Sequence[TensorMovement], total: int, what: str) -> Finding:
        return self.finding(
            f"{len(tensors):,} of {total:,} tensors {what}",
            REMEDY,
            cases=[
                Case(f"{t.name}: {t.merged.kept:.3g} of the adapter's change is there")
                for t in tensors
                if t.merged
            ],
            count=len(tensors),
            total=total,
        )

    def _meaning(self, tensors: Sequence[TensorMovement], adapter: Checkpoint) -> str:
        scales = sorted(_scale(t.merged) for t in tensors if t.merged)
        middle = scales[len(scales) // 2]
        if scales[-1] - scales[0] > OFF * abs(middle) or abs(middle) < LEAST:
            return "hold something else than base and adapter: another adapter, or another base"
        rank, root = adapter.adapter_config.get("r"), bool(adapter.adapter_config.get("use_rslora"))
        forgotten = math.sqrt(rank) if isinstance(rank, int) and rank > 0 else math.nan
        note = ""
        if math.isclose(middle, 1 / forgotten if root else forgotten, rel_tol=OFF):
            note = ": use_rslora was not read" if root else ": as if use_rslora was set"
        return f"hold {middle:.3g} times the adapter's change{note}"


def _scale(kept: KeptChange) -> float:
    return kept.kept / kept.best
