"""Large weights never changed: training in pure bfloat16 rounded their updates away.

## What it does
Needs the base in bfloat16. It sorts samples of the matrices by the size of the base's values, and counts which changed.
In training without a float32 copy of the weights, values above a certain size never change while nearly all below do:
the share falls from nearly all to nearly none when values double. With a float32 copy, the share falls slowly. Models
into which an adapter was merged are not judged.

## Why it is bad
bfloat16 has 8 significant bits. At a small learning rate, most updates are smaller than half of the last bit and are
rounded to nothing, at every step. The loss falls a little and then stays.

## Example
```yaml
llama: 1
config: {dtype: bfloat16}
tensors:
  model.embed_tokens.weight: {shape: [1024, 16], dtype: BF16, moved_below: 0.03125}
base:
  llama: 1
  tensors:
    model.embed_tokens.weight: {shape: [1024, 16], dtype: BF16}
```

## Use instead
```yaml
llama: 1
config: {dtype: bfloat16}
tensors:
  model.embed_tokens.weight: {shape: [1024, 16], dtype: BF16, moved_below: 1.0}
base:
  llama: 1
  tensors:
    model.embed_tokens.weight: {shape: [1024, 16], dtype: BF16}
```

## Fix safety
Load the model in float32 and train with `bf16=True` (autocast), or use an optimizer with a float32 copy or stochastic
rounding. Both need more memory.

## References
- huggingface/sentence-transformers#3773, meta-pytorch/torchtune#2254, vllm-project/speculators#668, pytorch/ao#1124
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from truetune.checkpoint.detect_adapter_merged_into_weights import is_merge
from truetune.checkpoint.size_above_which_bf16_weights_never_moved import (
    Octave,
    count_moved_by_octave,
    index_of_first_octave_beyond_cliff,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.plot_of_finding import Figure, Mark, Series
from truetune.checks.reasons_rules_cannot_judge import MERGED
from truetune.checks.rule import CheckpointRule


class Bf16UpdatesRoundedAway(CheckpointRule):
    code = "CKP019"
    fault = Fault.UPDATES_ROUNDED_AWAY
    symptoms = ("loss-does-not-fall", "nothing-is-learned")
    severity = "warning"
    since = "0.1.0"
    judges_changes = True
    kind = "model"
    compares = True

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if is_merge(self.subject.sampled_changes_from_base):
            return MERGED
        if not self._moved_bfloat16_matrices():
            return Unmet("no bfloat16 matrix of the base moved")
        matrices = self._partly_moved_matrices()
        if matrices and len(count_moved_by_octave(self.subject, matrices)) < 2:
            return Unmet("too few values to sort them by their size")
        return None

    def measurement_if_clean(self) -> str:
        """The shares of the smallest and of the largest values that moved; or that all values moved."""
        octaves = count_moved_by_octave(self.subject, self._partly_moved_matrices())
        if not octaves:
            return (
                f"every value of {len(self._moved_bfloat16_matrices()):,} bfloat16 matrices moved"
            )
        return (
            f"of the smallest values {octaves[0].moved:.0%} changed, of the largest"
            f" {octaves[-1].moved:.0%}, without a sudden drop"
        )

    def _moved_bfloat16_matrices(self) -> list[str]:
        """Matrices that the base holds in bfloat16 and that moved."""
        base = self.subject.base
        if base is None:
            return []
        matrices = {
            name
            for name, tensor in base.tensors.items()
            if tensor.dtype == "BF16" and len(tensor.shape) > 1
        }
        return [
            name
            for name, movement in self.subject.sampled_changes_from_base.items()
            if movement.same < movement.seen and name in matrices
        ]

    def _partly_moved_matrices(self) -> list[str]:
        """Moved matrices of which some values did not move: rounding spares the small values of
        each.
        """
        return [
            name
            for name in self._moved_bfloat16_matrices()
            if self.subject.sampled_changes_from_base[name].same
        ]

    def findings(self) -> Iterator[Finding]:
        checkpoint, base = self.subject, self.subject.base
        if (
            checkpoint.kind != "model"
            or base is None
            or is_merge(checkpoint.sampled_changes_from_base)
        ):
            return
        matrices = self._partly_moved_matrices()
        octaves = count_moved_by_octave(checkpoint, matrices)
        edge = index_of_first_octave_beyond_cliff(octaves)
        if edge is None:
            return
        below, above = octaves[edge - 1], octaves[edge]
        values = sum(octave.values for octave in octaves)
        too_large = sum(octave.values for octave in octaves[edge:]) / values
        # Norms begin at 1, far above the usual updates: they are the first to stand still.
        norms = [
            movement
            for name, movement in checkpoint.sampled_changes_from_base.items()
            if len(base.tensors[name].shape) == 1
        ]
        unmoved_norms = sum(norm.same == norm.seen for norm in norms)
        yield self.finding(
            f"{too_large:.0%} of the values are too large for their bfloat16 updates: of the values below"
            f" 2^{above.power}, {below.moved:.0%} changed, of those above only {above.moved:.1%}",
            "train with float32 weights and bf16 autocast (load with dtype=torch.float32, set bf16=True), or use an"
            " optimizer that keeps a float32 copy",
            evidence=[
                f"{values:,} values of {len(matrices):,} matrices were compared",
                f"{unmoved_norms:,} of {len(norms):,} norms and biases are bit-identical to the"
                " base",
            ],
            count=len(matrices),
            figure=_plot_moved_share_by_size(octaves, above.power),
        )


def _plot_moved_share_by_size(octaves: Sequence[Octave], cliff: int) -> Figure:
    """A plot of the share of values that moved, by their size, with the power of 2 at which it
    falls.
    """
    powers = tuple(float(octave.power) for octave in octaves)
    return Figure(
        "share of the values that moved, by their size (power of 2)",
        (Series("moved", powers, tuple(octave.moved for octave in octaves)),),
        (Mark(float(cliff), "too large for bfloat16"),),
    )
