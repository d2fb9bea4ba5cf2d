"""Large weights never moved: training in bare bfloat16 rounded their updates away.

## What it does
Needs the base in bfloat16. It sorts samples of the matrices by the size of the base's values, and counts which moved.
In training without a float32 copy of the weights, values above a certain size never move while nearly all below do: a
cliff within one octave. With a float32 copy the share falls slowly. Models into which an adapter was merged are left
out.

## Why it is bad
bfloat16 keeps 8 bits. With a small learning rate most updates are smaller than half of the last bit and round to
nothing, at every step: the loss falls a little and stays.

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
Load the model in float32 and train with `bf16=True` (autocast), or take an optimizer with a float32 copy or
stochastic rounding. It needs more memory.

## References
- huggingface/sentence-transformers#3773, meta-pytorch/torchtune#2254, vllm-project/speculators#668, pytorch/ao#1124
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checkpoint.detect_merge import is_merge
from truetune.checkpoint.rounding_cliff import count_moved_by_octave, find_cliff
from truetune.checks.figure import Figure, Mark, Series
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule
from truetune.checks.unmet_reasons import MERGED


class Bf16UpdatesRoundedAway(CheckpointRule):
    code = "CKP019"
    severity = "warning"
    since = "0.1.0"
    judges_changes = True
    kind = "model"
    compares = True

    def unmet(self) -> Unmet | None:
        if unmet := super().unmet():
            return unmet
        if is_merge(self.subject.moved):
            return MERGED
        if not self._stored():
            return Unmet("no bfloat16 matrix of the base moved")
        few = len(count_moved_by_octave(self.subject, self._matrices())) < 2
        return (
            Unmet("too few values to sort them by their size") if self._matrices() and few else None
        )

    def figure(self) -> str:
        shares = [octave.moved for octave in count_moved_by_octave(self.subject, self._matrices())]
        if not shares:
            return f"every value of {len(self._stored()):,} bfloat16 matrices moved"
        return (
            f"of the smallest values {shares[0]:.0%} moved, of the largest {shares[-1]:.0%}, and"
            " there is no cliff"
        )

    def _stored(self) -> list[str]:
        """Matrices that the base holds in bfloat16 and that moved."""
        base, moved = self.subject.base, self.subject.moved
        stored = (
            {n: t for n, t in base.tensors.items() if t.dtype == "BF16"} if base is not None else {}
        )
        return [
            n
            for n, m in moved.items()
            if m.same < m.seen and n in stored and len(stored[n].shape) > 1
        ]

    def _matrices(self) -> list[str]:
        """Those of which some values moved and others did not."""
        return [name for name in self._stored() if self.subject.moved[name].same]

    def findings(self) -> Iterator[Finding]:
        found, base = self.subject, self.subject.base
        if found.kind != "model" or base is None or is_merge(found.moved):
            return
        matrices = self._matrices()
        seen = count_moved_by_octave(found, matrices)
        edge = find_cliff(seen)
        if edge is None:
            return
        below, above = seen[edge - 1], seen[edge]
        lost = sum(octave.values for octave in seen[edge:]) / sum(octave.values for octave in seen)
        norms = {n: m for n, m in found.moved.items() if len(base.tensors[n].shape) == 1}
        still = sum(m.same == m.seen for m in norms.values())
        yield self.finding(
            f"{lost:.0%} of the values are too large for their updates: below 2^{above.power}"
            f" {below.moved:.0%} moved, above {above.moved:.1%}",
            "train with float32 weights and bf16 autocast, or an optimizer that keeps a float32"
            " copy",
            evidence=[
                (
                    f"{sum(o.values for o in seen):,} values of {len(matrices):,} matrices were"
                    " compared"
                ),
                f"{still:,} of {len(norms):,} norms and biases are bit-identical to the base",
            ],
            count=len(matrices),
            figure=Figure(
                "share of the values that moved, by their size (power of 2)",
                (
                    Series(
                        "moved", tuple(float(o.power) for o in seen), tuple(o.moved for o in seen)
                    ),
                ),
                (Mark(float(above.power), "too large for bfloat16"),),
            ),
        )
