"""Weights are kept in a second variable without a copy: later training steps change them too.

## What it does
Looks at `model.state_dict()`, parameters in a list or dictionary, and `best_model = model`, that a script keeps while
it trains, and reads after later steps: to restore the best epoch, to start each fold from the same weights, to average.
It fires if nothing copies them (`copy.deepcopy`, `clone`, a file).

## Why it is bad
`state_dict()` returns the model's own tensors. Each optimizer step overwrites them, so the restored best state is the
last one, without a warning. `.copy()` and `dict(...)` copy the dictionary, not the tensors.

## Example
```python
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
best_loss, best_state = float("inf"), None
for epoch in range(5):
    for batch in loader:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    loss = evaluate(model)
    if loss < best_loss:
        best_loss = loss
        best_state = model.state_dict()
model.load_state_dict(best_state)
model.save_pretrained("out")
```

## Use instead
```python
import copy

import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
best_loss, best_state = float("inf"), None
for epoch in range(5):
    for batch in loader:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    loss = evaluate(model)
    if loss < best_loss:
        best_loss = loss
        best_state = copy.deepcopy(model.state_dict())
model.load_state_dict(best_state)
model.save_pretrained("out")
```

## Fix safety
There is no automatic fix: a copy takes as much memory as the weights. Saving with `model.save_pretrained` to a folder
works too. The restored weights are then those of the best epoch, so results change.

## References
- pytorch/tutorials#188, zhangj111/astnn#8, WenjieDu/PyPOTS#667
- https://pytorch.org/tutorials/beginner/saving_loading_models.html
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.weights_kept_without_copy import (
    bindings_of_live_weights,
    weights_kept_without_copy,
)


class WeightsKeptWithoutCopy(SourceRule):
    code = "SRC460"
    fault = Fault.TRAINING_RESULT_LOST
    symptoms = ("odd-metrics", "nothing-is-learned")
    severity = "error"
    looks_at = CodePlaces("weights that are kept under another name", bindings_of_live_weights)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for kept_weights in weights_kept_without_copy(module):
            yield self.finding(
                f"{kept_weights.variable} is not a copy: {kept_weights.how} gives the tensors that are being"
                " trained, and later steps change them too",
                f"copy them: {kept_weights.variable} = copy.deepcopy(...), or save them to a file and load it later",
                cases=[
                    case_of_node(module, kept_weights.kept),
                    case_of_node(module, kept_weights.step),
                    case_of_node(module, kept_weights.read),
                ],
            )
