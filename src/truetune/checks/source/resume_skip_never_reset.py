"""The batches that a resumed run skips are skipped again in each later epoch.

## What it does
Looks at loops over epochs that skip the first rows or batches (`order[skip:]`, `islice`, `skip_first_batches`, a
condition on the batch number), where a variable says how many and is set when a run is resumed. It fires if the loop
never sets that variable again and no condition checks the epoch.

## Why it is bad
Only the interrupted epoch contains rows that were already trained on. Each later epoch skips as many rows, ends early,
and the schedule never reaches its end.

## Example
```python
import torch
from torch.utils.data import DataLoader

first, skip = 0, 0
if args.resume:
    saved = torch.load(args.resume)
    model.load_state_dict(saved["model"])
    first, skip = divmod(saved["rows"], len(rows))
for epoch in range(first, 3):
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(epoch)).tolist()
    for batch in DataLoader(rows.select(order[skip:]), batch_size=8):
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
```

## Use instead
```python
import torch
from torch.utils.data import DataLoader

first, skip = 0, 0
if args.resume:
    saved = torch.load(args.resume)
    model.load_state_dict(saved["model"])
    first, skip = divmod(saved["rows"], len(rows))
for epoch in range(first, 3):
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(epoch)).tolist()
    for batch in DataLoader(rows.select(order[skip:]), batch_size=8):
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    skip = 0
```

## Fix safety
There is no automatic fix. A resumed run then trains on more rows than before, and takes longer.

## References
- allenai/open-instruct#681
- https://huggingface.co/docs/accelerate/usage_guides/checkpoint
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.resume_skips_never_reset import epoch_loops, skips_never_reset


class ResumeSkipNeverReset(SourceRule):
    code = "SRC443"
    fault = Fault.RESUME_LOSES_STATE
    symptoms = ("nothing-is-learned",)
    severity = "error"
    looks_at = CodePlaces("loops over epochs", epoch_loops)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for skip_never_reset in skips_never_reset(module):
            yield self.finding(
                "the rows that a resumed run skips are skipped in each later epoch too: the number to skip is never"
                " reset",
                "set the number to 0 at the end of the loop over the first epoch (as in skip = 0), or skip only if the"
                " epoch is the interrupted one",
                cases=[
                    case_of_node(module, skip_never_reset.skip),
                    case_of_node(module, skip_never_reset.restored),
                    case_of_node(module, skip_never_reset.epochs),
                ],
            )
