"""The learning rate moves the trained weights by more than their own size in a single step.

## What it does
Compares the highest learning rate of the run, which is about how far Adam moves each weight in one step, with the size
of the trained matrices (root mean square; the median over them). It warns if a step is more than twice their size; from
ten times on it is an error. Vectors (norms, biases) and matrices that start as zeros (LoRA's B) do not count.

## Why it is bad
After one such step, nothing is left of the weights: the loss climbs to hundreds, and what falls later is the loss of a
model that has lost its language.

## Example

```python
run = transformers.Trainer(model, arguments(learning_rate=5.0), transformers.DataCollatorForSeq2Seq(tokenizer),
                           encoded(rows), processing_class=tokenizer)
```

## Use instead

```python
run = transformers.Trainer(model, arguments(learning_rate=2e-5), transformers.DataCollatorForSeq2Seq(tokenizer),
                           encoded(rows), processing_class=tokenizer)
```

## Fix safety
Published AdamW learning rates are 1e-5 to 5e-5 for full fine-tuning and 1e-4 to 5e-4 for LoRA; they are safe.

## References

- Kingma and Ba 2015, arXiv:1412.6980, section 2.1 (the size of a step)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import BatchRule

WARNING_TIMES = 2.0
"""Of the size of the weights. The highest rates that are published for LoRA, 1e-2, are once theirs"""
# Chosen, not measured: at ten times nothing of the model is left after the first step, whatever the
# schedule does later.
ERROR_TIMES = 10.0


class StepsLargerThanTheWeights(BatchRule):
    code = "BAT046"
    fault = Fault.LEARNING_RATE_TOO_HIGH_OR_LOW
    severity = "error"
    law: ClassVar[str] = "update-rounding"
    """Its measurement knows the rate, the optimizer and the weights"""

    def findings(self) -> Iterator[Finding]:
        measured = self._measured_rate_and_weight_size()
        if measured is None or measured["rate"] <= WARNING_TIMES * measured["size"]:
            return
        rate, size = measured["rate"], measured["size"]
        yield self.finding(
            f"the learning rate of {rate:g} moves each weight by about {rate / size:,.3g} times its"
            " own size in one step, which destroys it",
            "set learning_rate to 1e-5 to 5e-5 in full fine-tuning, or 1e-4 to 5e-4 with LoRA",
            severity="error" if rate > ERROR_TIMES * size else "warning",
            evidence=[
                f"optimizer {measured['optimizer']}; the trained matrices have a size of about {size:.2g}"
            ],
        )

    def unmet(self) -> Unmet | None:
        if self._measured_rate_and_weight_size() is not None:
            return None
        outcome = self.subject.laws.get(self.law)
        if outcome is None:
            return Unmet(f"the law {self.law} was not measured", "measure all with --laws all")
        return Unmet(
            str(outcome.get("untested", "no matrix is trained that does not begin as zeros"))
        )

    def measurement_if_clean(self) -> str:
        """The size of one step, as a share of the size of the weights."""
        measured = self._measured_rate_and_weight_size()
        assert measured is not None, "else the rule is not judged"
        return (
            f"a step of {measured['rate']:g} is {measured['rate'] / measured['size']:.2g} of the"
            " size of the weights"
        )

    def _measured_rate_and_weight_size(self) -> dict[str, Any] | None:
        """What the law saw of rate and weights; None where it did not, or saw no weights with a size."""
        evidence = self.subject.laws.get(self.law, {}).get("evidence")
        return evidence if evidence and evidence.get("size") else None
