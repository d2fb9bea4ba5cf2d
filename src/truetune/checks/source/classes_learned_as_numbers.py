"""A classifier has one output, so its class numbers are learned as amounts (regression).

## What it does
Inspects a model for sequence classification that is loaded with `num_labels=1`, in a script whose labels are positions
in a list or table of three or more classes (`LABELS.index(...)`, `label2id[...]`). Not reported: ordered classes
(grades, numbers, low and high), a script that measures a regression, and one that sets `problem_type`. Whatever the
labels are, it reports an argmax or a softmax over the one output: in `compute_metrics`, or on `.logits`.

## Why it is bad
With one output transformers computes the mean squared error. The model learns that class 3 is three times class 1. Its
predictions end up between the classes, and argmax over one output is always class 0.

## Example
```python
from transformers import AutoModelForSequenceClassification

LABELS = ["billing", "bug", "login"]
model = AutoModelForSequenceClassification.from_pretrained("model", num_labels=1)


def encode(row):
    return {"label": float(LABELS.index(row["label"]))}
```

## Use instead
```python
from transformers import AutoModelForSequenceClassification

LABELS = ["billing", "bug", "login"]
model = AutoModelForSequenceClassification.from_pretrained("model", num_labels=len(LABELS))


def encode(row):
    return {"label": LABELS.index(row["label"])}
```

## Fix safety
The labels must be integers as well: with floats transformers computes a multi-label loss. The head changes its shape,
so the model has to be trained again.

## References
- transformers, `problem_type` of sequence classification: "regression" where num_labels is 1
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
from truetune.checks.source.evidence.reductions_over_one_output import (
    reductions_over_one_output,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

LOADS = ("transformers.*ForSequenceClassification.from_pretrained",)
MIN_CLASSES = 3
"""Two classes have one distance: a regression tells them apart as well"""
ORDERED = re.compile(
    r"\d|^(?:very|low|mid|middle|medium|high|none|mild|moderate|severe|poor|fair|good|bad|excellent|negative|neutral"
    r"|positive|small|large|easy|hard|never|rarely|sometimes|often|always|strongly|agree|disagree|minor|major|critical"
    r"|normal|urgent)\b",
    re.I,
)
"""Names of classes that have an order"""
REGRESSION = re.compile(
    r"regression|mean_squared|\bmse\b|pearson|spearman|MSELoss|\br2_score", re.I
)


def _classifier_loads(module: Module) -> Iterator[Call]:
    """The loads of classifiers."""
    yield from module.calls(*LOADS)


class ClassesLearnedAsNumbers(SourceRule):
    code = "SRC289"
    fault = Fault.LOSS_COMPUTED_FROM_WRONG_VALUES
    symptoms = ("loss-does-not-fall", "odd-metrics")
    severity = "error"
    looks_at = CodePlaces("loads of classifiers", _classifier_loads)

    def findings(self) -> Iterator[Finding]:
        """Findings on classifiers with one output that learn the numbers of their classes as amounts."""
        module = self.subject
        yield from self._findings_on_argmax_over_one_output()
        if any(REGRESSION.search(part.text) for part in module.self_and_files_run_together):
            return
        calls = [
            call for call in _classifier_loads(module) if _has_one_output_and_no_loss(module, call)
        ]
        numbers = _labels_that_number_classes(module) if calls else ()
        place, names = next((one for one in numbers if _are_unordered_classes(one[1])), (None, []))
        if place is None:
            return
        for call in calls:
            yield self.finding(
                f"num_labels is 1, but the labels are numbers of {len(names)} classes: the model learns them as"
                " amounts, with a mean squared error",
                f"set num_labels={len(names)}, and make the labels integers (int, not float)",
                cases=[case_of_node(module, call.node), case_of_node(module, place)],
            )

    def _findings_on_argmax_over_one_output(self) -> Iterator[Finding]:
        """Findings on an argmax or a softmax over one output, which is the same for each row."""
        module = self.subject
        for one in reductions_over_one_output(module):
            always = "class 0" if one.kind == "argmax" else "1.0"
            yield self.finding(
                f"num_labels is 1, and the {one.kind} over this one output is {always} for every row, whatever the"
                " model learned",
                "set num_labels to the number of classes, with integers as labels; or keep the one output and"
                " compare it with a threshold instead",
                cases=[case_of_node(module, one.call.node), case_of_node(module, one.load.node)],
            )


def _has_one_output_and_no_loss(module: Module, call: Call) -> bool:
    """Is a classifier loaded with one output, and nothing that says what its loss is?"""
    count = module.flow.value(call.keywords.get("num_labels"))
    is_one = count == 1 and not isinstance(count, bool)
    return is_one and not call.open and "problem_type" not in call.keywords


def _are_unordered_classes(names: list[str]) -> bool:
    """Are these names of several classes of which none says that they have an order?"""
    return len(names) >= MIN_CLASSES and not any(map(ORDERED.search, names))


def _labels_that_number_classes(module: Module) -> Iterator[tuple[ast.AST, list[str]]]:
    """Labels that are the number of a class, each with the names of the classes."""
    for value in _values_of_label_columns(module):
        for node in ast.walk(value):
            table = None
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                table = node.func.value if node.func.attr == "index" else None
            elif isinstance(node, ast.Subscript):
                table = node.value
            names = _names_of_classes(module, table) if table is not None else []
            if names:
                yield node, names


def _values_of_label_columns(module: Module) -> Iterator[ast.expr]:
    """What is written to a column of labels."""
    for node in module.nodes(ast.Dict, ast.Assign):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value in ("label", "labels"):
                    yield value
        elif isinstance(node, ast.Assign):
            target = node.targets[0]
            key = target.slice if isinstance(target, ast.Subscript) else None
            if isinstance(key, ast.Constant) and key.value in ("label", "labels"):
                yield node.value


def _names_of_classes(module: Module, table: ast.expr) -> list[str]:
    """The names in a list of classes, or the keys of a table of their numbers."""
    for origin in module.flow.origins(table):
        node = origin.node
        if isinstance(node, ast.DictComp):
            # `{name: number for number, name in enumerate(NAMES)}`
            origins = module.flow.origins(_unwrap_enumerate(node.generators[0].iter))
            parts = [part for one in origins for part in _list_elements_or_table_keys(one.node)]
        else:
            parts = _list_elements_or_table_keys(node)
        names = [p.value for p in parts if isinstance(p, ast.Constant) and isinstance(p.value, str)]
        if names and len(names) == len(parts):
            return names
    return []


def _list_elements_or_table_keys(node: ast.AST) -> list[ast.expr | None]:
    """The elements of a list that the file writes down, or the keys of a table of numbers."""
    if isinstance(node, (ast.List, ast.Tuple)):
        return list(node.elts)
    if not isinstance(node, ast.Dict):
        return []
    is_numbers = all(
        isinstance(value, ast.Constant) and isinstance(value.value, (int, float))
        for value in node.values
    )
    return list(node.keys) if is_numbers else []


def _unwrap_enumerate(node: ast.expr) -> ast.expr:
    """x of `enumerate(x)`; the node itself where it is no such call."""
    return node.args[0] if isinstance(node, ast.Call) and node.args else node
