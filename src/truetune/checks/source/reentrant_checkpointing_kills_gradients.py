"""Re-entrant gradient checkpointing is on, and the frozen embedding's output needs no gradient.

## What it does
Looks for `use_reentrant=True` in `gradient_checkpointing_kwargs` in a file that wraps a model with peft and calls
neither `enable_input_require_grads` nor `prepare_model_for_kbit_training`, and trains without a trainer that does.

## Why it is bad
The re-entrant kind gives no gradient where no input needs one: the adapter's layers get None, the loss stays flat, and
a warning is all that is said.

## Example
```python
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
model = get_peft_model(model, LoraConfig(target_modules=["q_proj"]))
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
```

## Use instead
```python
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
model = get_peft_model(model, LoraConfig(target_modules=["q_proj"]))
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
```

## Fix safety
Safe: both kinds give the same gradients where both work.

## References
- huggingface/transformers#21381, huggingface/transformers#26221, huggingface/peft#1142, huggingface/trl#3089
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.places import at, fix
from truetune.source.edits import replace
from truetune.source.values import UNKNOWN, entries

HEALED = ("enable_input_require_grads", "prepare_model_for_kbit_training")


class ReentrantCheckpointingKillsGradients(SourceRule):
    code = "TT747"
    severity = "warning"

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        wrapped = any(call.named("peft.get_peft_model") for call in module.all_calls)
        trained = any("trainer" in module.flow.kinds(call.node) for call in module.all_calls)
        if not wrapped or trained or any(name in module.text for name in HEALED):
            return
        for call in module.methods("gradient_checkpointing_enable"):
            given = call.argument(0, "gradient_checkpointing_kwargs")
            value = entries(module.flow, given)[0].get("use_reentrant") if given is not None else None
            if value is not None and module.flow.value(value) not in (UNKNOWN, False, None):
                yield self.finding(
                    "re-entrant gradient checkpointing over a frozen embedding: the adapter gets no gradient",
                    "use use_reentrant=False, or call model.enable_input_require_grads() first",
                    cases=[at(module, call.node)],
                    fix=fix(module, replace(module, value, "False")) if isinstance(value, ast.Constant) else None,
                )
