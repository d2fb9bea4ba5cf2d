"""The learning rate's schedule is built over a wrong number of steps.

## What it does
It looks at what a scheduler is given as its number of steps: rows of a data set that are not divided by a batch size,
or batches that are not divided by the accumulation that `scheduler.step()` stands behind.

## Why it is bad
The schedule is many times longer than the run: the rate hardly falls, and a warm-up may never end.

## Example
```python
from datasets import load_dataset
from torch.optim import AdamW
from transformers import AutoModelForCausalLM, get_linear_schedule_with_warmup

data = load_dataset("some/rows", split="train")
model = AutoModelForCausalLM.from_pretrained("some/model")
optimizer = AdamW(model.parameters(), lr=1e-4)
scheduler = get_linear_schedule_with_warmup(optimizer, 100, len(data) * 3)
```

## Use instead
```python
from datasets import load_dataset
from torch.optim import AdamW
from transformers import AutoModelForCausalLM, get_linear_schedule_with_warmup

data = load_dataset("some/rows", split="train")
model = AutoModelForCausalLM.from_pretrained("some/model")
optimizer = AdamW(model.parameters(), lr=1e-4)
scheduler = get_linear_schedule_with_warmup(optimizer, 100, len(data) * 3 // 8)  # rows * epochs // batch size
```

## Fix safety
The division by the accumulation is not safe: a remainder may be a step more. For rows there is no fix.

## References
- huggingface/accelerate#2318, huggingface/accelerate#1382
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.places import at, fix
from truetune.checks.source.schedules import SCHEDULES, divided, lengths, schedules, stepped_every
from truetune.source.edits import replace


class SchedulerLengthMiscounted(SourceRule):
    code = "TT716"
    severity = "error"
    looks_at = SCHEDULES

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for call, total in schedules(module):
            if divided(module, total):
                continue
            counted = list(lengths(module, total))
            rows = [node for node in counted if "dataset" in module.flow.kinds(node.args[0])]
            every = stepped_every(module, call)
            if rows:
                yield self.finding(
                    "the schedule counts rows, not steps",
                    "use len(loader) * epochs // accumulation steps",
                    cases=[
                        at(module, total),
                        *(at(module, node) for node in rows[:1] if node is not total),
                    ],
                )
            elif every is not None and any(
                "loader" in module.flow.kinds(node.args[0]) for node in counted
            ):
                shown = module.text_of(every)
                text = f"({module.text_of(total)}) // {shown}"
                simple = isinstance(every, (ast.Name, ast.Attribute, ast.Constant))
                yield self.finding(
                    "the schedule counts every batch, and scheduler.step() comes only every"
                    f" {shown} batches",
                    f"divide its length by {shown}",
                    cases=[at(module, total), at(module, every)],
                    fix=fix(module, replace(module, total, text), safe=False) if simple else None,
                )
