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

from truetune.checkpoint.merged import is_merge
from truetune.checkpoint.octaves import cliff, octaves
from truetune.checks.figure import Figure, Mark, Series
from truetune.checks.findings import Finding
from truetune.checks.rule import CheckpointRule


class Bf16UpdatesRoundedAway(CheckpointRule):
    code = "TT919"
    severity = "warning"

    def findings(self) -> Iterator[Finding]:
        found, base = self.subject, self.subject.base
        if found.kind != "model" or base is None or is_merge(found.moved):
            return
        stored = {name: tensor for name, tensor in base.tensors.items() if tensor.dtype == "BF16"}
        matrices = [
            name
            for name, m in found.moved.items()
            if 0 < m.same < m.seen and name in stored and len(stored[name].shape) > 1
        ]
        seen = octaves(found, matrices)
        edge = cliff(seen)
        if edge is None:
            return
        below, above = seen[edge - 1], seen[edge]
        lost = sum(octave.values for octave in seen[edge:]) / sum(octave.values for octave in seen)
        norms = {n: m for n, m in found.moved.items() if len(base.tensors[n].shape) == 1}
        still = sum(m.same == m.seen for m in norms.values())
        yield self.finding(
            f"{lost:.0%} of the values are too large for their updates: below 2^{above.power} {below.moved:.0%} moved, "
            f"above {above.moved:.1%}",
            "train with float32 weights and bf16 autocast, or an optimizer that keeps a float32 copy",
            evidence=[
                f"{sum(o.values for o in seen):,} values of {len(matrices):,} matrices were compared",
                f"{still:,} of {len(norms):,} norms and biases are bit-identical to the base",
            ],
            count=len(matrices),
            figure=Figure(
                "share of the values that moved, by their size (power of 2)",
                (Series("moved", tuple(float(o.power) for o in seen), tuple(o.moved for o in seen)),),
                (Mark(float(above.power), "too large for bfloat16"),),
            ),
        )
