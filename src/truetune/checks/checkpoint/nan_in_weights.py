"""Weights are NaN or infinite.

## What it does
Reads the bits of all floating-point tensors (a sample of each if there are more than 2 GB) and counts the values that
are NaN or infinite.

## Why it is bad
One NaN in a layer makes every output NaN: the model repeats one token forever, or the engine stops with an error in its
sampler. The loss of that run was NaN too, and a logging filter may have hidden it.

## Example
```yaml
llama: 2
tensors:
  model.layers.1.mlp.up_proj.weight: {fill: nan}
```

## Use instead
```yaml
llama: 2
```

## Fix safety
The weights can't be repaired. Go back to an earlier checkpoint, and find the step at which the gradient became NaN (a
row without a label, fp16, a learning rate that is too high).

## References
- huggingface/transformers#25021, modelscope/ms-swift#1099, huggingface/trl#6702
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.reasons_rules_cannot_judge import NO_VALUES
from truetune.checks.rule import CheckpointRule


class NanInWeights(CheckpointRule):
    code = "CKP017"
    fault = Fault.LOSS_OR_WEIGHTS_NOT_FINITE
    symptoms = ("garbage-output", "loss-does-not-fall")
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    judges_changes = True

    def unmet(self) -> Unmet | None:
        return super().unmet() or (None if self.subject.nan_inf_and_constant_counts else NO_VALUES)

    def measurement_if_clean(self) -> str:
        """How many values are NaN or infinite."""
        values = self.subject.nan_inf_and_constant_counts.values()
        seen = sum(one.seen for one in values)
        not_finite = sum(one.nan + one.inf for one in values)
        return (
            f"{not_finite:,} of {seen:,} values in {len(self.subject.nan_inf_and_constant_counts):,} tensors are not"
            " finite"
        )

    def findings(self) -> Iterator[Finding]:
        # Masks are infinite on purpose.
        bad = {
            name: values
            for name, values in self.subject.nan_inf_and_constant_counts.items()
            if (values.nan or values.inf) and "mask" not in name
        }
        if not bad:
            return
        nan = sum(values.nan for values in bad.values())
        inf = sum(values.inf for values in bad.values())
        seen = sum(values.seen for values in bad.values())
        yield self.finding(
            f"{len(bad):,} of {len(self.subject.nan_inf_and_constant_counts):,} tensors contain {nan:,} NaN and {inf:,}"
            " infinite values",
            "use an earlier checkpoint, and find the step at which the gradient became NaN (truetune diagnose LOG)",
            evidence=[
                f"that is {(nan + inf) / seen:.2%} of the values that were read in these tensors"
            ],
            cases=[
                Case(
                    f"{name}: {values.nan:,} NaN, {values.inf:,} infinite of {values.seen:,} values",
                    file=self.subject.tensors[name].file.name,
                )
                for name, values in bad.items()
            ],
            count=len(bad),
            total=len(self.subject.nan_inf_and_constant_counts),
        )
