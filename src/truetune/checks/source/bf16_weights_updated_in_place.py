"""A hand-written loop updates bfloat16 weights with a small learning rate.

## What it does
Looks for a model that is loaded or cast as bfloat16 and whose parameters go straight into an AdamW of torch with a
learning rate below 1e-4, without an adapter; also through DistributedDataParallel and torch.compile.

## Why it is bad
bfloat16 has 8 bits of mantissa: near 1.0 the smallest step is 0.0078. Most updates round to nothing: after 20 steps at
1e-5, all norm weights and 84 % of the linear weights were bit for bit what they had been.

## Example
```python
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model", dtype=torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
```

## Use instead
```python
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model", dtype=torch.float32)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
```

## Fix safety
float32 weights with bf16 autocast need twice the memory for weights. An optimizer with stochastic rounding or a float32
copy does as well.

## References
- huggingface/sentence-transformers#3773, meta-pytorch/torchtune#2254, pytorch/ao#1124, vllm-project/speculators#668
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import calls_of
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes import case_at
from truetune.checks.source.evidence.optimized_weight_dtypes import (
    BFLOAT16,
    may_shard,
    narrow_weights_source,
)

# Half the distance of bfloat16 numbers is 6e-5 at 0.02, a usual weight: from about here on most steps are kept.
SMALL_RATE = 1e-4


class Bf16WeightsUpdatedInPlace(SourceRule):
    code = "SRC060"
    severity = "warning"
    since = "0.1.0"
    looks_at = calls_of("Adam optimizers that are made", "torch.optim.AdamW", "torch.optim.Adam")

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if any(may_shard(part.text) for part in module.with_linked):
            return
        for call in module.calls("torch.optim.AdamW", "torch.optim.Adam"):
            given, rate = call.argument(0, "params"), module.flow.value(call.argument(1, "lr"))
            if not isinstance(given, ast.Call) or not isinstance(given.func, ast.Attribute):
                continue
            model = given.func.value
            whole = given.func.attr == "parameters" and "peft-model" not in module.flow.types(model)
            small = isinstance(rate, float) and rate < SMALL_RATE
            if (
                whole
                and small
                and (cast := narrow_weights_source(module, model, BFLOAT16)) is not None
            ):
                yield self.finding(
                    f"bfloat16 weights are updated in place at a rate of {rate:g}: most updates"
                    " round to nothing",
                    "load the weights as float32 and run the forward pass under bfloat16 autocast",
                    cases=[case_at(module, call.node), case_at(module, cast)],
                )
