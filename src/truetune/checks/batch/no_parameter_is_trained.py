"""No parameter of the model requires a gradient.

## What it does
Counts the model's parameters with `requires_grad`, as they are in memory. It is a warning for a quantized model that
has no adapter yet, else an error.

## Why it is bad
Nothing is learned. The run stops at its first backward pass; if a loop skips frozen parameters, it ends with the
weights that it started with. Usually an adapter was loaded for inference, or the base was frozen and no adapter was
added.

## Example

```python
for parameter in model.parameters():
    parameter.requires_grad_(False)
run = model
loader = torch.utils.data.DataLoader(encoded(rows), 2, collate_fn=transformers.DataCollatorForSeq2Seq(tokenizer))
```

## Use instead

```python
for parameter in model.parameters():
    parameter.requires_grad_(False)
run = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj"]))
loader = torch.utils.data.DataLoader(encoded(rows), 2, collate_fn=transformers.DataCollatorForSeq2Seq(tokenizer))
```

## Fix safety
There is no automatic fix: which weights to train is your choice. More trained weights need more memory.

## References

- huggingface/peft#1142, huggingface/peft#2035
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import BatchRule


class NoParameterIsTrained(BatchRule):
    code = "BAT039"
    fault = Fault.NO_WEIGHT_TRAINED
    symptoms = ("loss-does-not-fall", "nothing-is-learned")
    severity = "error"
    needs_batches = False
    moot_where = ("trained-tensors-without-gradient",)

    def findings(self) -> Iterator[Finding]:
        model = self.subject.facts["model"]
        if model["trainable"] or not model["parameters"]:
            return
        waits = model["quantized"] and not model["adapter"]
        yield self.finding(
            f"none of {model['parameters']:,} parameters requires a gradient"
            + (": the adapter is frozen" if model["adapter"] else ""),
            "load an adapter with PeftModel.from_pretrained(..., is_trainable=True), add one with get_peft_model, or"
            " set requires_grad_(True) on the weights to train",
            # A quantized base is frozen before its adapter is made, which may still follow.
            severity="warning" if waits else "error",
            evidence=["the model is quantized and has no adapter yet"] if waits else (),
        )

    def unmet(self) -> Unmet | None:
        return None if self.subject.facts["model"]["parameters"] else Unmet("there is no model")

    def measurement_if_clean(self) -> Measurement:
        """How many parameters require a gradient."""
        model = self.subject.facts["model"]
        return make_count_measurement(
            "parameters that require a gradient", model["trainable"], model["parameters"]
        )
