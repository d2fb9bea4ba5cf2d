"""A field score loops over the prediction's fields: fields that the model omits are not counted.

## What it does
Looks at loops and comprehensions over the items or keys of a prediction (`for key, value in pred.items()`) that look
each field up in the reference and count it, if that count is the denominator of the score. It does not fire if the
score is called a precision, if the file also loops over the fields of the reference, or if the prediction was filled
with all fields before. Names decide which of the two is the model's.

## Why it is bad
A field that the model omits counts neither as wrong nor in the total. The score is the precision of the fields that
were written: a model that gives one certain field of eight scores 100 %. Reported as accuracy, it hides the missing
fields.

## Example
```python
import json

correct, total = 0, 0
for row in rows:
    gold = json.loads(row["reference"])
    pred = json.loads(row["prediction"])
    for key, value in pred.items():
        correct += value == gold.get(key)
        total += 1
print(f"field accuracy: {correct / total:.3f}")
```

## Use instead
```python
import json

correct, total = 0, 0
for row in rows:
    gold = json.loads(row["reference"])
    pred = json.loads(row["prediction"])
    for key, value in gold.items():
        correct += pred.get(key) == value
        total += 1
print(f"field accuracy: {correct / total:.3f}")
```

## Fix safety
There is no automatic fix. The score changes, and can't be compared with earlier ones of the same script.

## References
- Chinchor 1992, MUC-4 Evaluation Metrics: slots that are missing count in recall, spurious ones in precision
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.scores_ignoring_omitted_fields import (
    scores_over_predicted_fields_only,
)
from truetune.source.parsed_source_file import Module


def _loops_over_fields(module: Module) -> Iterator[ast.AST]:
    """Loops over the fields of a mapping, and the places that are found."""
    for loop in module.nodes(ast.For):
        view = loop.iter.func if isinstance(loop.iter, ast.Call) else None
        if isinstance(view, ast.Attribute) and view.attr in ("items", "keys"):
            yield loop
    yield from (score.node for score in scores_over_predicted_fields_only(module))


class ScoreSkipsFieldsLeftOut(SourceRule):
    code = "SRC313"
    fault = Fault.WRONG_ANSWERS_COUNTED_RIGHT
    symptoms = ("odd-metrics",)
    severity = "warning"
    looks_at = CodePlaces("loops over fields", _loops_over_fields)

    def findings(self) -> Iterator[Finding]:
        for score in scores_over_predicted_fields_only(self.subject):
            yield self.finding(
                f"the score loops over the fields of `{score.given}`: a field that the model omits counts neither as"
                f" wrong nor in `{score.counter}`, so the score is a precision, not an accuracy",
                f"loop over the fields of the reference: for key in {score.reference}, and count"
                f" {score.given}.get(key) == {score.reference}[key]; or name the score precision",
                cases=[case_of_node(self.subject, score.node)],
            )
