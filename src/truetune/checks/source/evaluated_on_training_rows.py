"""The evaluation data are part of the training data.

## What it does
Compares `eval_dataset` with `train_dataset` of a trainer: the same data set, or rows selected from it that stay in it;
two slices or ranges of the same rows (`train[:90%]`, `train[80%:]`) that overlap; two sides of a division whose rows
were repeated before (`concatenate_datasets([rows, rare, rare])`), so that copies stand on both sides. A trainer that is
only asked to evaluate trains on nothing, whatever it is given.

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

from truetune.checks.examined_code_places import calls_with
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes import case_at
from truetune.checks.source.evidence.row_parts import (
    Step,
    division_of_repeated_rows,
    share_rows,
    steps_to,
)
from truetune.source.symbolic_execution.constants import constant_of
from truetune.source.symbolic_execution.lineage import lineages
from truetune.source.symbolic_execution.trace import CallEvent, Trace
from truetune.source.symbolic_execution.traces import traces_of
from truetune.source.symbolic_execution.values import Mapping, Value, options_of

TRAINERS = ("transformers.*Trainer", "trl.*Trainer", "unsloth.*Trainer")
EVALUATES = frozenset(("evaluate", "predict"))
DATA_SETS = ("train_dataset", "eval_dataset")


class EvaluatedOnTrainingRows(SourceRule):
    code = "SRC054"
    symptoms = ("odd-metrics",)
    severity = "warning"
    since = "0.1.0"
    looks_at = calls_with("trainers with rows to train and to evaluate on", DATA_SETS, *TRAINERS)

    def findings(self) -> Iterator[Finding]:
        judged: set[object] = set()
        for trace in traces_of(self.subject):
            for trainer in trace.calls(*TRAINERS):
                if trainer.home.path != self.subject.path or trainer.node in judged:
                    continue
                judged.add(trainer.node)
                train, held = (trainer.keywords.get(name) for name in DATA_SETS)
                if train is not None and held is not None and not _only_evaluates(trace, trainer):
                    yield from self._of_trainer(trainer, train, held)

    def _of_trainer(self, trainer: CallEvent, train: Value, held: Value) -> Iterator[Finding]:
        """The finding on one trainer's rows; `held` may be a dictionary of several data sets."""
        data_sets = list(held.entries.values()) if isinstance(held, Mapping) else [held]
        for one in data_sets:
            way, other = steps_to(train), steps_to(one)
            if way is not None and other is not None and share_rows(way, other):
                yield self._of_shared_rows(trainer, way, other, one)
                return
            divided = division_of_repeated_rows(train, one)
            if divided is not None:
                division, repeats = divided
                yield self.finding(
                    "rows are repeated before they are divided: copies of the same row are trained on and evaluated on",
                    "divide the rows first, and repeat rows of the training part alone",
                    cases=[
                        case_at(self.subject, division.node),
                        case_at(self.subject, repeats.node),
                    ],
                )
                return

    def _of_shared_rows(
        self, trainer: CallEvent, train: tuple[Step, ...], held: tuple[Step, ...], data: Value
    ) -> Finding:
        """The finding on rows that both sets hold."""
        place = _node_of(data) or trainer.node
        ranges = [_text_of_range(steps) for steps in (train, held)]
        if None not in ranges:
            return self.finding(
                f"{ranges[0]} and {ranges[1]} overlap: evaluation rows are training rows",
                "let the second slice begin where the first one ends",
                cases=[case_at(self.subject, place), case_at(self.subject, trainer.node)],
            )
        return self.finding(
            "the evaluation rows are training rows",
            "split them off first: dataset.train_test_split(...), and train on the rest",
            cases=[case_at(self.subject, place)],
        )


def _only_evaluates(trace: Trace, trainer: CallEvent) -> bool:
    """Is a trainer asked to evaluate, and never to train? Its training rows then only satisfy the constructor."""
    asked = {
        call.method
        for call in trace.all_calls
        if call.receiver is not None
        and any(way.origin is trainer.result for way in lineages(call.receiver))
    }
    return bool(asked & EVALUATES) and "train" not in asked


def _node_of(data: Value) -> ast.AST | None:
    """Where a data set was made; of several options, the first that is no None."""
    known = [one for one in options_of(data) if constant_of(one) is not None]
    return known[0].node if known else None


def _text_of_range(steps: tuple[Step, ...]) -> str | None:
    """`train[80%:]`, or `rows 8000 to 9000`; None where the last step is no range."""
    last = steps[-1]
    if last.kind != "range" or not isinstance(last.what, tuple):
        return None
    begin, end, unit = last.what
    sign = "%" if unit == "%" else ""
    first = f"{begin:.0f}{sign}" if begin else ""
    behind = "" if end == float("inf") else f"{end:.0f}{sign}"
    name = steps[-2].what if len(steps) > 1 and steps[-2].kind == "split" else "rows"
    return f"{name}[{first}:{behind}]"
