"""Gradients are accumulated over more batches than an epoch has, so that the optimizer never steps.

## What it does
Looks at loops of one's own that step their optimizer at every so many batches (`(i + 1) % 32 == 0`), and counts the
batches of an epoch: by a list in the script, a limit, or the rows of a file beside it. It fires where the counter
begins again with each epoch and never gets that far: no step is made. Where it continues, or Accelerate steps at the
end of an epoch, runs of fewer than 10 steps are found. A loop that steps once more after its last batch is left alone.

## Why it is bad
The loss is computed and logged, the run ends without an error, and no weight has changed. Settings that were copied
from a run of many rows do this to a small one.

## Example
```python
import torch
from datasets import Dataset
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("gpt2")
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

model = AutoModelForCausalLM.from_pretrained("gpt2")
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
There is no automatic fix: how many rows a step takes is a choice.

## References
- PyTorch documentation, "Automatic Mixed Precision examples", "Gradient accumulation"
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.backward_and_optimizer_step_calls import OPTIMIZER_STEPS
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.gradient_accumulation_beyond_epoch import (
    accumulations_longer_than_epoch,
)


class AccumulationBeyondTheEpoch(SourceRule):
    code = "SRC151"
    symptoms = ("loss-does-not-fall", "nothing-is-learned")
    severity = "error"
    looks_at = OPTIMIZER_STEPS

    def findings(self) -> Iterator[Finding]:
        """Findings on gradients that are accumulated over more batches than an epoch has."""
        for found in accumulations_longer_than_epoch(self.subject):
            batches = f"an epoch has at most {found.epoch.most:,} batches"
            what = f"{batches}, and a step of the optimizer is due at every {found.accumulation:,}"
            end = (
                f": the run makes at most {found.steps:,} steps"
                if found.steps
                else ": none is ever made, and no weight changes"
            )
            yield self.finding(
                what + end,
                f"accumulate over {max(1, found.epoch.most)} batches or fewer, and step once more"
                " after the last batch of an epoch",
                evidence=[found.epoch.why],
                severity="warning" if found.steps else None,
                cases=[case_of_node(self.subject, found.step.node)],
            )
