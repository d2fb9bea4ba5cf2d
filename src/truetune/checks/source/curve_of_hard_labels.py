"""The area under a curve is computed from predicted classes instead of scores.

## What it does
Looks at `roc_auc_score`, `average_precision_score`, `roc_curve` and `precision_recall_curve` of scikit-learn, and at
the ROC AUC of evaluate. It fires if the scores that they get come from `argmax`, `round` or a comparison with a
threshold. Probabilities, logits and margins, and scores that can't be followed, are not reported.

## Why it is bad
A curve covers all thresholds. With classes it has one point, and its area is the mean of sensitivity and specificity at
that threshold: far below the AUC of the same model, and not comparable with published values. As the metric of the best
checkpoint it compares one threshold only.

## Example
```python
import numpy as np
from sklearn.metrics import roc_auc_score

def compute_metrics(prediction):
    logits, labels = prediction
    classes = np.argmax(logits, axis=1)
    return {"auc": roc_auc_score(labels, classes)}
```

## Use instead
```python
import numpy as np
from sklearn.metrics import roc_auc_score

def compute_metrics(prediction):
    logits, labels = prediction
    margin = logits[:, 1] - logits[:, 0]
    return {"auc": roc_auc_score(labels, margin)}
```

## Fix safety
There is no automatic fix: the rule can't know which column is the positive class. Reported values rise, and earlier
ones can't be compared with them.

## References
- scikit-learn documentation, `roc_auc_score`: `y_score`, target scores
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.is_class_decision_not_score import node_deciding_class_of_value
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

CURVES = (
    "sklearn.metrics.roc_auc_score",
    "sklearn.metrics.average_precision_score",
    "sklearn.metrics.roc_curve",
    "sklearn.metrics.precision_recall_curve",
)


def _curve_calls_and_scores(module: Module) -> Iterator[tuple[Call, ast.expr]]:
    """The calls that compute a curve or its area, with the scores that they are given."""
    for call in module.calls(*CURVES):
        scores = call.argument(1, "y_score")
        scores = call.keywords.get("probas_pred") if scores is None else scores
        if scores is not None:
            yield call, scores
    for call in module.methods("compute", "add_batch"):
        # The ROC AUC of evaluate is the one metric with this argument.
        scores = call.keywords.get("prediction_scores")
        if scores is not None:
            yield call, scores


def _curve_calls(module: Module) -> Iterator[ast.AST]:
    """The calls that compute a curve or its area."""
    return (call.node for call, _ in _curve_calls_and_scores(module))


class CurveOfHardLabels(SourceRule):
    code = "SRC407"
    fault = Fault.METRIC_GETS_WRONG_INPUTS
    severity = "error"
    looks_at = CodePlaces("curves over thresholds, and their areas", _curve_calls)

    def findings(self) -> Iterator[Finding]:
        """Findings on areas under curves that are computed from predicted classes instead of scores."""
        module = self.subject
        for call, scores in _curve_calls_and_scores(module):
            decision = node_deciding_class_of_value(module, scores)
            if decision is None:
                continue
            yield self.finding(
                f"{module.text_of(call.node.func)} gets predicted classes instead of scores: its curve has only one"
                " point, and its value is far below the model's",
                "pass the probability or logit of the positive class (with two logits: logits[:, 1] - logits[:, 0])",
                cases=[case_of_node(module, call.node), case_of_node(module, decision)],
            )
