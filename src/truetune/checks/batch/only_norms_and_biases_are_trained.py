"""Only norms and biases of the model are trained.

## What it does
Reads the shapes of the tensors with `requires_grad`, of a model without an adapter. If none of them is a matrix, it
warns.

## Why it is bad
Vectors are less than a thousandth of a language model's weights. They change how strong a feature is, and can't store
what the rows say, so the loss falls a little and then stays. Usually everything was frozen by name or by type, and a
test such as `if "norm" not in name` or `parameter.dim() > 1` left the vectors out.

## Example

```python
for parameter in model.parameters():
    parameter.requires_grad_(parameter.dim() == 1)
run = model
loader = torch.utils.data.DataLoader(encoded(rows), 2, collate_fn=transformers.DataCollatorForSeq2Seq(tokenizer))
```

## Use instead

```python
for parameter in model.parameters():
    parameter.requires_grad_(True)
run = model
loader = torch.utils.data.DataLoader(encoded(rows), 2, collate_fn=transformers.DataCollatorForSeq2Seq(tokenizer))
```

## Fix safety
There is no automatic fix: training norms or biases alone is a known method (BitFit, LN-tuning), and which weights to
train is your choice. More trained weights need more memory.

## References

- https://huggingface.co/docs/peft/package_reference/layernorm_tuning
- https://arxiv.org/abs/2106.10199
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import BatchRule

SHOWN_NAMES = 3
FLATTENED = "_flat_param"
"""In the names of tensors that FSDP has made of several: their shapes say nothing"""


class OnlyNormsAndBiasesAreTrained(BatchRule):
    code = "BAT049"
    fault = Fault.NO_WEIGHT_TRAINED
    symptoms = ("loss-does-not-fall", "nothing-is-learned")
    severity = "warning"
    needs_batches = False

    def findings(self) -> Iterator[Finding]:
        model = self.subject.facts["model"]
        if self.unmet() is not None or model["trainable_in_matrices"]:
            return
        trained, all_weights = model["trainable"], model["parameters"]
        names = model["trainable_names"]
        yield self.finding(
            f"only norms and biases are trained: {len(names):,} vectors, {trained:,} of {all_weights:,} weights"
            f" ({trained / all_weights:.2%})",
            "set requires_grad_(True) on the matrices to train too, or add an adapter (get_peft_model), unless you"
            " train norms or biases alone on purpose",
            evidence=[f"trained: {', '.join(names[:SHOWN_NAMES])} ..."],
            count=trained,
            total=all_weights,
        )

    def unmet(self) -> Unmet | None:
        model = self.subject.facts["model"]
        if not model["parameters"]:
            return Unmet("there is no model")
        if not model["trainable"]:
            return Unmet("no parameter is trained, which no-parameter-is-trained is about")
        if model["adapter"]:
            return Unmet("the model has an adapter, whose settings say what is trained")
        if any(FLATTENED in name for name in model["trainable_names"]):
            return Unmet("FSDP has flattened the tensors: their shapes are not known")
        return None

    def measurement_if_clean(self) -> Measurement:
        """How many of the trained weights are in matrices."""
        model = self.subject.facts["model"]
        return make_count_measurement(
            "trained weights that are in matrices",
            model["trainable_in_matrices"],
            model["trainable"],
        )
