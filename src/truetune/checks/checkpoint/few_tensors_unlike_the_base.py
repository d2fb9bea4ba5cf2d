"""Some tensors have nothing in common with the base's, or are scaled or shifted by one, while the rest follow it.

## What it does
Compares samples of all tensors with the base's. It fires if most are close to it (a cosine of 0.9 and more) and some
matrices or norms are not (below 0.3), or are far larger or smaller (1.6 or 0.4 times). It also fires if norms are the
base's plus or minus one: some models (Gemma) store a norm's weight minus one, and a conversion forgot it. If all
tensors, norms included, are the base's times one number, weights were added up that do not sum to one. Norms or
biases that are one number throughout were filled in on loading. It leaves
out biases, tensors that are zero in the base, output heads (an adapter may bring its own), all matrices of some kinds
(an adapter was merged into them), and matrices that have the base's values in another place
(`matrices-swapped-permuted-or-transposed`).

## Why it is bad
Training moves all weights a little. A tensor that has nothing of the base's was drawn at random on loading because its
name did not match, was overwritten by a conversion (norms that are stored around 0 instead of 1), or comes from another
model. The model loads and writes garbage, or is a little worse than it should be.

## Example
```yaml
llama: 2
tensors:
  model.layers.1.mlp.up_proj.weight: {seed: 7}
base: {llama: 2}
```

## Use instead
```yaml
llama: 2
tensors:
  model.layers.1.mlp.up_proj.weight: {add: 0.001}
base: {llama: 2}
```

## Fix safety
There is no automatic fix. Take these tensors from the training's own checkpoint; the base's are a way back if they were
never trained. If norms are shifted, subtract or add one in the script that converts, and convert again.

## References
- huggingface/transformers#27482, huggingface/peft#1381
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from truetune.checkpoint.compare_tensor_samples import SampledChange, sample_values
from truetune.checkpoint.find_input_embedding_and_output_head import HEAD_NAMES
from truetune.checkpoint.read_and_check_safetensors_header import StoredTensor
from truetune.checks.checkpoint.find_layer_stacks_by_tensor_names import are_adapter_targets
from truetune.checks.checkpoint.matrices_swapped_permuted_or_transposed import (
    MatricesSwappedPermutedOrTransposed,
)
from truetune.checks.checkpoint.merge_is_not_base_plus_adapter import MergeIsNotBasePlusAdapter
from truetune.checks.checkpoint.part_of_base_merged_twice import PartOfBaseMergedTwice
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule

EXPLAINING = (
    MatricesSwappedPermutedOrTransposed,
    PartOfBaseMergedTwice,
    MergeIsNotBasePlusAdapter,
)
"""Rules that say more of such tensors"""
MIN_COSINE_OF_TRAINED = 0.9
"""To the base's tensor of the same name. Fine-tuned ones stay above (`find_displaced_weights`)"""
MAX_COSINE_OF_FOREIGN = 0.3
"""Random tensors have about 0, norms that were shifted by one 0.1 to 0.2, a matrix with a strong adapter 0.48"""
MIN_SHARE_OF_TRAINED = 0.6
"""Of the tensors. Chosen: where fewer are close, the base is another model's, or all was trained again"""
MIN_DISTANCE_OF_SCALE = 0.6
"""Of a tensor's size over the base's, from one. Chosen: fine-tuned tensors stay within some percent, and conversions
that forget a factor are off by two and more"""
NORM_NAMES = ("norm", "ln_")
MIN_SHIFT, MAX_SHIFT, MAX_SPREAD_OF_SHIFT = 0.9, 1.1, 0.1
"""Of all values of a norm, up or down, and the spread of what was added. Chosen: training moves each value on its own,
by some percent, so that the shift is one to a hundredth where a conversion made it"""
MIN_VALUES = 16
"""Fewer values may come to any cosine by chance. Chosen, not measured: 0.5 is two standard deviations at 16"""


MIN_SHARE_ADDED_TO_ALL = 0.05
"""How far from one the factor of a whole model is. Chosen: training leaves the share of the base in each tensor within
about a percent, and weights of a merge that do not sum to one are off by a tenth and more"""
MAX_SPREAD_OF_FACTORS = 0.02
"""Of the tensors, norms and matrices alike"""
MIN_COSINE_OF_SCALED = 0.97
"""Below, the share of the base is no factor of the whole tensor"""
MIN_TENSORS_OF_MODEL = 8
MIN_INITIAL_TENSORS = 2
"""Norms or biases. Chosen: a single one may be set on purpose"""


class FewTensorsUnlikeTheBase(CheckpointRule):
    code = "CKP048"
    fault = Fault.SAVED_WEIGHTS_ALTERED
    symptoms = ("garbage-output",)
    severity = "warning"
    judges_changes = True
    kind = "model"
    compares = True

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        changes = self._comparable_changes()
        if self._shifted_norms():
            return None
        if not changes:
            return Unmet("no tensor can be compared with the base's")
        if _share_of_trained(changes) < MIN_SHARE_OF_TRAINED:
            return Unmet("most tensors are far from the base's: it may be another model's base")
        return None

    def measurement_if_clean(self) -> str:
        """How many tensors were compared, and the least cosine."""
        changes = self._comparable_changes()
        least = min((change.cosine for change in changes.values()), default=1.0)
        return f"{len(changes):,} tensors have a cosine of {least:.2f} and more to the base's"

    def _is_explained(self, foreign: set[str], compared: set[str]) -> bool:
        """Is it what a strong adapter does, or what another rule finds?"""
        # A strong adapter changes all matrices of some kinds; norms have none.
        holds_norm = any("norm" in name for name in foreign)
        if are_adapter_targets(foreign, compared) and not holds_norm:
            return True
        return any(True for rule in EXPLAINING for _ in rule(self.subject).findings())

    def findings(self) -> Iterator[Finding]:
        if self.subject.kind != "model" or self.subject.base is None:
            return
        shifted = self._shifted_norms()
        if shifted:
            yield self._finding_on_shifted_norms(shifted)
        yield from self._finding_on_initial_values()
        changes = self._comparable_changes_besides(shifted)
        foreign = {
            name: change
            for name, change in changes.items()
            if change.cosine < MAX_COSINE_OF_FOREIGN or _is_scaled(change)
        }
        if factor := _factor_of_all(changes):
            yield self._finding_on_scaled_model(factor, len(changes))
            return
        if not foreign or _share_of_trained(changes) < MIN_SHARE_OF_TRAINED:
            return
        if self._is_explained(set(foreign), set(changes)):
            return
        name, change = min(foreign.items(), key=lambda item: item[1].cosine)
        yield self.finding(
            f"{len(foreign):,} of {len(changes):,} tensors {_relation_to_base(change)} the base's, while the rest"
            " follow it:"
            f" {name}: {_describe(change)}",
            "take these tensors from the checkpoint that the training wrote, and look for their names in the warnings"
            " of loading and conversion (newly initialized)",
            cases=[Case(f"{name}: {_describe(change)}") for name, change in foreign.items()],
            count=len(foreign),
            total=len(changes),
        )

    def _finding_on_initial_values(self) -> Iterator[Finding]:
        """The finding on norms and biases that are one number throughout, as a new model's are, and the base's not."""
        base = self.subject.base
        if base is None:
            return
        names = [
            name
            for name, change in self.subject.sampled_changes_from_base.items()
            if change.seen >= MIN_VALUES
            and change.seen != change.same
            and _is_norm_or_bias(name)
            and _is_constant(self.subject.tensors[name])
            and not _is_constant(base.tensors[name])
        ]
        if len(names) < MIN_INITIAL_TENSORS:
            return
        value = float(sample_values(self.subject.tensors[names[0]])[0])
        yield self.finding(
            f"{len(names):,} norms or biases are {value:g} throughout, as in a new model, and the base's are not:"
            f" {names[0]}",
            "take them from the base or the training's checkpoint: a loader or converter did not find them, and filled"
            " them in",
            cases=[Case(name) for name in names],
            count=len(names),
            total=len(self.subject.sampled_changes_from_base),
        )

    def _finding_on_scaled_model(self, factor: float, count: int) -> Finding:
        """The finding on a model all of whose tensors are the base's times one number."""
        return self.finding(
            f"all {count:,} tensors, norms included, are the base's times {factor:.3g}, beside what training changed",
            "merge again with weights that sum to one (mergekit: `normalize: true`), or divide by their sum in the"
            " script that adds the weights up",
            cases=[Case(f"{count:,} tensors: {factor:.3g} times the base's")],
            count=count,
            total=count,
        )

    def _shifted_norms(self) -> dict[str, SampledChange]:
        """The norms that are the base's plus or minus one, in every value."""
        return {
            name: change
            for name, change in self.subject.sampled_changes_from_base.items()
            if any(part in name.lower() for part in NORM_NAMES)
            and not name.endswith("bias")
            and change.seen >= MIN_VALUES
            and MIN_SHIFT <= abs(change.mean_difference) <= MAX_SHIFT
            and change.spread_of_difference <= MAX_SPREAD_OF_SHIFT
        }

    def _finding_on_shifted_norms(self, shifted: Mapping[str, SampledChange]) -> Finding:
        """The finding on norms to whose values one was added, or from which it was taken."""
        name, change = next(iter(shifted.items()))
        is_larger = change.mean_difference > 0
        shift = f"{change.mean_difference:+.2f} in all values, give or take {change.spread_of_difference:.2g}"
        return self.finding(
            f"{len(shifted):,} norms are the base's {'plus' if is_larger else 'minus'} one: {name}: {shift}",
            f"{'subtract one from' if is_larger else 'add one to'} these norms in the script that converts, and convert"
            " again: the base's format holds them in the other form (Gemma's files hold the weight minus one)",
            cases=[
                Case(f"{name}: {one.mean_difference:+.2f} in all values")
                for name, one in shifted.items()
            ],
            count=len(shifted),
            total=len(self.subject.sampled_changes_from_base),
        )

    def _comparable_changes_besides(
        self, others: Mapping[str, SampledChange]
    ) -> dict[str, SampledChange]:
        """The changes of the tensors that can be told, without some others."""
        changes = self._comparable_changes()
        return {name: change for name, change in changes.items() if name not in others}

    def _comparable_changes(self) -> dict[str, SampledChange]:
        """The changes of the tensors that can be told: no biases or heads, and none that is zero in the base."""
        return {
            name: change
            for name, change in self.subject.sampled_changes_from_base.items()
            if not name.endswith("bias")
            and not name.endswith(HEAD_NAMES)
            and change.seen >= MIN_VALUES
            and not (change.cosine == change.along_base == 0)
        }


def _is_norm_or_bias(name: str) -> bool:
    """Is a tensor one that a new model fills with ones or zeros?"""
    return name.endswith("bias") or any(part in name.lower() for part in NORM_NAMES)


def _is_constant(tensor: StoredTensor) -> bool:
    """Are all sampled values of a tensor the same?"""
    values = sample_values(tensor)
    return bool((values == values[0]).all())


def _factor_of_all(changes: Mapping[str, SampledChange]) -> float | None:
    """The number by which all tensors are the base's; None where it is one, or differs between them.

    The share of the base in a tensor is 1 + (a - b) b / |b|^2, which are the two fields' product."""
    norms = sum(any(part in name.lower() for part in NORM_NAMES) for name in changes)
    if len(changes) < MIN_TENSORS_OF_MODEL or not norms:
        return None
    if any(change.cosine < MIN_COSINE_OF_SCALED for change in changes.values()):
        return None
    factors = sorted(1 + change.along_base * change.change**2 for change in changes.values())
    median = factors[len(factors) // 2]
    is_one_number = factors[-1] - factors[0] <= MAX_SPREAD_OF_FACTORS * abs(median)
    return median if is_one_number and abs(median - 1) >= MIN_SHARE_ADDED_TO_ALL else None


def _distance_of_scale(change: SampledChange) -> float:
    """How far the size of a tensor, over that of the base's, is from the cosine, up or down.

    From |a - b|^2 = |a|^2 - 2 cos |a||b| + |b|^2, which has two roots."""
    cosine = change.cosine
    return math.sqrt(max(0.0, cosine * cosine - 1 + change.change * change.change))


def _is_scaled(change: SampledChange) -> bool:
    """Is it the base's tensor times a number that no training gives?"""
    is_alike = change.cosine >= MIN_COSINE_OF_TRAINED
    return is_alike and _distance_of_scale(change) >= MIN_DISTANCE_OF_SCALE


def _describe(change: SampledChange) -> str:
    """What a tensor has of the base's."""
    if not _is_scaled(change):
        return f"cosine {change.cosine:.2f} to the base's"
    distance = _distance_of_scale(change)
    larger, smaller = change.cosine + distance, change.cosine - distance
    # A size is never negative.
    either = f"{smaller:.2g} or {larger:.2g}" if smaller > 0 else f"{larger:.2g}"
    return f"the base's, {either} times as large"


def _relation_to_base(change: SampledChange) -> str:
    """How a foreign tensor relates to the base's, as the middle of a sentence."""
    return "are at another scale than" if _is_scaled(change) else "have nothing in common with"


def _share_of_trained(changes: Mapping[str, SampledChange]) -> float:
    """The share of the tensors that are as close to the base's as trained ones are."""
    close = sum(change.cosine >= MIN_COSINE_OF_TRAINED for change in changes.values())
    return close / max(1, len(changes))
