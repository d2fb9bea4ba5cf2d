"""Processes of one run print different sums of their weights, or different gradient norms.

## What it does
Reads what each process (one per GPU) prints for the same step (`[rank 1] ... step 20 ... wsum -1284.6`, `rank=1 step=20
grad_norm=0.7`): sums and norms of weights and gradients. It fires if they differ between processes at 80 % of the
steps, three at least. For weights that is an error, for gradients a warning. Losses are not compared: each process has
its own rows. If the output names FSDP, ZeRO-3 or tensor parallelism, it is not judged, because there each process has
only a part of the weights.

## Why it is bad
Gradients are not averaged: each process trains its own model on its part of the rows, and only one of them is saved.
The losses look healthy.

## Example
```yaml
output: |
  [rank 0] step 10 loss 1.698 wsum -1284.8535
  [rank 1] step 10 loss 1.713 wsum -1284.5975
  [rank 0] step 20 loss 1.702 wsum -1284.5292
  [rank 1] step 20 loss 1.718 wsum -1284.9388
  [rank 0] step 30 loss 1.651 wsum -1284.1029
  [rank 1] step 30 loss 1.663 wsum -1285.2581
```

## Use instead
```yaml
output: |
  [rank 0] step 10 loss 1.698 wsum -1284.8535
  [rank 1] step 10 loss 1.713 wsum -1284.8535
  [rank 0] step 20 loss 1.702 wsum -1284.5292
  [rank 1] step 20 loss 1.718 wsum -1284.5292
  [rank 0] step 30 loss 1.651 wsum -1284.1029
  [rank 1] step 30 loss 1.663 wsum -1284.1029
```

## Fix safety
With averaged gradients, the effective batch is larger by the number of processes: lower `gradient_accumulation_steps`,
or choose the learning rate for it.

## References
- pytorch.org/docs/stable/notes/ddp.html; torch/nn/parallel/distributed.py
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import OutputRule
from truetune.logs.console.figures_that_differ_between_ranks import RankDifference


class RanksHoldDifferentWeights(OutputRule):
    code = "LOG035"
    fault = Fault.VALUES_NOT_AVERAGED_OVER_PROCESSES
    severity = "error"

    def unmet(self) -> Unmet | None:
        """Also unmet where the weights are sharded, so that the parts differ by right."""
        lacking = super().unmet()
        if lacking is not None:
            return lacking
        output = self.subject.output
        if output is not None and output.settings.sharded:
            return Unmet(
                "the output names FSDP, ZeRO-3 or tensor parallelism, where parts rightly differ"
            )
        return None

    def measurement_if_clean(self) -> str:
        """How many printed sums of weights or gradients differ between processes."""
        output = self.subject.output
        count = len(output.rank_differences) if output else 0
        return f"{count} figures of weights or gradients differ between processes"

    def findings(self) -> Iterator[Finding]:
        output = self.subject.output
        if output is None or output.settings.sharded:
            return
        for difference in output.rank_differences:
            yield self._finding_on_difference(difference, output.file)

    def _finding_on_difference(self, difference: RankDifference, file: str) -> Finding:
        """The finding that processes print different sums of weights (an error) or gradients (a
        warning).
        """
        what = "gradients" if difference.is_of_gradients else "weights"
        grows = difference.relative_last > 2 * difference.relative_first
        shown = ", ".join(f"{value:.8g}" for value in difference.values[:8])
        return self.finding(
            f"{difference.ranks} processes print different {difference.name} at"
            f" {difference.differing:,} of {difference.steps:,} steps: their {what} differ,"
            " so gradients are not averaged between them",
            "call the wrapped model (model(**batch)), not model.module(...): DDP only averages gradients of"
            " its own forward pass; do not use no_sync() at the last step of an accumulation, and wrap the model"
            " before you build the optimizer (`truetune lint SCRIPT` finds this; `truetune run -- COMMAND`"
            " measures it)",
            severity="warning" if difference.is_of_gradients else "error",
            evidence=(
                f"at the last step: {shown}",
                f"they differ from step {difference.first_step:,} on, by"
                f" {difference.relative_first:.2g} of their size at first and"
                f" {difference.relative_last:.2g} at the end"
                + (": they drift apart" if grows else ""),
            ),
            cases=(Case(f"{difference.name}: {shown}", file=file),),
            count=difference.differing,
            total=difference.steps,
        )
