"""A resumed run starts its epoch again at the first batch.

## What it does
Looks at training loops that save checkpoints between two batches, and at what the script restores when it resumes one:
weights, optimizer and the step counter. It fires if nothing advances the loader to the batch at which the checkpoint
was written. A file with only the model's weights is not a checkpoint, and a sampler that picks each row at random
(`replacement=True`) is not reported.

## Why it is bad
The rows before the checkpoint are trained on a second time. If the run ends at a number of steps, as many rows at the
end are never used. The loss looks better than it is, and nothing fails.

## Example
```python
import torch
from torch.utils.data import DataLoader

loader = DataLoader(rows, batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(0))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
step = 0
if args.resume:
    saved = torch.load(args.resume)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    step = saved["step"]
for batch in loader:
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    step += 1
    if step % 500 == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, "last.pt")
```

## Use instead
```python
from itertools import islice

import torch
from torch.utils.data import DataLoader

loader = DataLoader(rows, batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(0))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
step = 0
if args.resume:
    saved = torch.load(args.resume)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    step = saved["step"]
for batch in islice(loader, step, None):
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    step += 1
    if step % 500 == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, "last.pt")
```

## Fix safety
There is no automatic fix. The order must be that of the first run: give the loader its own seeded generator. In later
epochs the loader must start at its first batch again.

## References
- huggingface/accelerate#1130, huggingface/accelerate#2016
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.loops_resumed_at_first_batch import (
    loops_resumed_at_first_batch,
    training_loops_with_saves,
)


class ResumedRunRepeatsItsRows(SourceRule):
    code = "SRC425"
    fault = Fault.RESUME_LOSES_STATE
    severity = "warning"
    looks_at = CodePlaces("training loops that save on their way", training_loops_with_saves)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for resumed_loop in loops_resumed_at_first_batch(module):
            yield self.finding(
                "a resumed run restores its optimizer and its step counter, but starts the loader at the first batch:"
                " the rows before the checkpoint are trained on again",
                "iterate over itertools.islice(loader, step, None) in the first epoch after the resume,"
                " or use accelerate's skip_first_batches, or a StatefulDataLoader",
                cases=[
                    case_of_node(module, resumed_loop.loop),
                    case_of_node(module, resumed_loop.restored),
                    case_of_node(module, resumed_loop.save),
                ],
            )
