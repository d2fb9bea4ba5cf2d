"""The evaluation data are part of the training data.

## What it does
Compares `eval_dataset` with `train_dataset` of a trainer: the same data set, or rows selected from it that stay in it.

## Why it is bad
The evaluation loss follows the training loss and says nothing on new data: overfitting can't be seen, and the best
checkpoint is the one that knows its rows best.

## Example
```python
from datasets import load_dataset
from trl import SFTTrainer

rows = load_dataset("json", data_files="chats.jsonl", split="train")
trainer = SFTTrainer(model="model", train_dataset=rows, eval_dataset=rows.select(range(100)))
```

## Use instead
```python
from datasets import load_dataset
from trl import SFTTrainer

rows = load_dataset("json", data_files="chats.jsonl", split="train").train_test_split(100, seed=0)
trainer = SFTTrainer(model="model", train_dataset=rows["train"], eval_dataset=rows["test"])
```

## Fix safety
A split takes the rows out of training; with few rows, keep the split small.

## References
- OpenRLHF/OpenRLHF#1089, huggingface/datasets#4261
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.places import at
from truetune.source.module import Module

PART = ("select", "take", "shuffle", "shard")
"""What gives rows that stay in the data set"""


class EvaluatedOnTrainingRows(SourceRule):
    code = "TT749"
    severity = "warning"

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for call in module.calls("transformers.*Trainer", "trl.*Trainer"):
            train, held = call.keywords.get("train_dataset"), call.keywords.get("eval_dataset")
            if train is None or held is None:
                continue
            source = _whole(module, train)
            if source is not None and source in (_whole(module, held), _part_of(module, held)):
                yield self.finding(
                    "the evaluation rows are training rows",
                    "split them off first: dataset.train_test_split(...), and train on the rest",
                    cases=[at(module, held)],
                )


def _whole(module: Module, node: ast.expr) -> ast.AST | None:
    """The one expression that made a data set; None where several could, it is no call, or a function's own."""
    origins = module.flow.origins(node)
    made = origins[0].node if len(origins) == 1 and not origins[0].path and not origins[0].element else None
    same = made is not None and module.scopes.of.get(made) is module.scopes.of.get(node)
    return made if same and isinstance(made, ast.Call) else None


def _part_of(module: Module, node: ast.expr) -> ast.AST | None:
    """The data set that these rows were selected from."""
    made = _whole(module, node)
    while isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute) and made.func.attr in PART:
        made = _whole(module, made.func.value)
    return made
