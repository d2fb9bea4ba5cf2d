"""A script keeps its worst checkpoint: it compares the metric in the wrong direction.

## What it does
Looks at three ways to keep the best model: `greater_is_better` set on the arguments of a `Trainer`, or read by
HfArgumentParser from a file; `ModelCheckpoint` and `EarlyStopping` of Lightning with `monitor` and `mode`; and a
hand-written loop that saves after `if loss > best`. The metric's name says which direction is better; other names are
not judged. `greater_is_better` in the call of `TrainingArguments` is judged by `best-model-direction-inverted`.

## Why it is bad
Each checkpoint that is better than the last one is discarded. The log looks normal, but the model that is kept is worse
than the curves say.

## Example
```python
from lightning.pytorch.callbacks import ModelCheckpoint

keep = ModelCheckpoint(monitor="val_loss", mode="max", save_top_k=1)
```

## Use instead
```python
from lightning.pytorch.callbacks import ModelCheckpoint

keep = ModelCheckpoint(monitor="val_loss", mode="min", save_top_k=1)
```

## Fix safety
Safe if the metric is what its name says. The kept checkpoint changes.

## References
- Lightning documentation, `ModelCheckpoint` (`mode`); transformers documentation, `greater_is_better`
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.best_checkpoint_metric_choices import (
    KeptCheckpoint,
    best_checkpoint_choices,
)
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.source.parsed_source_file import Module


def _checkpoint_choices(module: Module) -> Iterator[KeptCheckpoint]:
    """The places of a file where the best checkpoint is chosen by a metric whose direction is known."""
    yield from best_checkpoint_choices(module)


class WorstCheckpointKept(SourceRule):
    code = "SRC171"
    fault = Fault.WRONG_CHECKPOINT_CHOSEN
    symptoms = ("odd-metrics", "nothing-is-learned")
    severity = "error"
    looks_at = CodePlaces("places that keep the best checkpoint by a metric", _checkpoint_choices)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for choice in best_checkpoint_choices(module):
            if choice.takes_greater is choice.is_lower_better:
                kept = "highest" if choice.takes_greater else "lowest"
                yield self.finding(
                    f"the checkpoint with the {kept} {choice.metric} is kept, which is the worst one",
                    choice.remedy,
                    cases=[case_of_node(module, choice.node)],
                )
