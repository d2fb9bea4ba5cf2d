"""Gradient checkpointing is enabled but inactive: the model is never put into training mode.

## What it does
Looks for `gradient_checkpointing_enable()` in a script with a hand-written loop whose model comes from
`from_pretrained`, if nothing calls `train()`.

## Why it is bad
`from_pretrained` returns a model in evaluation mode, and the layers of transformers only checkpoint in training mode.
The loop trains anyway, but keeps the activations of all layers in memory and runs out of memory as if checkpointing
were off. Dropout is off too.

## Example
```python
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
model.gradient_checkpointing_enable()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for batch in loader:
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
```

## Use instead
```python
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
model.gradient_checkpointing_enable()
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for batch in loader:
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
```

## Fix safety
Safe. A step takes about a third longer, as usual with checkpointing, and dropout becomes active if the model has any.

## References
- transformers/modeling_layers.py: `if self.gradient_checkpointing and self.training`
- transformers/modeling_utils.py: `model.eval()` at the end of `from_pretrained`
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import places_of_method_calls
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node

TRAINER_SIGNS = ("Trainer(", "deepspeed", "lightning", "unsloth", "for_training", "Fabric(")
"""Libraries that put the model into training mode"""


class CheckpointingWithoutTrainingMode(SourceRule):
    code = "SRC037"
    fault = Fault.MEMORY_SAVING_METHODS_OFF
    severity = "warning"
    looks_at = places_of_method_calls(
        "calls of gradient_checkpointing_enable", "gradient_checkpointing_enable"
    )

    def findings(self) -> Iterator[Finding]:
        """Findings on gradient checkpointing of models that are never put into training mode."""
        module = self.subject
        parts = module.self_and_files_run_together
        trains = any(True for part in parts for _ in part.methods("train"))
        if trains or any(part.mentions(*TRAINER_SIGNS) for part in parts):
            return
        if not any(module.methods("backward")) or not any(
            module.calls("transformers.*.from_pretrained")
        ):
            return
        for call in module.methods("gradient_checkpointing_enable"):
            yield self.finding(
                "gradient checkpointing is inactive: from_pretrained returns the model in evaluation mode, and nothing"
                " calls train()",
                "call model.train() before the loop, and again after each evaluation",
                cases=[case_of_node(module, call.node)],
            )
