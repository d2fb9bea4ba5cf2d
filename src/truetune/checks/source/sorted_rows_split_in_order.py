"""Sorted rows are split without a shuffle: some labels occur only in the test part.

## What it does
Looks for splits in file order (`train_test_split(shuffle=False)` of datasets and scikit-learn, `rows[:n]` and
`rows[n:]`) whose file is next to the script, repeats the split on its rows, and reports the values of a column that
only the test part has. It does not fire if anything filters, sorts or shuffles the rows before.

It also fires without the file if the script itself puts the rows into the order of their classes: a loop over classes
that fills the list, `[1] * len(good) + [0] * len(bad)`, or a sort by the label.

## Why it is bad
The model is tested on labels that it was never trained on, and trained on labels that are never tested. The evaluation
is bad whatever it learned, and says nothing about the other labels.

## Example
```python
from datasets import Dataset

rows = [
    {"text": "text 0", "label": "good"},
    {"text": "text 1", "label": "good"},
    {"text": "text 2", "label": "good"},
    {"text": "text 3", "label": "good"},
    {"text": "text 4", "label": "good"},
    {"text": "text 5", "label": "good"},
    {"text": "text 6", "label": "good"},
    {"text": "text 7", "label": "good"},
    {"text": "text 8", "label": "good"},
    {"text": "text 9", "label": "bad"},
    {"text": "text 10", "label": "bad"},
    {"text": "text 11", "label": "bad"},
]
parts = Dataset.from_list(rows).train_test_split(test_size=0.25, shuffle=False)
```

## Use instead
```python
from datasets import Dataset

rows = [
    {"text": "text 0", "label": "good"},
    {"text": "text 1", "label": "good"},
    {"text": "text 2", "label": "good"},
    {"text": "text 3", "label": "good"},
    {"text": "text 4", "label": "good"},
    {"text": "text 5", "label": "good"},
    {"text": "text 6", "label": "good"},
    {"text": "text 7", "label": "good"},
    {"text": "text 8", "label": "good"},
    {"text": "text 9", "label": "bad"},
    {"text": "text 10", "label": "bad"},
    {"text": "text 11", "label": "bad"},
]
parts = Dataset.from_list(rows).train_test_split(test_size=0.25, shuffle=True, seed=0)
```

## Fix safety
There is no automatic fix: the test rows change, so earlier scores can't be compared. If the last rows are held out on
purpose (later dates, other documents), ignore this line.

## References
- scikit-learn, `train_test_split` (`stratify`, `shuffle`); huggingface/datasets, `Dataset.train_test_split`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.splits_of_rows_in_class_order import (
    SplitInClassOrder,
    splits_in_class_order,
)
from truetune.checks.source.evidence.unshuffled_splits_of_sorted_rows import (
    splits_with_class_in_test_only,
)
from truetune.errors import format_name_list
from truetune.source.parsed_source_file import Module

MAX_SHOWN = 5
"""Labels that a message names"""


def _possible_splits(module: Module) -> Iterator[ast.AST]:
    """Places that may split rows in two."""
    for call in module.all_calls:
        if call.method == "train_test_split" or call.named("sklearn.*.train_test_split"):
            yield call.node
    yield from module.nodes(ast.Slice)


class SortedRowsSplitInOrder(SourceRule):
    code = "SRC182"
    fault = Fault.EVALUATION_ROWS_NOT_REPRESENTATIVE
    symptoms = ("odd-metrics",)
    severity = "warning"
    looks_at = CodePlaces("splits of rows", _possible_splits)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        known: set[ast.AST] = set()
        for split in splits_with_class_in_test_only(module):
            known.add(split.node)
            shown = format_name_list([repr(one) for one in split.only_in_test[:MAX_SHOWN]])
            more = len(split.only_in_test) - MAX_SHOWN
            rest = f" and {more:,} more" if more > 0 else ""
            yield self.finding(
                f"{split.source} is sorted by `{split.column}` and split in this order: {shown}{rest} only in the"
                f" {split.test_rows:,} test rows, so the model is never trained on them",
                f"shuffle before the split (shuffle=True, seed=0), or stratify by `{split.column}`",
                cases=[case_of_node(module, split.node)],
            )
        for ordered in splits_in_class_order(module):
            if ordered.node not in known:
                yield self._finding_on_class_order(ordered)

    def _finding_on_class_order(self, split: SplitInClassOrder) -> Finding:
        """The finding on rows that the script itself puts into the order of their classes."""
        module = self.subject
        cases = [case_of_node(module, split.node)]
        if split.ordered is not None and module.holds(split.ordered):
            cases.append(case_of_node(module, split.ordered))
        more = len(split.classes) - MAX_SHOWN
        rest = f" and {more:,} more" if more > 0 else ""
        shown = ", then ".join(split.classes[:MAX_SHOWN])
        order = f"class by class ({shown}{rest})" if split.classes else "sorted by their label"
        return self.finding(
            f"the rows are {order} and split in this order: the test part has rows of the last class or classes alone,"
            " and the training too few of them or none",
            "shuffle before the split (shuffle=True, random_state=0), or stratify by the label",
            cases=cases,
        )
