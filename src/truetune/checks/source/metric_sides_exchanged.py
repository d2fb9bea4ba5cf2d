"""A metric gets the predictions as references and the references as predictions.

## What it does
Looks at the first two arguments of scikit-learn's precision, recall, F-beta, reports and confusion matrices, which are
the true labels and then the predictions, and at `predictions=` and `references=` of evaluate. It fires if the names (or
the fields that the values are read from) say that they are swapped. It does not report accuracy or unweighted F1, which
are the same both ways, or names that say neither.

## Why it is bad
Precision and recall are swapped, a weighted F1 is weighted by what the model predicts, and a report counts predictions
as support. Nothing fails, and the numbers look plausible.

## Example
```python
from sklearn.metrics import precision_score

preds = [row["prediction"] for row in rows]
labels = [row["label"] for row in rows]
print(precision_score(preds, labels, pos_label="spam"))
```

## Use instead
```python
from sklearn.metrics import precision_score

preds = [row["prediction"] for row in rows]
labels = [row["label"] for row in rows]
print(precision_score(labels, preds, pos_label="spam"))
```

## Fix safety
There is no automatic fix, since the names may be the wrong part. Swapping the arguments changes the scores; compute
those of earlier runs again before you compare.

## References
- scikit-learn documentation, `precision_score(y_true, y_pred)`
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.row_field_reads import field_name_read
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module
from truetune.source.shorten_qualified_names import spelling_of_variable

SCORES = (
    "sklearn.metrics.precision_score",
    "sklearn.metrics.recall_score",
    "sklearn.metrics.fbeta_score",
    "sklearn.metrics.classification_report",
    "sklearn.metrics.confusion_matrix",
    "sklearn.metrics.precision_recall_fscore_support",
)
WEIGHTED_SCORES = ("sklearn.metrics.f1_score", "sklearn.metrics.jaccard_score")
"""The same both ways, unless classes are weighted by their number of true rows"""
SYMMETRIC = (
    "accuracy",
    "exact_match",
    "matthews_correlation",
    "pearsonr",
    "spearmanr",
    "mse",
    "mae",
)
"""Metrics of evaluate that are the same both ways"""
PREDICTED = re.compile(r"pred|guess|y_hat|yhat|hypothes|\bhyps?\b|generated", re.I)
TRUE = re.compile(r"gold|true|truth|reference|\brefs?\b|target|label|y_test", re.I)


class MetricSides(NamedTuple):
    """The two sides of a score, as the metric takes them."""

    call: Call
    true: ast.expr
    predicted: ast.expr


def _sides_of_asymmetric_scores(module: Module) -> Iterator[MetricSides]:
    """The scores whose sides are not alike."""
    weighted = (
        call
        for call in module.calls(*WEIGHTED_SCORES)
        if module.flow.value(call.keywords.get("average")) == "weighted"
    )
    for call in (*module.calls(*SCORES), *weighted):
        true, predicted = call.argument(0, "y_true"), call.argument(1, "y_pred")
        if true is not None and predicted is not None:
            yield MetricSides(call, true, predicted)
    for call in module.methods("compute", "add_batch"):
        true, predicted = call.keywords.get("references"), call.keywords.get("predictions")
        if true is not None and predicted is not None and not _is_symmetric(module, call):
            yield MetricSides(call, true, predicted)


def _is_symmetric(module: Module, call: Call) -> bool:
    """Is the call of a metric of `evaluate` that is the same both ways?"""
    loaded = module.flow.producing_call(call.receiver)
    name = None if loaded is None else module.flow.value(loaded.argument(0, "path"))
    return name in SYMMETRIC


def _asymmetric_score_calls(module: Module) -> Iterator[ast.AST]:
    """The calls that compute a score whose sides are not alike."""
    return (sides.call.node for sides in _sides_of_asymmetric_scores(module))


class MetricSidesExchanged(SourceRule):
    code = "SRC410"
    fault = Fault.METRIC_GETS_WRONG_INPUTS
    severity = "warning"
    looks_at = CodePlaces("scores of true labels and predictions", _asymmetric_score_calls)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for sides in _sides_of_asymmetric_scores(module):
            if not _names_wanted_side_only(module, sides.true, PREDICTED, TRUE):
                continue
            if not _names_wanted_side_only(module, sides.predicted, TRUE, PREDICTED):
                continue
            yield self.finding(
                f"{module.text_of(sides.call.node.func)} gets `{module.text_of(sides.true)}` as the true labels and"
                f" `{module.text_of(sides.predicted)}` as the predictions: precision and recall are swapped",
                "swap the two arguments (scikit-learn takes the true labels first)",
                cases=[case_of_node(module, sides.call.node)],
            )


def _names_wanted_side_only(
    module: Module, side: ast.expr, wanted: re.Pattern[str], other: re.Pattern[str]
) -> bool:
    """Does the name of a value say one thing, and neither it nor the fields that it is read from the other?"""
    name = spelling_of_variable(side)
    if name is None:
        return False
    texts = [name, *_row_fields_read_into_list(module, side)]
    return wanted.search(name) is not None and not any(other.search(text) for text in texts)


def _row_fields_read_into_list(module: Module, side: ast.expr) -> Iterator[str]:
    """The fields of rows that a list is made of."""
    for origin in module.flow.origins(side):
        if isinstance(origin.node, ast.expr):
            for part in ast.walk(origin.node):
                field = field_name_read(part)
                if field is not None:
                    yield field
