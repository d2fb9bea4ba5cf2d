"""A hand-written loop updates float16 weights with Adam.

## What it does
Looks for a model that is loaded or cast as float16 and whose parameters go straight into an Adam or AdamW of torch,
with an `eps` that is 0 in float16, without an adapter, DeepSpeed or FSDP.

## Why it is bad
The smallest number of float16 is 6e-8: `eps` (1e-8) is 0, and so is the second moment of each gradient below about
0.005. Adam divides by both: weights are NaN after the first step, and every later loss too. A `GradScaler` does not
help; it stops with "Attempting to unscale FP16 gradients".

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
There is no automatic fix. float32 weights (with autocast for the forward pass) need twice the memory; bfloat16 weights
need no more, and round small updates away.

## References
- huggingface/transformers#23165, huggingface/peft#341
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import calls_of
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes import case_at
from truetune.checks.source.evidence.optimized_weight_dtypes import (
    FLOAT16,
    may_shard,
    narrow_weights_source,
)
from truetune.source.module import Module
from truetune.source.resolved_calls import Call
from truetune.source.script_preparation import freezes_parameters

ROUNDED_TO_ZERO_BELOW = 2.0**-25
"""Half of float16's smallest number: what is below is rounded to 0"""
MASTER_WEIGHT_SIGNS = ("deepspeed", ".data.float(", ".data.to(", "cast_training_params")
"""Texts of what trains float32 copies of the weights, or casts some of them"""
FLOAT32_CASTS = (".float()", "float32")
ADAM_OPTIMIZERS = ("torch.optim.AdamW", "torch.optim.Adam")


class Float16WeightsUnderAdam(SourceRule):
    code = "SRC038"
    severity = "error"
    looks_at = calls_of("Adam optimizers that are made", *ADAM_OPTIMIZERS)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if module.mentions(*MASTER_WEIGHT_SIGNS) or any(
            may_shard(m.text) for m in module.with_linked
        ):
            return
        if freezes_parameters(module) and module.mentions(*FLOAT32_CASTS):
            return  # those that are trained may be float32
        for call in module.calls(*ADAM_OPTIMIZERS):
            if not _rounds_eps_to_zero(module, call):
                continue
            casts = [
                narrow_weights_source(module, model, FLOAT16)
                for model in _optimized_models(module, call)
            ]
            if casts and casts[0] is not None:
                yield self.finding(
                    "float16 weights are updated by Adam, whose eps is 0 in float16: NaN after the"
                    " first step",
                    "load the weights as float32 and run the forward pass under autocast, or load"
                    " them as bfloat16",
                    cases=[case_at(module, call.node), case_at(module, casts[0])],
                )


def _rounds_eps_to_zero(module: Module, call: Call) -> bool:
    """Is eps certainly 0 in float16? A fused step computes in float32."""
    if call.open or not call.lacks("fused"):
        return False
    given = call.argument(3, "eps")
    eps = 1e-8 if given is None else module.flow.value(given)
    return isinstance(eps, float) and eps <= ROUNDED_TO_ZERO_BELOW


def _optimized_models(module: Module, call: Call) -> list[ast.expr]:
    """The models whose parameters an optimizer is given, without those of adapters."""
    params = call.argument(0, "params")
    if params is None:
        return []
    nodes = (node for origin in module.flow.origins(params) for node in ast.walk(origin.node))
    owners = [
        node.value
        for node in (*ast.walk(params), *nodes)
        if isinstance(node, ast.Attribute) and node.attr in ("parameters", "named_parameters")
    ]
    return [owner for owner in owners if "peft-model" not in module.flow.types(owner)]
