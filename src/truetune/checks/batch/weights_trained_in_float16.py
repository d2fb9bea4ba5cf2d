"""The trained weights are float16.

## What it does
Reads the dtype of the parameters that require a gradient.

## Why it is bad
Adam divides by the root of the second moment plus 1e-8, and 1e-8 is 0 in float16: a parameter whose gradient is zero
becomes NaN at the first step. With `fp16=True` the gradient scaler rejects them ("Attempting to unscale FP16
gradients"). Only DeepSpeed keeps float32 copies by itself.

## Example

```python
run = model.half()
loader = torch.utils.data.DataLoader(encoded(rows), 2, collate_fn=transformers.DataCollatorForSeq2Seq(tokenizer))
```

## Use instead

```python
run = model.float()
loader = torch.utils.data.DataLoader(encoded(rows), 2, collate_fn=transformers.DataCollatorForSeq2Seq(tokenizer))
```

## Fix safety
There is no automatic fix. Weights in float32 need twice the memory; bfloat16 has the range of float32 but fewer digits.

## References

- huggingface/transformers#23165, huggingface/peft#341
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import BatchRule


class WeightsTrainedInFloat16(BatchRule):
    code = "BAT041"
    fault = Fault.FLOAT16_RANGE_EXCEEDED
    symptoms = ("loss-does-not-fall",)
    severity = "warning"
    needs_batches = False

    def findings(self) -> Iterator[Finding]:
        if "float16" in self.subject.facts["model"]["trained_dtypes"]:
            yield self.finding(
                "the trained parameters are float16, in which Adam makes them NaN",
                "load the model with dtype=torch.float32 and train with bf16=True or fp16=True, or"
                " load it with dtype=torch.bfloat16",
                evidence=[
                    "dtypes of the trained parameters:"
                    f" {', '.join(self.subject.facts['model']['trained_dtypes'])}"
                ],
            )

    def unmet(self) -> Unmet | None:
        return (
            None
            if self.subject.facts["model"]["trained_dtypes"]
            else Unmet("no parameter requires a gradient")
        )

    def measurement_if_clean(self) -> str:
        """The dtypes of the weights that are trained."""
        return (
            f"dtypes of the trained parameters: {len(self.subject.facts['model']['trained_dtypes'])}, "
            + ", ".join(self.subject.facts["model"]["trained_dtypes"])
        )
