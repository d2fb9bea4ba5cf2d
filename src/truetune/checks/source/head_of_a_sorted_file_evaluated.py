"""An evaluation uses the first rows of a sorted file: some labels, or kinds of rows, are never tested.

## What it does
In a script that asks a model, it finds what takes the first rows of a file next to it (`select(range(n))`, `rows[:n]`,
`islice`, `head(n)`, `nrows=n`, `split="train[:n]"`, a `break` at row n, also by an option's default), and counts the
label column that the script reads. It names the labels that occur in the whole file but not in its first rows, if a
random sample of the same size would contain them.

In a script that trains, it checks the first rows that go to `eval_dataset`, `evaluate` or `predict`, and those of a
file that is named as validation. There a column of a task, source or language counts too, and so do system prompts, and
answers that are three times as short or long as those of the other rows. Not reported: rows that are filtered, sorted
or shuffled before.

## Why it is bad
A model that always gives the one label of the first rows is always right. The score is near 1, or the evaluation loss
far below the training loss, and says nothing about the rows that were never tested. The best checkpoint is then the one
that is best on the kind that comes first.

## Example
```python
from datasets import Dataset
from transformers import pipeline

rows = [
    {"text": "a0", "label": "good"}, {"text": "a1", "label": "good"}, {"text": "a2", "label": "good"},
    {"text": "a3", "label": "good"}, {"text": "a4", "label": "good"}, {"text": "a5", "label": "good"},
    {"text": "a6", "label": "good"}, {"text": "a7", "label": "good"}, {"text": "a8", "label": "good"},
    {"text": "a9", "label": "good"}, {"text": "a10", "label": "good"}, {"text": "a11", "label": "good"},
    {"text": "a12", "label": "good"}, {"text": "a13", "label": "good"}, {"text": "a14", "label": "good"},
    {"text": "a15", "label": "good"}, {"text": "a16", "label": "good"}, {"text": "a17", "label": "good"},
    {"text": "a18", "label": "good"}, {"text": "a19", "label": "good"}, {"text": "a20", "label": "good"},
    {"text": "b0", "label": "bad"}, {"text": "b1", "label": "bad"}, {"text": "b2", "label": "bad"},
    {"text": "b3", "label": "bad"}, {"text": "b4", "label": "bad"}, {"text": "b5", "label": "bad"},
    {"text": "b6", "label": "bad"}, {"text": "b7", "label": "bad"}, {"text": "b8", "label": "bad"},
    {"text": "b9", "label": "bad"}, {"text": "b10", "label": "bad"}, {"text": "b11", "label": "bad"},
]
data = Dataset.from_list(rows).select(range(20))
answers = pipeline("text-generation", model="out/merged")(data["text"])
```

## Use instead
```python
from datasets import Dataset
from transformers import pipeline

rows = [
    {"text": "a0", "label": "good"}, {"text": "a1", "label": "good"}, {"text": "a2", "label": "good"},
    {"text": "a3", "label": "good"}, {"text": "a4", "label": "good"}, {"text": "a5", "label": "good"},
    {"text": "a6", "label": "good"}, {"text": "a7", "label": "good"}, {"text": "a8", "label": "good"},
    {"text": "a9", "label": "good"}, {"text": "a10", "label": "good"}, {"text": "a11", "label": "good"},
    {"text": "a12", "label": "good"}, {"text": "a13", "label": "good"}, {"text": "a14", "label": "good"},
    {"text": "a15", "label": "good"}, {"text": "a16", "label": "good"}, {"text": "a17", "label": "good"},
    {"text": "a18", "label": "good"}, {"text": "a19", "label": "good"}, {"text": "a20", "label": "good"},
    {"text": "b0", "label": "bad"}, {"text": "b1", "label": "bad"}, {"text": "b2", "label": "bad"},
    {"text": "b3", "label": "bad"}, {"text": "b4", "label": "bad"}, {"text": "b5", "label": "bad"},
    {"text": "b6", "label": "bad"}, {"text": "b7", "label": "bad"}, {"text": "b8", "label": "bad"},
    {"text": "b9", "label": "bad"}, {"text": "b10", "label": "bad"}, {"text": "b11", "label": "bad"},
]
data = Dataset.from_list(rows).shuffle(seed=0).select(range(20))
answers = pipeline("text-generation", model="out/merged")(data["text"])
```

## Fix safety
There is no automatic fix: other rows give another score, so earlier scores can't be compared with it.

## References
- huggingface/datasets, `Dataset.shuffle` and `Dataset.select`
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.evaluations_on_head_of_sorted_file import (
    describe_head_difference,
    heads_lacking_labels,
)
from truetune.checks.source.evidence.prompt_forms import asks_model_and_trains_none, trains_a_model
from truetune.checks.source.evidence.row_kinds_missing_in_first_rows import is_label_column
from truetune.source.parsed_source_file import Module

SCORES = re.compile(
    r"accuracy|\bf1|correct|hits|precision|recall|exact_match|classification_report", re.I
)
EVALUATES = re.compile(r"eval|valid|\bdev\b|\bval\b|test", re.I)


def _possible_head_slices(module: Module) -> Iterator[ast.AST]:
    """Places that may take the first rows, in a script that evaluates."""
    is_evaluation = asks_model_and_trains_none(module) or SCORES.search(module.text) is not None
    if not is_evaluation and not _training_names_evaluation_rows(module):
        return
    for call in (
        *module.methods("select", "head", "take", "limit"),
        *module.calls("itertools.islice", "torch.utils.data.Subset"),
    ):
        yield call.node
    for call in module.calls("pandas.read_*", "datasets.load_dataset"):
        yield call.node
    yield from (*module.nodes(ast.Slice), *module.nodes(ast.Break))


def _training_names_evaluation_rows(module: Module) -> bool:
    """Does a script that trains name rows that it evaluates on?"""
    return trains_a_model(module) and EVALUATES.search(module.text) is not None


class HeadOfASortedFileEvaluated(SourceRule):
    code = "SRC264"
    fault = Fault.EVALUATION_ROWS_NOT_REPRESENTATIVE
    symptoms = ("odd-metrics", "good-here-bad-there")
    severity = "warning"
    looks_at = CodePlaces("heads of rows in an evaluation", _possible_head_slices)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if not any(_possible_head_slices(module)):
            return
        for head in heads_lacking_labels(module):
            yield self.finding(
                f"only the first {head.rows:,} of {head.whole:,} rows are evaluated ({head.source}), and"
                f" {describe_head_difference(head)}",
                "shuffle the rows before the cut (shuffle(seed=0)), or evaluate all of them; report a score for each"
                f" {'kind' if head.lengths else 'label' if is_label_column(head.column) else head.column}",
                cases=[case_of_node(module, head.node)],
            )
            return
