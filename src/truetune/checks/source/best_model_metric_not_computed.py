"""The best model is to be picked by a metric that no evaluation returns.

## What it does
Runs the script symbolically, and compares `metric_for_best_model` with what an evaluation of its `Trainer` returns: the
loss, what `compute_metrics` returns, and with several evaluation sets the same with the set's name in front. Not
reported if some keys are unknown, or if a class of the project changes how the Trainer evaluates.

## Why it is bad
transformers looks up the metric after the first evaluation, does not find it, and stops with a KeyError: the steps up
to there are lost.

## Example
```python
from transformers import Trainer, TrainingArguments


def score(pair):
    return {"accuracy": (pair.predictions.argmax(-1) == pair.label_ids).mean()}


args = TrainingArguments(
    "out",
    eval_strategy="epoch",
    save_strategy="epoch",
    load_best_model_at_end=True,
    metric_for_best_model="f1",
)
trainer = Trainer(model, args, train_dataset=rows, eval_dataset=held_out, compute_metrics=score)
trainer.train()
```

## Use instead
```python
from transformers import Trainer, TrainingArguments


def score(pair):
    return {"accuracy": (pair.predictions.argmax(-1) == pair.label_ids).mean()}


args = TrainingArguments(
    "out",
    eval_strategy="epoch",
    save_strategy="epoch",
    load_best_model_at_end=True,
    metric_for_best_model="accuracy",
)
trainer = Trainer(model, args, train_dataset=rows, eval_dataset=held_out, compute_metrics=score)
trainer.train()
```

## Fix safety
There is no automatic fix: either the metric is misspelled, or compute_metrics does not return it.

## References
- transformers `Trainer._determine_best_metric`
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from truetune.checks.examined_code_places import places_of_calls
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.best_metrics_not_computed import (
    TRAINERS,
    UncomputedMetric,
    uncomputed_best_metrics,
)
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node


class BestModelMetricNotComputed(SourceRule):
    code = "SRC170"
    fault = Fault.WRONG_CHECKPOINT_CHOSEN
    symptoms = ("odd-metrics",)
    severity = "error"
    looks_at = places_of_calls("trainers of transformers", *TRAINERS)

    def findings(self) -> Iterator[Finding]:
        """Findings on trainers whose best model is picked by a metric that no evaluation gives."""
        module = self.subject
        for uncomputed_metric in uncomputed_best_metrics(module):
            names = ", ".join(sorted(uncomputed_metric.known))
            yield self.finding(
                f"metric_for_best_model is {uncomputed_metric.metric}, which no evaluation returns: the Trainer"
                f" stops with a KeyError after the first one ({_metric_source_in_words(uncomputed_metric)})",
                _remedy(uncomputed_metric),
                evidence=[f"evaluations return: {names}"],
                cases=[case_of_node(module, node) for node in uncomputed_metric.nodes],
            )


def _metric_source_in_words(found: UncomputedMetric) -> str:
    """Where the metrics of a trainer come from, for a message."""
    if found.has_several_sets:
        return "with several evaluation sets, each metric's name begins with the name of its set"
    if not found.has_function:
        return "without compute_metrics it only returns the loss"
    return "compute_metrics does not return it"


def _remedy(found: UncomputedMetric) -> str:
    """The remedy: what makes the name one of those that are given."""
    closest = difflib.get_close_matches(found.metric, sorted(found.known), n=1)
    if closest:
        return f'set metric_for_best_model="{closest[0]}"'
    if not found.has_function:
        return (
            f'give the Trainer a compute_metrics that returns "{found.metric}", or set'
            ' metric_for_best_model="eval_loss"'
        )
    return f'return "{found.metric}" from compute_metrics, or set metric_for_best_model to one that it returns'
