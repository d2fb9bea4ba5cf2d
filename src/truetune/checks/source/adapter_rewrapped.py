"""A model that has an adapter is wrapped into another one.

## What it does
It finds `get_peft_model` on a peft model, and `peft_config` given to a trainer together with a peft model.

## Why it is bad
The first adapter is frozen, merged or lost: stage 1 has no effect in the result, or the loss jumps back to its first
value. TRL stops, peft warns.

## Example
```python
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

base = AutoModelForCausalLM.from_pretrained("some/model")
model = PeftModel.from_pretrained(base, "outputs/stage-1", is_trainable=True)
model = get_peft_model(model, LoraConfig(r=8))
```

## Use instead
```python
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

base = AutoModelForCausalLM.from_pretrained("some/model")
model = PeftModel.from_pretrained(base, "outputs/stage-1").merge_and_unload()
model = get_peft_model(model, LoraConfig(r=8))
```

## Fix safety
There is none: to go on with the first adapter, or to merge it, are different runs.

## References
- huggingface/lerobot#3459, huggingface/trl#4713, huggingface/peft#2390
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.places import at
from truetune.source.module import Module


class AdapterRewrapped(SourceRule):
    code = "TT715"
    severity = "error"

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for call in module.calls("peft.get_peft_model", "trl.*Trainer"):
            model = call.argument(0, "model")
            config = call.keywords.get("peft_config")
            trainer = not call.named("peft.*")
            if model is None or (trainer and (config is None or not _certain(module, config))):
                continue
            adapted = [origin.node for origin in module.flow.origins(model)]
            if adapted and all("peft-model" in module.flow.kinds(node) for node in adapted):
                yield self.finding(
                    "peft_config is given together with a model that has an adapter already"
                    if trainer
                    else "get_peft_model wraps a model that has an adapter already",
                    "go on with the adapter (is_trainable=True) and leave the new one out, or merge it first",
                    cases=[at(module, call.node), at(module, adapted[0])],
                )


def _certain(module: Module, config: ast.expr) -> bool:
    """Is a config certainly given, and not None on some way?"""
    return all(isinstance(origin.node, ast.Call) for origin in module.flow.origins(config)) and (
        "lora" in module.flow.kinds(config)
    )
