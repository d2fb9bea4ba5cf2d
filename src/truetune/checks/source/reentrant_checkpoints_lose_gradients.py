"""Reentrant gradient checkpointing blocks the gradients.

## What it does
Traces the script to checkpoints with `use_reentrant=True` (also as the default of a pinned transformers 4) over a model
whose embedding is frozen: by `get_peft_model`, by `requires_grad_(False)`, or by a loop over its parameters. It looks
at `gradient_checkpointing_enable`, at the arguments of a plain `Trainer`, and at `torch.utils.checkpoint` in the
model's own code. It also fires under DDP with `find_unused_parameters=True`, where such checkpoints raise an error.

## Why it is bad
A reentrant checkpoint computes gradients only if one of its inputs requires them. The output of a frozen embedding does
not, so no layer gets a gradient: the step fails with "does not require grad", or trains only the head.

## Example
```python
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("some/model")
model = get_peft_model(model, LoraConfig(target_modules="all-linear"))
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
model.train()
for batch in loader:
    model(**batch).loss.backward()
```

## Use instead
```python
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("some/model")
model = get_peft_model(model, LoraConfig(target_modules="all-linear"))
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
model.train()
for batch in loader:
    model(**batch).loss.backward()
```

## Fix safety
Safe: the gradients are the same as without checkpointing.

## References
- https://pytorch.org/docs/stable/checkpoint.html ("at least one of the inputs needs requires_grad=True")
- huggingface/transformers#42947, huggingface/peft#137
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.faulty_reentrant_gradient_checkpointing import (
    ReentrantCheckpoints,
    faulty_reentrant_checkpoints,
    places_enabling_gradient_checkpointing,
)


class ReentrantCheckpointsLoseGradients(SourceRule):
    code = "SRC153"
    fault = Fault.CHECKPOINTING_HARMS_GRADIENTS
    severity = "error"
    looks_at = CodePlaces(
        "places that switch gradient checkpointing on", places_enabling_gradient_checkpointing
    )

    def findings(self) -> Iterator[Finding]:
        for reentrant_checkpoints in faulty_reentrant_checkpoints(self.subject):
            yield (
                self._finding_on_refusal_by_ddp(reentrant_checkpoints)
                if reentrant_checkpoints.kind == "ddp"
                else self._finding_on_lost_gradients(reentrant_checkpoints)
            )

    def _finding_on_lost_gradients(self, reentrant_checkpoints: ReentrantCheckpoints) -> Finding:
        """The finding on checkpoints over a frozen embedding."""
        return self.finding(
            "gradient checkpointing is reentrant over a frozen embedding: no input of the first layer requires"
            " gradients, so no layer gets any, not even the adapter",
            'set gradient_checkpointing_kwargs={"use_reentrant": False} (torch.utils.checkpoint: use_reentrant=False),'
            " or call model.enable_input_require_grads() before training",
            evidence=["nothing in these files makes the embedding's output require gradients"],
            cases=[
                case_of_node(reentrant_checkpoints.home, reentrant_checkpoints.place),
                case_of_node(reentrant_checkpoints.other_home, reentrant_checkpoints.other),
            ],
        )

    def _finding_on_refusal_by_ddp(self, reentrant_checkpoints: ReentrantCheckpoints) -> Finding:
        """The finding on checkpoints that DDP refuses."""
        return self.finding(
            "gradient checkpointing is reentrant, and DDP looks for unused parameters: each parameter is marked ready"
            " twice, and the first backward pass fails",
            "set use_reentrant=False for the checkpoints, or find_unused_parameters=False for DDP",
            evidence=["a reentrant checkpoint runs its own backward pass inside DDP's"],
            cases=[
                case_of_node(reentrant_checkpoints.home, reentrant_checkpoints.place),
                case_of_node(reentrant_checkpoints.other_home, reentrant_checkpoints.other),
            ],
        )
