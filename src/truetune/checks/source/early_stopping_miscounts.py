"""Early stopping counts wrongly: its counter is never reset, or the best value is replaced before it is compared.

## What it does
Looks at loops and classes that compare a metric with the best one so far, increase a counter if it is not better, and
stop at a limit. It is a warning if nothing resets the counter after an improvement. It is an error if the best value is
set to the new one before the two are compared, so that the condition is never true.

## Why it is bad
With a patience of 3, training then ends at the third evaluation without an improvement in the whole run, although most
evaluations were better than the one before. If the best value is replaced first, no checkpoint is ever kept as the
best, and training stops as soon as the patience is used up.

## Example
```python
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
best_loss, patience, bad_epochs = float("inf"), 3, 0
for epoch in range(30):
    train_one_epoch(model, optimizer)
    val_loss = evaluate(model)
    if val_loss < best_loss:
        best_loss = val_loss
        model.save_pretrained("out/best")
    else:
        bad_epochs += 1
        if bad_epochs >= patience:
            break
```

## Use instead
```python
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
best_loss, patience, bad_epochs = float("inf"), 3, 0
for epoch in range(30):
    train_one_epoch(model, optimizer)
    val_loss = evaluate(model)
    if val_loss < best_loss:
        best_loss = val_loss
        bad_epochs = 0
        model.save_pretrained("out/best")
    else:
        bad_epochs += 1
        if bad_epochs >= patience:
            break
```

## Fix safety
There is no automatic fix. The run takes longer, since the patience now counts evaluations in a row.

## References
- royerlab/cytoself#29, modelscope/ms-swift#5326, ivadomed/ivadomed#867 (the count), fastino-ai/GLiNER2#94 (the order)
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.wrong_early_stopping_counts import (
    comparisons_after_best_was_replaced,
    comparisons_that_change_count,
    counts_never_reset,
)
from truetune.source.parsed_source_file import Module


def _patience_counts_and_replaced_bests(module: Module) -> Iterator[object]:
    """The counts under a comparison, and the bests that are replaced before theirs."""
    yield from comparisons_that_change_count(module)
    yield from comparisons_after_best_was_replaced(module)


class EarlyStoppingMiscounts(SourceRule):
    code = "SRC461"
    fault = Fault.WRONG_CHECKPOINT_CHOSEN
    symptoms = ("nothing-is-learned", "odd-metrics")
    severity = "error"
    looks_at = CodePlaces("counts that a comparison raises", _patience_counts_and_replaced_bests)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for count in counts_never_reset(module):
            yield self.finding(
                f"{count.variable} is never reset: training stops after that many evaluations without improvement in"
                " total, not in a row",
                f"add {count.variable} = 0 to the branch in which the metric is better",
                cases=[
                    case_of_node(module, count.raised),
                    case_of_node(module, count.comparison.test),
                    case_of_node(module, count.limit.test),
                ],
                severity="warning",
            )
        for early in comparisons_after_best_was_replaced(module):
            yield self.finding(
                f"{early.best} is set to the better value before the two are compared: the condition is never true",
                f"compare first, and set {early.best} inside the condition",
                cases=[
                    case_of_node(module, early.replaced),
                    case_of_node(module, early.comparison.test),
                ],
            )
