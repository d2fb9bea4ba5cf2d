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
import re
from collections.abc import Iterator

from truetune.checks.code_places import calls_of
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.places import at
from truetune.source.module import Module

SMALL = 1e-4
NARROW = ("torch.bfloat16", "bfloat16")
WIDE = ("torch.float32", "float32", "torch.float")
WRAPPERS = ("torch.*.DistributedDataParallel", "torch.*.DataParallel", "torch.compile")
"""Calls whose result trains the very weights of the model that they are given"""
KEEP = ("to", "cuda", "cpu", "eval", "train", "requires_grad_")
"""Methods that give the model itself, in the dtype that it has where they name none"""
DEPTH = 8


class Bf16WeightsUpdatedInPlace(SourceRule):
    code = "TT755"
    severity = "warning"
    looks_at = calls_of("Adam optimizers that are made", "torch.optim.AdamW", "torch.optim.Adam")

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if any(_may_shard(part.text) for part in module.with_linked):
            return
        for call in module.calls("torch.optim.AdamW", "torch.optim.Adam"):
            given, rate = call.argument(0, "params"), module.flow.value(call.argument(1, "lr"))
            if not isinstance(given, ast.Call) or not isinstance(given.func, ast.Attribute):
                continue
            model = given.func.value
            whole = given.func.attr == "parameters" and "peft-model" not in module.flow.kinds(model)
            small = isinstance(rate, float) and rate < SMALL
            if whole and small and (cast := _narrow(module, model)) is not None:
                yield self.finding(
                    f"bfloat16 weights are updated in place at a rate of {rate:g}: most updates"
                    " round to nothing",
                    "load the weights as float32 and run the forward pass under bfloat16 autocast",
                    cases=[at(module, call.node), at(module, cast)],
                )


def _may_shard(text: str) -> bool:
    """May the weights be sharded, which keeps a float32 copy of them?"""
    return (
        "Accelerator" in text
        and re.search("fsdp|deepspeed|fully_?sharded", text, re.IGNORECASE) is not None
    )


def _narrow(module: Module, model: ast.expr) -> ast.AST | None:
    """What makes the model bfloat16, where one thing made it; through wrappers that train its own weights."""
    part: ast.expr | None = model
    for _ in range(DEPTH):
        origins = module.flow.origins(part) if part is not None else ()
        node = origins[0].node if len(origins) == 1 else None
        if isinstance(node, ast.Attribute) and node.attr == "module":
            part = node.value
            continue
        if not isinstance(node, ast.Call):
            return None
        call = module.flow.call(node)
        given = [
            *call.args,
            *(call.keywords[name] for name in ("dtype", "torch_dtype") if name in call.keywords),
        ]
        dtypes = {module.flow.name(one) or str(module.flow.value(one)) for one in given}
        if call.method == "bfloat16" or dtypes & set(NARROW):
            return node
        if dtypes & set(WIDE):
            return None
        part = (
            call.argument(0, "module")
            if call.named(*WRAPPERS)
            else call.receiver
            if call.method in KEEP
            else None
        )
    return None
