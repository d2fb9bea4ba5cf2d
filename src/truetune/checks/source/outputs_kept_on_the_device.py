"""A loop keeps the model's large outputs of every step in GPU memory.

## What it does
Looks in loops, and in the steps of a Lightning module, for hidden states, logits, attentions, caches or whole outputs
of a model that are appended to a list as they are, at each step or at every tenth (`step % 10 == 0`). The append may
also be in a function or method that the step passes them to. Results of `generate` that contain scores or hidden states
count too. It does not fire if they are moved (`.cpu()`, `.tolist()`) or reduced (`argmax`, `mean`, a slice of tokens),
if the list is emptied in the loop, under other conditions, or in loops of few steps.

## Why it is bad
Each step adds rows x tokens x width numbers (for logits: x vocabulary) to GPU memory. The run dies of CUDA out of
memory after a few hundred steps, each time at the same place, and a smaller batch only delays it. `.detach()` frees the
graph, but not the tensor itself.

## Example
```python
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model").cuda()
states = []
for batch in loader:
    outputs = model(**batch, output_hidden_states=True)
    outputs.loss.backward()
    states.append(outputs.hidden_states[-1])
```

## Use instead
```python
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model").cuda()
states = []
for batch in loader:
    outputs = model(**batch, output_hidden_states=True)
    outputs.loss.backward()
    states.append(outputs.hidden_states[-1].detach().cpu())
```

## Fix safety
Safe for code that only reads the values. CPU memory grows instead: keep only a mean over the tokens if that is enough.

## References
- huggingface/transformers#2595, huggingface/transformers#4518, pytorch/pytorch#13613
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node, fix_of_changes
from truetune.checks.source.evidence.model_outputs_loops_keep_on_device import (
    model_outputs_kept_in_loops,
)
from truetune.source.make_source_edits import replace_expression
from truetune.source.parsed_source_file import Module

DETACHED = ("detach() frees the graph, but the tensor stays on the GPU",)


def _appends_in_loops(module: Module) -> Iterator[object]:
    """The appends of loops to lists."""
    yield from module.methods("append")


class OutputsKeptOnTheDevice(SourceRule):
    code = "SRC027"
    fault = Fault.MEMORY_GROWS_IN_LOOP
    symptoms = ("out-of-memory", "slow-generation")
    severity = "warning"
    looks_at = CodePlaces("values that are appended to lists", _appends_in_loops)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for kept in model_outputs_kept_in_loops(module):
            name = module.text_of(kept.holder)
            moved = f"{module.text_of(kept.value).removesuffix('.detach()')}.detach().cpu()"
            # A tuple of layers has no detach(): the advice would raise.
            whole = kept.part == "output" or _is_tuple_of_layers_or_steps(kept.value)
            yield self.finding(
                f"`{name}` keeps the {kept.part.replace('_', ' ')} of every step on the GPU: memory use"
                " grows with each step",
                "append only the tensors that you need, each with .detach().cpu()"
                if whole
                else f"append {moved}, or only what you need of it (its argmax, a count)",
                evidence=DETACHED if ".detach()" in module.text_of(kept.value) else (),
                cases=[case_of_node(module, kept.node), case_of_node(module, kept.forward)],
                fix=None
                if whole
                else fix_of_changes(module, replace_expression(module, kept.value, moved)),
            )


def _is_tuple_of_layers_or_steps(value: ast.expr) -> bool:
    """Is the value the tuple of all layers, or of all steps, which has no `detach`?"""
    return isinstance(value, ast.Attribute) and value.attr not in ("logits", "last_hidden_state")
