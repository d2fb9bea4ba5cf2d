"""Rows are repeated or augmented before they are divided: copies of evaluation rows are trained on.

## What it does
Traces the rows that a script splits (`train_test_split`, `random_split`, `rows[:n]` and `rows[n:]`, the folds of
sklearn) back to the file that they are read from. It fires if on the way they were sampled with replacement
(`random.choices`, `sample(replace=True)`, `sklearn.utils.resample`), added by an oversampler of imblearn, taken several
times (`rows * 3`, `concat([a, b, b])`, `repeat`), or joined with rows that a call makes of them. It also fires if texts
are cut into overlapping windows (a stride below the length, `return_overflowing_tokens` with a stride,
`chunk_overlap`), and these are split at random. It does not fire if copies are removed again, or if folds keep groups
together.

## Why it is bad
A copy of an evaluation row is in the training rows. The score is near 1 for a model that has memorised them, and falls
on new rows. The rarest classes, which are repeated most, seem the best.

## Example
```python
import json
import random

rows = [json.loads(line) for line in open("tickets.jsonl")]
rare = [row for row in rows if row["label"] == "refund"]
rows += random.choices(rare, k=500)
random.shuffle(rows)
cut = int(0.9 * len(rows))
train, val = rows[:cut], rows[cut:]
```

## Use instead
```python
import json
import random

rows = [json.loads(line) for line in open("tickets.jsonl")]
random.shuffle(rows)
cut = int(0.9 * len(rows))
train, val = rows[:cut], rows[cut:]
rare = [row for row in train if row["label"] == "refund"]
train += random.choices(rare, k=500)
```

## Fix safety
There is no automatic fix. The evaluation rows then have their natural class shares, and lower scores, which are those
to expect on new rows. Don't evaluate a model that was trained on the leaked rows with them.

## References
- imbalanced-learn, "Common pitfalls and recommended practices": data leakage
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.overlapping_windows_split_at_random import (
    random_divisions_of_windows,
)
from truetune.checks.source.evidence.rows_duplicated_before_split import (
    FOLDS,
    SPLITTERS,
    divisions_of_repeated_rows,
)
from truetune.checks.source.evidence.shared_rows_of_data_sets import (
    common_division_and_earlier_repetition,
)
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)

TRAINERS = ("transformers.*Trainer", "trl.*Trainer", "unsloth.*Trainer")


def _places_that_divide_rows(module: Module) -> Iterator[ast.AST]:
    """Places that divide rows."""
    for call in (*module.calls(*SPLITTERS, *FOLDS), *module.methods("train_test_split", "drop")):
        yield call.node
    yield from module.nodes(ast.Slice)


class RowsRepeatedBeforeTheSplit(SourceRule):
    code = "SRC348"
    fault = Fault.EVALUATION_ROWS_IN_TRAINING_DATA
    symptoms = ("odd-metrics", "good-here-bad-there")
    severity = "warning"
    looks_at = CodePlaces("divisions of rows", _places_that_divide_rows)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if not any(_places_that_divide_rows(module)):
            return
        known = _divisions_reported_by_another_rule(module)
        for repeated_rows in divisions_of_repeated_rows(module):
            if repeated_rows.division in known:
                continue
            yield self.finding(
                f"{repeated_rows.what}, and the rows are split after that: copies of one row are trained on and"
                " evaluated on",
                "split the rows first, and repeat only rows of the training part",
                cases=[
                    case_of_node(module, repeated_rows.division),
                    case_of_node(module, repeated_rows.repeat),
                ],
            )
        for windows in random_divisions_of_windows(module):
            yield self.finding(
                f"a text is cut into overlapping windows ({windows.what}), and these are split at random: most"
                " evaluation windows overlap with training windows",
                "split the documents first, and cut each part into windows separately",
                cases=[case_of_node(module, windows.division), case_of_node(module, windows.cut)],
            )


def _divisions_reported_by_another_rule(module: Module) -> set[ast.AST]:
    """The divisions that another rule names, by what a trainer is given (evaluated-on-training-rows)."""
    known: set[ast.AST] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        for trainer in trace.calls(*TRAINERS):
            train, held = (trainer.keywords.get(name) for name in ("train_dataset", "eval_dataset"))
            if train is not None and held is not None:
                found = common_division_and_earlier_repetition(train, held)
                known |= set() if found is None else {found[0].node}
    return known
