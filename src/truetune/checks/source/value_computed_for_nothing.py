"""A value is computed for a purpose that its name says, but nothing uses it: class weights, a loss part, a sampler.

## What it does
Looks at class weights, parameter groups with their own weight decay, samplers, parts of the loss (`kl_loss`,
`scaled_loss`), loss masks and tuned thresholds. It fires if they are at most printed, and the loss, the optimizer, the
loader, the backward pass or the comparison gets none.

## Why it is bad
The log shows the value, but the run ignores it: rare classes are neglected, the policy drifts from its reference, or
the gradient is sixteen times too large.

## Example
```python
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for step, batch in enumerate(loader):
    loss = model(**batch).loss
    scaled_loss = loss / 16
    loss.backward()
    if (step + 1) % 16 == 0:
        optimizer.step()
        optimizer.zero_grad()
```

## Use instead
```python
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for step, batch in enumerate(loader):
    loss = model(**batch).loss
    scaled_loss = loss / 16
    scaled_loss.backward()
    if (step + 1) % 16 == 0:
        optimizer.step()
        optimizer.zero_grad()
```

## Fix safety
There is no automatic fix: the value may be left over from an experiment. Then remove it. If you use it, the run
changes.

## References
- huggingface/transformers#11160 (groups of parameters), LeapLabTHU/JustGRPO#2 (a KL that is in no loss)
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.values_computed_for_nothing import (
    values_computed_for_nothing,
    values_with_purpose,
)


class ValueComputedForNothing(SourceRule):
    code = "SRC468"
    fault = Fault.CODE_WITHOUT_EFFECT
    symptoms = ("nothing-is-learned", "odd-metrics")
    severity = "warning"
    looks_at = CodePlaces(
        "weights, groups, samplers, masks and parts of a loss", values_with_purpose
    )

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for unused in values_computed_for_nothing(module):
            yield self.finding(
                f"{unused.name} is computed and never used: {unused.effect}",
                f"{unused.remedy}; or remove it",
                cases=[case_of_node(module, unused.value), case_of_node(module, unused.taker)],
            )
