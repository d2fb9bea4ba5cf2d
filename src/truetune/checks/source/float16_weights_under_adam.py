"""A hand-written loop updates float16 weights with Adam: they become NaN after the first step.

## What it does
Follows, in a symbolic run, the parameters of each Adam or AdamW of torch to a model that is loaded or cast as float16,
with an `eps` that is 0 in float16, and without an adapter, DeepSpeed or FSDP; Lightning's `precision="16-true"` counts
as well. A Trainer with float16 weights is reported too: as an error with `fp16=True`, else as a warning.

## Why it is bad
The smallest number of float16 is 6e-8: `eps` (1e-8) is 0, and so is the second moment of each gradient below about
0.005. Adam divides by their sum: weights are NaN after the first step, and so is every later loss. A `GradScaler` does
not help; it stops with "Attempting to unscale FP16 gradients".

## Example
```python
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model", dtype=torch.float16)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
```

## Use instead
```python
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model", dtype=torch.float32)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
```

## Fix safety
There is no automatic fix. float32 weights (with autocast for the forward pass) need twice the memory. bfloat16 weights
need no more, but round small updates away.

## References
- huggingface/transformers#23165, huggingface/peft#341
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import places_of_calls
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.half_precision_weights_updated_in_place import (
    TRAINERS,
    NarrowWeights,
    optimizers_of_weights_in_dtype,
    trainer_settings,
    trainers_of_weights_in_dtype,
)
from truetune.settings.run_spec import Severity
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.trace_of_events import CallEvent

ROUNDED_TO_ZERO_BELOW = 2.0**-25
"""Half of float16's smallest number: what is below is rounded to 0"""
ADAM_OPTIMIZERS = ("torch.optim.AdamW", "torch.optim.Adam")
IN_FLOAT32 = (
    "load the weights with dtype=torch.float32 and run the forward pass under"
    ' torch.autocast("cuda", dtype=torch.float16) with a GradScaler, or load them with dtype=torch.bfloat16'
)


class Float16WeightsUnderAdam(SourceRule):
    code = "SRC038"
    fault = Fault.FLOAT16_RANGE_EXCEEDED
    symptoms = ("loss-does-not-fall",)
    severity = "error"
    looks_at = places_of_calls(
        "Adam optimizers that are made, and trainers", *ADAM_OPTIMIZERS, *TRAINERS
    )

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for weights in optimizers_of_weights_in_dtype(module, "float16", *ADAM_OPTIMIZERS):
            if _rounds_eps_to_zero_unfused(weights.optimizer):
                yield self._finding_on_weights(
                    weights,
                    "Adam updates float16 weights, and its eps is 0 in float16: they become NaN after the"
                    " first step",
                )
        for weights in trainers_of_weights_in_dtype(module, "float16"):
            settings = trainer_settings(weights.optimizer)
            if constant_of(settings.get("fp16")) is True:
                yield self._finding_on_weights(
                    weights,
                    'float16 weights are trained with fp16=True: the run stops at its first step with "Attempting to'
                    ' unscale FP16 gradients"',
                    "load the weights with dtype=torch.float32: fp16=True already runs the forward pass in float16",
                )
            elif "bf16" not in settings:
                yield self._finding_on_weights(
                    weights,
                    "float16 weights are updated in place by the trainer: small gradients and most of Adam's second"
                    " moments are 0 in float16, and nothing scales them",
                    "load the weights with dtype=torch.float32 and set fp16=True or bf16=True, or load them with"
                    " dtype=torch.bfloat16",
                    severity="warning",
                )

    def _finding_on_weights(
        self,
        weights: NarrowWeights,
        message: str,
        remedy: str = IN_FLOAT32,
        severity: Severity = "error",
    ) -> Finding:
        """The finding on an optimizer or trainer, with what gives the dtype."""
        optimizer, cause = weights
        places = [
            case_of_node(optimizer.home, optimizer.node),
            case_of_node(cause.home, cause.node),
        ]
        return self.finding(message, remedy, severity=severity, cases=places)


def _rounds_eps_to_zero_unfused(call: CallEvent) -> bool:
    """Is eps certainly 0 in float16? A fused step computes in float32."""
    if call.is_open or not call.lacks("fused"):
        return False
    eps_argument = call.argument(3, "eps")
    eps = 1e-8 if eps_argument is None else constant_of(eps_argument)
    return isinstance(eps, float) and eps <= ROUNDED_TO_ZERO_BELOW
