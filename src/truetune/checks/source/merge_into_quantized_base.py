"""An adapter is merged into a base that was loaded in 4 or 8 bits.

## What it does
Follows a base loaded with `load_in_4bit`, `load_in_8bit` or a `quantization_config` into an adapter whose
`merge_and_unload` is called.

## Why it is bad
The merge dequantizes, adds and quantizes again: most of a small adapter is rounded away, and the merged model is closer
to the base than what was trained.

## Example
```python
from peft import PeftModel
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

base = AutoModelForCausalLM.from_pretrained("model", quantization_config=BitsAndBytesConfig(load_in_4bit=True))
model = PeftModel.from_pretrained(base, "adapter")
model = model.merge_and_unload()
```

## Use instead
```python
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

base = AutoModelForCausalLM.from_pretrained("model", dtype=torch.float32)
model = PeftModel.from_pretrained(base, "adapter")
model = model.merge_and_unload()
```

## Fix safety
Needs memory for the unquantized base, on a CPU if need be.

## References
- huggingface/peft#1043, huggingface/peft#2105, huggingface/peft#2321, artidoro/qlora#28, artidoro/qlora#254
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.adapted_models import MERGES
from truetune.checks.source.evidence.cases_and_fixes import case_at
from truetune.source.module import Module

# Chosen, not measured: base, PEFT's wrapper, a wrapper around it and one to spare. A circle of names ends there.
DEPTH = 4


class MergeIntoQuantizedBase(SourceRule):
    code = "SRC049"
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    looks_at = MERGES

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for call in module.methods("merge_and_unload"):
            loaded = _quantized_load(module, call.receiver) if call.receiver is not None else None
            if loaded is not None:
                yield self.finding(
                    "an adapter is merged into a quantized base: most of it is rounded away",
                    "load the base in float32 or bfloat16 (on a CPU if need be) and merge there",
                    cases=[case_at(module, call.node), case_at(module, loaded)],
                )


def _quantized_load(module: Module, model: ast.expr, depth: int = 0) -> ast.Call | None:
    """The call that loaded the base of this model with fewer bits."""
    origins = module.flow.origins(model)
    if len(origins) != 1 or not isinstance(origins[0].node, ast.Call) or depth > DEPTH:
        return None
    call = module.flow.call(origins[0].node)
    if any(
        module.flow.value(call.keywords.get(name)) is True
        for name in ("load_in_4bit", "load_in_8bit")
    ):
        return call.node
    config = call.keywords.get("quantization_config")
    if (
        config is not None
        and "BitsAndBytesConfig" in _config_source(module, config)
        and call.named("transformers.*")
    ):
        return call.node
    base = call.argument(0, "model")
    return (
        _quantized_load(module, base, depth + 1)
        if call.named("peft.*") and base is not None
        else None
    )


def _config_source(module: Module, config: ast.expr) -> str:
    """What makes a quantization config, where one thing does."""
    origins = module.flow.origins(config)
    return ast.unparse(origins[0].node) if len(origins) == 1 else ""
