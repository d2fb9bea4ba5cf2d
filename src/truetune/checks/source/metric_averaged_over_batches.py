"""A metric that is not a mean over rows is computed for each batch, and the batches' values are averaged.

## What it does
Finds, in loops over a loader or over batches, metrics that don't average over rows: F1, precision, recall,
correlations, areas under a curve, corpus BLEU. It fires if the values of the batches are collected or added up and
averaged, and if `validation_step` logs such a value, which Lightning averages. Loaders of single rows, and those of
episodes, tasks, queries or documents, each of which has its own value, are not reported.

## Why it is bad
A batch of 16 has few positives, or none of a class, and its F1 is often 0 or 1. The mean of such values differs from
the F1 of all rows. It is mostly lower, and changes with the batch size and the order of the rows.

## Example
```python
from sklearn.metrics import f1_score
from torch.utils.data import DataLoader

loader = DataLoader(rows, batch_size=16)
scores = []
for batch in loader:
    predicted = model(**batch).logits.argmax(-1)
    scores.append(f1_score(batch["labels"], predicted, average="macro"))
print(sum(scores) / len(scores))
```

## Use instead
```python
from sklearn.metrics import f1_score
from torch.utils.data import DataLoader

loader = DataLoader(rows, batch_size=16)
labels, predicted = [], []
for batch in loader:
    predicted += model(**batch).logits.argmax(-1).tolist()
    labels += batch["labels"].tolist()
print(f1_score(labels, predicted, average="macro"))
```

## Fix safety
There is no automatic fix. The score changes, and can't be compared with earlier ones of the same script.

## References
- thunlp/Few-NERD#2
- namiyousef/argument-mining#45
- emadeldeen24/AttnSleep#13
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.checks.examined_code_places import places_of_calls
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.terms_and_counts_of_means import mean_expressions
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

METRICS = (
    "sklearn.metrics.f1_score",
    "sklearn.metrics.fbeta_score",
    "sklearn.metrics.precision_score",
    "sklearn.metrics.recall_score",
    "sklearn.metrics.precision_recall_fscore_support",
    "sklearn.metrics.matthews_corrcoef",
    "sklearn.metrics.roc_auc_score",
    "sklearn.metrics.average_precision_score",
    "sklearn.metrics.cohen_kappa_score",
    "sklearn.metrics.balanced_accuracy_score",
    "sklearn.metrics.r2_score",
    "scipy.stats.pearsonr",
    "scipy.stats.spearmanr",
    "sacrebleu.corpus_bleu",
    "sacrebleu.corpus_chrf",
    "seqeval.metrics.f1_score",
    "nltk.translate.bleu_score.corpus_bleu",
)
LOADERS = ("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader")
BATCHES = re.compile(r"(?:loader|batches|_dl)\b", re.I)
"""Names of what gives batches"""
UNITS = re.compile(r"(?<![a-z])(?:episode|task|query|queries|user|doc|document)s?(?![a-z])", re.I)
"""Words for what has a metric of its own, of which a mean is meant"""
STEPS = ("validation_step", "test_step")


def _is_loop_over_batches(module: Module, loop: ast.AST) -> bool:
    """Does a loop go over the batches of a loader?"""
    if not isinstance(loop, ast.For | ast.AsyncFor) or UNITS.search(ast.unparse(loop.iter)):
        return False
    call = module.flow.producing_call(loop.iter)
    is_loader = call is not None and call.named(*LOADERS)
    if call is not None and is_loader and _gives_single_rows(module, call):
        return False
    return is_loader or BATCHES.search(ast.unparse(loop.iter)) is not None


def _gives_single_rows(module: Module, loader: Call) -> bool:
    """Does a loader give one row at a time, so that the mean is one over documents?"""
    size = loader.argument(1, "batch_size")
    return not loader.open and (size is None or module.flow.value(size) == 1)


class MetricAveragedOverBatches(SourceRule):
    code = "SRC526"
    fault = Fault.METRIC_AVERAGED_WRONGLY
    symptoms = ("odd-metrics",)
    severity = "warning"
    looks_at = places_of_calls("metrics that are no mean over rows", *METRICS)

    def findings(self) -> Iterator[Finding]:
        """Findings on metrics of batches of which a mean is taken."""
        module = self.subject
        averaged = {ast.unparse(mean.values): mean.node for mean in mean_expressions(module)}
        for call in module.calls(*METRICS):
            name = call.names[0].rpartition(".")[2]
            if _is_logged_by_lightning(module, call.node):
                yield self._finding(name, [call.node])
                continue
            if not any(_is_loop_over_batches(module, one) for one in module.parents(call.node)):
                continue
            for collector in _lists_and_sums_collecting_result(module, call.node):
                if collector in averaged:
                    yield self._finding(name, [call.node, averaged[collector]])
                    break

    def _finding(self, name: str, places: list[ast.AST]) -> Finding:
        """The finding on one metric."""
        return self.finding(
            f"{name} is computed for each batch and averaged over the batches, which differs from"
            f" the {name} of all rows",
            f"collect the predictions and labels of all batches, and compute {name} once after the loop",
            cases=[case_of_node(self.subject, one) for one in places],
        )


def _is_logged_by_lightning(module: Module, node: ast.AST) -> bool:
    """Does a step of a Lightning module log the metric, of which Lightning takes the mean over batches?"""
    function = module.function_around(node)
    owner = module.flow.class_around(node)
    if function is None or owner is None or function.name not in STEPS:
        return False
    if not any(base.endswith("LightningModule") for base in module.flow.bases(owner)):
        return False
    names = _names_assigned_from_call(module, node)
    return any(
        _contains_call_or_result_name(value, node, names) for value in _logged_values(function)
    )


def _logged_values(function: ast.AST) -> Iterator[ast.expr]:
    """The values that a function gives to `self.log`, each behind its name."""
    for call in ast.walk(function):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "self.log":
            yield from call.args[1:2]


def _names_assigned_from_call(module: Module, node: ast.AST) -> set[str]:
    """The names that the statement around a call sets."""
    statement = module.statement(node)
    if not isinstance(statement, ast.Assign):
        return set()
    return {
        one.id
        for target in statement.targets
        for one in ast.walk(target)
        if isinstance(one, ast.Name)
    }


def _lists_and_sums_collecting_result(module: Module, node: ast.AST) -> Iterator[str]:
    """The lists and sums that get the result of a call, as they are written."""
    names = _names_assigned_from_call(module, node)
    function = module.function_around(node)
    around = function if function is not None else module.statement(node)
    body = ast.walk(function) if function is not None else iter(module.order)
    if around is None:
        return
    for one in body:
        for collector, value in _collectors_and_added_values(one):
            if _contains_call_or_result_name(value, node, names):
                yield ast.unparse(collector)


def _collectors_and_added_values(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The sum or the list that a statement or a call adds to, with what it adds; nothing for others."""
    if isinstance(node, ast.AugAssign):
        yield node.target, node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr == "append" and node.args:
            yield node.func.value, node.args[0]


def _contains_call_or_result_name(value: ast.expr, node: ast.AST, names: set[str]) -> bool:
    """Does an expression hold a call, or a name of its result?"""
    return any(
        one is node or (isinstance(one, ast.Name) and one.id in names) for one in ast.walk(value)
    )
