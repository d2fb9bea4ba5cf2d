"""A merged model has a part of its base's weights in it twice.

## What it does
Compares samples of each matrix with the base's. It fires if nearly all matrices that moved by 5 % of their size or more
moved along the base's own values: their product with the base is the square of the move itself. A move that training
made is nearly at right angles to the base, a part of the base that was added again is not.

## Why it is bad
PiSSA and OLoRA take the main part of each matrix out of the base and start the adapter from it. Such an adapter belongs
on what is left of the base. Merged into the original base, the main part counts twice: the largest singular values are
nearly doubled, and the model talks nonsense, although training and adapter were fine.

## Example
```yaml
tensors:
  model.layers.0.self_attn.q_proj.weight: {shape: [64, 32], principal: 4}
  model.layers.0.self_attn.k_proj.weight: {shape: [64, 32], principal: 4}
  model.layers.0.self_attn.v_proj.weight: {shape: [64, 32], principal: 4}
base:
  tensors:
    model.layers.0.self_attn.q_proj.weight: {shape: [64, 32]}
    model.layers.0.self_attn.k_proj.weight: {shape: [64, 32]}
    model.layers.0.self_attn.v_proj.weight: {shape: [64, 32]}
```

## Use instead
```yaml
tensors:
  model.layers.0.self_attn.q_proj.weight: {shape: [64, 32], add: 0.01}
  model.layers.0.self_attn.k_proj.weight: {shape: [64, 32], add: 0.01}
  model.layers.0.self_attn.v_proj.weight: {shape: [64, 32], add: 0.01}
base:
  tensors:
    model.layers.0.self_attn.q_proj.weight: {shape: [64, 32]}
    model.layers.0.self_attn.k_proj.weight: {shape: [64, 32]}
    model.layers.0.self_attn.v_proj.weight: {shape: [64, 32]}
```

## Fix safety
Base and adapter are not changed: merge again. peft's `merge_and_unload` does it right, since it takes the main part out
of the base when it loads such an adapter.

## References
- hiyouga/LLaMA-Factory#6171, huggingface/peft#2184
- Meng et al., PiSSA (arXiv:2404.02948); Hu et al., LoRA (arXiv:2106.09685), section 7.3
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from pathlib import Path

from truetune.checkpoint.adapter_started_from_base import part_of_base_at_start
from truetune.checkpoint.compare_tensor_samples import SampledChange
from truetune.checkpoint.read_weight_files_and_faults import read_json_object
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule

# Chosen: PiSSA of rank 16 takes a fifth of the size of a matrix of 4,096 rows and more of smaller ones. Below, the
# sample of a small matrix does not tell the direction of a move.
MIN_CHANGE = 0.05
"""Share of a matrix's size by which it moved"""
# Measured: 1.00 in all matrices of a PiSSA adapter on its original base; of 30 pairs of base and trained model, large
# and small moves, the median is between -0.4 and 0.4. Of a LoRA the share is 0.05 by table 7 of the paper on it.
LOWEST_SHARE, HIGHEST_SHARE = 0.7, 1.3
"""Of the move, how much is the base's own, where the base was added again; the rest is what training changed"""
MIN_MATRICES = 3
MOST_MATRICES = 0.9
"""Share of the moved matrices that show it"""
MAX_FOLDERS = 60


class PartOfBaseMergedTwice(CheckpointRule):
    code = "CKP045"
    fault = Fault.ADAPTER_PUT_ON_WRONG_BASE
    symptoms = ("garbage-output",)
    severity = "error"
    judges_changes = True
    kind = "model"
    compares = True

    def unmet(self) -> Unmet | None:
        """Unmet where few matrices of the base moved as far as such a merge moves them."""
        lacking = super().unmet()
        if lacking is not None or len(self._moved_far) >= MIN_MATRICES:
            return lacking
        return Unmet("it is about matrices that moved far, and few did")

    def measurement_if_clean(self) -> str:
        """How many of the matrices that moved far moved along the base's own values."""
        return f"{len(self._along_base):,} of {len(self._moved_far):,} matrices moved along the base's own values"

    def findings(self) -> Iterator[Finding]:
        moved, along, base = self._moved_far, self._along_base, self.subject.base
        if base is None or len(moved) < MIN_MATRICES or len(along) < MOST_MATRICES * len(moved):
            return
        adapter = _adapter_initialised_from_base(self.subject.folder)
        largest = max(change.change for change in along.values())
        yield self.finding(
            f"{len(along):,} of {len(moved):,} matrices that moved have a part of {base.folder.name} in them twice:"
            f" they moved along its own values, by up to {largest:.0%} of their size",
            "merge with peft (merge_and_unload) or truetune merge, which take the adapter's first part out of the base;"
            " or save the adapter as a plain LoRA (path_initial_model_for_weight_conversion) and merge that",
            evidence=[adapter] if adapter else (),
            cases=[
                Case(
                    f"{name}: moved by {change.change:.0%}, {change.along_base:.0%} of it the base's own"
                )
                for name, change in along.items()
            ],
            count=len(along),
            total=len(moved),
        )

    @cached_property
    def _moved_far(self) -> dict[str, SampledChange]:
        """The matrices that moved far enough to tell the direction."""
        if self.subject.kind != "model" or self.subject.base is None:
            return {}
        return {
            name: change
            for name, change in self.subject.sampled_changes_from_base.items()
            if len(self.subject.tensors[name].shape) == 2 and change.change >= MIN_CHANGE
        }

    @cached_property
    def _along_base(self) -> dict[str, SampledChange]:
        """Those of them whose move is a part of the base."""
        return {
            name: change
            for name, change in self._moved_far.items()
            if LOWEST_SHARE <= change.along_base <= HIGHEST_SHARE
        }


def _adapter_initialised_from_base(model: Path) -> str:
    """What an adapter beside the model says of how it was started; empty where none lies there."""
    try:
        folders = sorted(islice(model.resolve().parent.iterdir(), MAX_FOLDERS))
    except OSError:
        return ""
    for folder in folders:
        settings = read_json_object(folder / "adapter_config.json", []) or {}
        started = part_of_base_at_start(settings)
        if started is not None:
            return f"{folder.name}/adapter_config.json: init_lora_weights is {started}"
    return ""
