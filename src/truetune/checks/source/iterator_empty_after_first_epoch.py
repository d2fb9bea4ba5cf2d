"""An iterator is created before the epochs and read in each of them: from the second one on it is empty.

## What it does
Looks at nested loops in which the inner one reads a generator, `iter(...)`, `zip(...)`, `map(...)` or `enumerate(...)`
that was created once, outside of both. A `DataLoader`, a list, a function that is called in each pass, and a loop that
stops before the end are not reported.

## Why it is bad
Python returns each item of an iterator once. The second epoch runs no batch, takes no time and reports nothing: the
model trains for one epoch of three, and a schedule over three never reaches its end. An evaluation over such an
iterator has no rows from the second time on.

## Example
```python
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
batches = (collate(rows) for rows in chunks)
for epoch in range(3):
    for batch in batches:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
```

## Use instead
```python
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
batches = [collate(rows) for rows in chunks]
for epoch in range(3):
    for batch in batches:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
```

## Fix safety
There is no automatic fix. A list needs memory for all batches. If they do not fit, create the iterator in a function
and call that in each epoch. The run then really trains all epochs.

## References
- pytorch/pytorch#59213, pytorch/text#1282, hushell/pmf_cvpr22#41
- https://docs.python.org/3/glossary.html#term-iterator
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.iterators_used_up import iterators_used_up, loops_in_loops


class IteratorEmptyAfterFirstEpoch(SourceRule):
    code = "SRC469"
    fault = Fault.ROWS_MISSING_FROM_TRAINING
    symptoms = ("loss-does-not-fall", "odd-metrics")
    severity = "error"
    looks_at = CodePlaces("loops in loops", loops_in_loops)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for used_up_iterator in iterators_used_up(module):
            yield self.finding(
                f"{used_up_iterator.name} is created once, and the first pass of the outer loop reads it to its end:"
                " all later passes have no batches",
                f"create {used_up_iterator.name} inside the outer loop, or make it a list:"
                f" list({used_up_iterator.name})",
                cases=[
                    case_of_node(module, used_up_iterator.made),
                    case_of_node(module, used_up_iterator.read),
                    case_of_node(module, used_up_iterator.repeated),
                ],
            )
