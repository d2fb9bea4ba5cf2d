"""A softmax or argmax of a model's logits is taken over the rows or tokens, and not over the classes.

## What it does
Looks at `softmax`, `log_softmax` and `argmax` of `.logits` with an explicit `dim`. A sequence classifier returns logits
of shape (rows, classes), a language model and a token classifier (rows, tokens, classes). It fires if `dim` is not the
last of these.

## Why it is bad
The probabilities of one class then add up to 1 over the batch: a row's score depends on the other rows and on the batch
size. There is no error, since every axis can be reduced.

## Example
```python
import torch
from transformers import AutoModelForSequenceClassification

model = AutoModelForSequenceClassification.from_pretrained("out").eval()
with torch.no_grad():
    logits = model(**batch).logits
probabilities = torch.softmax(logits, dim=0)
```

## Use instead
```python
import torch
from transformers import AutoModelForSequenceClassification

model = AutoModelForSequenceClassification.from_pretrained("out").eval()
with torch.no_grad():
    logits = model(**batch).logits
probabilities = torch.softmax(logits, dim=-1)
```

## Fix safety
There is no automatic fix: the axis may be intended after a reshape that the rule can't see. Scores change, so compute
earlier ones again.

## References
- graviraja/MLOps-Basics#29, Lackel/DPN#1, MicrosoftDocs/pytorchfundamentals#21
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
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

FUNCTIONS = (
    "torch.softmax",
    "torch.log_softmax",
    "torch.argmax",
    "torch.nn.functional.softmax",
    "torch.nn.functional.log_softmax",
)
METHODS = ("softmax", "log_softmax", "argmax")
AXES = {
    2: re.compile(r"For(Sequence|Image|Audio)Classification"),
    3: re.compile(r"For(CausalLM|TokenClassification|MaskedLM|Seq2SeqLM)"),
}
"""Number of axes of the logits -> classes of models that give such"""
OVER = {0: "the rows of the batch", 1: "the tokens of a row"}


class WrongAxis(NamedTuple):
    """A reduction of logits over another axis than the classes."""

    call: Call
    logits: ast.expr
    axis: int


def reductions_of_logits(module: Module) -> Iterator[tuple[Call, ast.expr, int, int]]:
    """The reductions of a model's logits: the call, the logits, their number of axes, and the axis that is taken."""
    calls = [*module.calls(*FUNCTIONS), *module.methods(*METHODS)]
    for call in calls:
        is_method = call.method in METHODS
        logits = call.receiver if is_method else call.argument(0, "input")
        axis = module.flow.value(call.argument(0 if is_method else 1, "dim"))
        if logits is None or not isinstance(axis, int) or isinstance(axis, bool):
            continue
        axes = _axis_count_of_logits(module, logits)
        if axes is not None:
            yield call, logits, axes, axis


def reductions_over_wrong_axes(module: Module) -> Iterator[WrongAxis]:
    """The reductions that go over another axis than the last."""
    for call, logits, axes, axis in reductions_of_logits(module):
        taken = axis if axis >= 0 else axes + axis
        # torch stops at an axis that is not there.
        if 0 <= taken < axes - 1:
            yield WrongAxis(call, logits, taken)


def _axis_count_of_logits(module: Module, logits: ast.expr) -> int | None:
    """How many axes the logits of a known model have; None for anything else."""
    counts = {
        _axis_count_of_logits_origin(module, origin.node) for origin in module.flow.origins(logits)
    }
    return counts.pop() if len(counts) == 1 else None


def _axis_count_of_logits_origin(module: Module, node: ast.AST) -> int | None:
    """The axes of one origin of logits: `model(**batch).logits`, also without some of its tokens."""
    if isinstance(node, ast.Subscript):
        return _axis_count_of_logits(module, node.value) if _keeps_axes(node.slice) else None
    if not isinstance(node, ast.Attribute) or node.attr != "logits":
        return None
    output = module.flow.producing_call(node.value)
    call = module.flow.producing_call(output.node.func) if output is not None else None
    return _axis_count_of_model_logits(module, call.node) if call is not None else None


def _keeps_axes(index: ast.expr) -> bool:
    """Does an index keep the axes of a tensor? Slices do, `[:, -1]` takes one away."""
    if not isinstance(index, ast.Tuple):
        return False
    return all(isinstance(one, ast.Slice) for one in index.elts)


def _axis_count_of_model_logits(module: Module, made: ast.Call) -> int | None:
    """The axes of the logits of a model, by the class that makes it."""
    # `Model.from_pretrained(path).to("cuda").eval()` has the class inside.
    calls = (one for one in ast.walk(made) if isinstance(one, ast.Call))
    names = [name for call in calls for name in module.flow.call(call).names]
    for axes, classes in AXES.items():
        if any(map(classes.search, names)):
            return axes
    return None


class SoftmaxOverTheWrongAxis(SourceRule):
    code = "SRC472"
    fault = Fault.LOSS_COMPUTED_FROM_WRONG_VALUES
    symptoms = ("odd-metrics",)
    severity = "error"
    looks_at = CodePlaces("softmax and argmax of a model's logits", reductions_of_logits)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for wrong in reductions_over_wrong_axes(module):
            yield self.finding(
                f"the logits are reduced over {OVER[wrong.axis]}, not over the classes, which are the last axis: a"
                " row's result depends on other rows or tokens",
                "set dim=-1",
                cases=[case_of_node(module, wrong.call.node), case_of_node(module, wrong.logits)],
            )
