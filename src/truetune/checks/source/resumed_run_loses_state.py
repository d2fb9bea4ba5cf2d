"""A resumed run loses a part of its state: its schedule, its best metric or its epoch number.

## What it does
Looks at scripts that restore their optimizer from a checkpoint. It is an error if the learning rate schedule is created
again and its state is not loaded. It is a warning if the best metric starts at its initial value though checkpoints are
kept by it, or if the loop starts with the epoch number that was saved after that epoch.

## Why it is bad
The warm-up runs again, and the learning rate is high where it should be near its end. The first evaluation after the
resume counts as the best and overwrites the best checkpoint. The saved epoch is trained twice.

## Example
```python
import torch
from transformers import get_linear_schedule_with_warmup

optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
scheduler = get_linear_schedule_with_warmup(optimizer, 100, 3000)
first = 0
if args.resume:
    saved = torch.load("out/last.pt")
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    first = saved["epoch"] + 1
for epoch in range(first, 3):
    for batch in loader:
        model(**batch).loss.backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, "out/last.pt")
```

## Use instead
```python
import torch
from transformers import get_linear_schedule_with_warmup

optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
scheduler = get_linear_schedule_with_warmup(optimizer, 100, 3000)
first = 0
if args.resume:
    saved = torch.load("out/last.pt")
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    scheduler.load_state_dict(saved["scheduler"])
    first = saved["epoch"] + 1
for epoch in range(first, 3):
    for batch in loader:
        model(**batch).loss.backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}
    torch.save({**state, "epoch": epoch}, "out/last.pt")
```

## Fix safety
There is no automatic fix: existing checkpoints do not contain what was not saved.

## References
- PolymathicAI/the_well#77, torch-points3d/torch-points3d#630 (the schedule), mozilla/DeepSpeech#415 (the epoch)
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.state_lost_at_resume import (
    restores_of_optimizers,
    state_lost_at_resume,
)

MESSAGES = {
    "schedule": "a resumed run restores its optimizer but not {name}: the schedule starts again, with its warm-up",
    "best": "a resumed run starts with the initial value of {name}: its first evaluation replaces the best checkpoint",
    "epoch": "{name} is the number of the epoch that had just ended: a resumed run trains that epoch again",
}
REMEDIES = {
    "schedule": "save {name}.state_dict() next to the optimizer's, and call {name}.load_state_dict(...) when you load"
    " the optimizer",
    "best": "save {name} in the checkpoint, and restore it when you load the optimizer",
    "epoch": "add 1 to {name} when you restore it",
}
"""The lost part -> what to do"""


class ResumedRunLosesState(SourceRule):
    code = "SRC466"
    fault = Fault.RESUME_LOSES_STATE
    symptoms = ("odd-metrics", "loss-does-not-fall")
    severity = "warning"
    looks_at = CodePlaces("optimizers that are restored", restores_of_optimizers)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for lost in state_lost_at_resume(module):
            yield self.finding(
                MESSAGES[lost.part].format(name=lost.name),
                REMEDIES[lost.part].format(name=lost.name),
                cases=[case_of_node(module, lost.place), case_of_node(module, lost.restored)],
                severity="error" if lost.part == "schedule" else None,
            )
