"""Cross-entropy is given probabilities: softmax is applied twice.

## What it does
Follows what `cross_entropy` and `binary_cross_entropy_with_logits` (or their classes) get as input. It fires where
that is the result of `softmax` or `sigmoid`, or of a model of the file whose `forward` returns nothing else.

## Why it is bad
`cross_entropy` applies log-softmax by itself. Of probabilities, which lie between 0 and 1, it can't fall below
ln(1 + (n - 1) / e): 0.31 for two classes, 0.74 for four, 6.9 for 1,000. Gradients shrink with it, so that the loss
hardly moves from ln n, with any learning rate.

## Example
```python
import torch
import torch.nn.functional as F
from transformers import AutoModelForSequenceClassification

model = AutoModelForSequenceClassification.from_pretrained("model")
for batch, labels in batches:
    scores = torch.softmax(model(**batch).logits, dim=-1)
    F.cross_entropy(scores, labels).backward()
```

## Use instead
```python
import torch
import torch.nn.functional as F
from transformers import AutoModelForSequenceClassification

model = AutoModelForSequenceClassification.from_pretrained("model")
for batch, labels in batches:
    F.cross_entropy(model(**batch).logits, labels).backward()
```

## Fix safety
Safe: take softmax where probabilities are read, behind the loss.

## References
- https://docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html ("unnormalized logits")
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes import case_at
from truetune.source.module import Module

LOSS_FUNCTIONS = (
    "torch.nn.functional.cross_entropy",
    "torch.nn.functional.binary_cross_entropy_with_logits",
)
LOSS_CLASSES = ("torch.nn.CrossEntropyLoss", "torch.nn.BCEWithLogitsLoss")
SQUASHING_FUNCTIONS = (
    "torch.softmax",
    "torch.sigmoid",
    "torch.nn.functional.softmax",
    "torch.nn.functional.sigmoid",
)
SQUASHING_LAYERS = ("torch.nn.Softmax", "torch.nn.Sigmoid")
SQUASHING_METHODS = ("softmax", "sigmoid")
"""The same as methods of tensors"""
MOVING_METHODS = ("cuda", "to", "cpu", "train", "eval", "float", "half", "bfloat16")
"""Methods of a model that return the model"""


def _cross_entropies(module: Module) -> Iterator[ast.Call]:
    """Calls that compute a cross-entropy."""
    yield from (call.node for call in module.calls(*LOSS_FUNCTIONS))
    for call in module.all_calls:
        made = module.flow.producing_call(call.node.func)
        if made is not None and made.named(*LOSS_CLASSES):
            yield call.node


class LossOfProbabilities(SourceRule):
    code = "SRC120"
    severity = "error"
    looks_at = CodePlaces("cross-entropies that are computed", _cross_entropies)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for loss in _cross_entropies(module):
            call = module.flow.call(loss)
            given = call.argument(0, "input")
            source = _softmax_of(module, given) if given is not None else None
            if source is not None:
                yield self.finding(
                    "the cross-entropy gets probabilities: it takes logits, applies softmax or sigmoid once more, and"
                    " hardly falls",
                    "give it the logits: leave softmax and sigmoid out of what the loss gets",
                    cases=[case_at(module, loss), case_at(module, source)],
                )


def _softmax_of(module: Module, given: ast.expr) -> ast.AST | None:
    """The softmax that makes an input; None where one way does not pass through it."""
    found = [_softmax_of_call(module, origin.node) for origin in module.flow.origins(given)]
    return found[0] if found and None not in found else None


def _softmax_of_call(module: Module, node: ast.AST) -> ast.AST | None:
    """The softmax that a call is, or that the model of the file returns which is called."""
    if not isinstance(node, ast.Call):
        return None
    if _is_softmax(module, node):
        return node
    owner = _class_of_model(module, node)
    if owner is None:
        return None
    returned = [_returned_softmax(module, back) for back in _returns_of_forward(owner)]
    return returned[0] if returned and None not in returned else None


def _class_of_model(module: Module, node: ast.Call) -> ast.ClassDef | None:
    """The one class of the file that a called model is of, behind moves such as `.cuda()`; None if not seen."""
    model = module.flow.producing_call(node.func)
    while model is not None and model.method in MOVING_METHODS and model.receiver is not None:
        model = module.flow.producing_call(model.receiver)
    if model is None:
        return None
    owners = [one.node for one in module.flow.origins(model.node.func)]
    if len(owners) != 1 or not isinstance(owners[0], ast.ClassDef):
        return None
    return owners[0]


def _returns_of_forward(owner: ast.ClassDef) -> Iterator[ast.Return]:
    """The returns of a model's forward."""
    for method in owner.body:
        if isinstance(method, ast.FunctionDef) and method.name == "forward":
            yield from (node for node in ast.walk(method) if isinstance(node, ast.Return))


def _returned_softmax(module: Module, back: ast.Return) -> ast.AST | None:
    """The softmax that is returned; None where something else is, or more."""
    if back.value is None:
        return None
    made = [origin.node for origin in module.flow.origins(back.value)]
    is_one = len(made) == 1 and isinstance(made[0], ast.Call) and _is_softmax(module, made[0])
    return made[0] if is_one else None


def _is_softmax(module: Module, node: ast.Call) -> bool:
    """Is it softmax or sigmoid, as a function, a method of a tensor, or a layer?"""
    call = module.flow.call(node)
    if call.named(*SQUASHING_FUNCTIONS):
        return True
    layer = module.flow.producing_call(node.func)
    if layer is not None and layer.named(*SQUASHING_LAYERS):
        return True
    return call.method in SQUASHING_METHODS and not call.named("torch.*")
