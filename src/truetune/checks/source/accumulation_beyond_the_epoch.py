"""Gradients are accumulated over more batches than an epoch has, so the optimizer never steps.

## What it does
Checks hand-written loops that step their optimizer only every N batches (`(i + 1) % 32 == 0`), and counts the batches
of an epoch: from a list in the script, a limit, or the rows of a file next to it. It is an error if the counter
restarts with each epoch and never reaches N: no step is ever made. If the counter continues over epochs, or Accelerate
steps at the end of an epoch, it is a warning below 10 steps in total. A loop that steps once more after its last batch
is not reported.

## Why it is bad
The loss is computed and logged and the run ends without an error, but no weight has changed. It happens when settings
of a run on many rows are used for a small data set.

## Example
```python
import torch
from datasets import Dataset
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("gpt2").train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
rows = Dataset.from_list([{"text": "one"}, {"text": "two"}, {"text": "three"}])
loader = DataLoader(rows, batch_size=1)
for epoch in range(20):
    for i, batch in enumerate(loader):
        (model(**batch).loss / 8).backward()
        if (i + 1) % 8 == 0:
            optimizer.step()
            optimizer.zero_grad()
```

## Use instead
```python
import torch
from datasets import Dataset
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("gpt2").train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
rows = Dataset.from_list([{"text": "one"}, {"text": "two"}, {"text": "three"}])
loader = DataLoader(rows, batch_size=1)
for epoch in range(20):
    for i, batch in enumerate(loader):
        (model(**batch).loss / 3).backward()
        if (i + 1) % 3 == 0:
            optimizer.step()
            optimizer.zero_grad()
```

## Fix safety
There is no automatic fix: how many rows an optimizer step covers is your choice. With a smaller N each step averages
fewer rows.

## References
- PyTorch documentation, "Automatic Mixed Precision examples", "Gradient accumulation"
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.backward_and_optimizer_step_calls import OPTIMIZER_STEPS
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.gradient_accumulation_beyond_epoch import (
    accumulations_longer_than_epoch,
)


class AccumulationBeyondTheEpoch(SourceRule):
    code = "SRC151"
    fault = Fault.TOO_FEW_OPTIMIZER_STEPS
    symptoms = ("loss-does-not-fall", "nothing-is-learned")
    severity = "error"
    looks_at = OPTIMIZER_STEPS

    def findings(self) -> Iterator[Finding]:
        """Findings on gradients that are accumulated over more batches than an epoch has."""
        for long_accumulation in accumulations_longer_than_epoch(self.subject):
            batches = f"an epoch has at most {long_accumulation.epoch.most:,} batches"
            what = f"{batches}, but the optimizer steps only after every {long_accumulation.accumulation:,}"
            end = (
                f": the run makes at most {long_accumulation.steps:,} steps"
                if long_accumulation.steps
                else ": it never steps, and no weight changes"
            )
            yield self.finding(
                what + end,
                f"accumulate over {max(1, long_accumulation.epoch.most)} batches or fewer, and call optimizer.step()"
                " once more after the last batch of an epoch",
                evidence=[long_accumulation.epoch.why],
                severity="warning" if long_accumulation.steps else None,
                cases=[case_of_node(self.subject, long_accumulation.step.node)],
            )
