"""A hand-written `compute_loss` breaks gradient accumulation.

## What it does
It finds trainer classes whose `compute_loss` never reads `num_items_in_batch`, or does not take it at all, and that do
not set `loss_is_scaled_for_ga`. A function given to a trainer as `compute_loss_func` is checked in the same way: with
it, the Trainer never divides by the accumulation steps. Not reported: a loss that reads only other columns (pairs, a
teacher's tokens) in a file that mentions no labels, since the Trainer counts tokens only in batches with `labels`; a
file whose arguments accumulate nothing; and projects that require transformers before 4.46.

## Why it is bad
The Trainer expects a loss that is divided by the tokens of all accumulated batches, and does not divide again: with 4
accumulation steps, gradients are 4 times too large. Without the parameter, the Trainer stops with a TypeError.

## Example
```python
import torch.nn.functional as F
from transformers import Trainer


class MyTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        outputs = model(**inputs)
        loss = F.cross_entropy(outputs.logits[:, :-1].flatten(0, 1), inputs["labels"][:, 1:].flatten())
        return (loss, outputs) if return_outputs else loss
```

## Use instead
```python
import torch.nn.functional as F
from transformers import Trainer


class MyTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(**inputs)
        logits, labels = outputs.logits[:, :-1].flatten(0, 1), inputs["labels"][:, 1:].flatten()
        loss = F.cross_entropy(logits, labels, reduction="sum" if num_items_in_batch is not None else "mean")
        loss = loss if num_items_in_batch is None else loss / num_items_in_batch
        return (loss, outputs) if return_outputs else loss
```

## Fix safety
Safe: `loss_is_scaled_for_ga = False` makes the Trainer divide by the steps, as for a mean of each micro-batch, and a
missing parameter is added. Tokens of short micro-batches still weigh more than others. The flag exists since
transformers 5.19; before, `self.model_accepts_loss_kwargs = False` after `super().__init__()` does the same.

## References
- huggingface/transformers#34191, huggingface/transformers#35438, huggingface/transformers#37766
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.can_custom_loss_batch_hold_labels import batch_may_have_labels
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node, fix_of_changes
from truetune.checks.source.evidence.custom_trainer_losses import (
    ITEM_COUNT,
    LOSS_KWARGS_FLAG,
    LossFunction,
    accumulation_is_always_one_step,
    custom_loss_methods_with_open_flag,
    divides_by_accumulation_steps,
    does_class_mention_loss_kwargs_flag,
    given_loss_functions,
    uses_item_count,
)
from truetune.source.make_source_edits import (
    Changes,
    append_parameter_with_default,
    insert_statements_before,
)
from truetune.source.parsed_source_file import Module

COUNTS_ITEMS = "4.46.0"
"""The first transformers whose Trainer counts the items of a batch"""


KNOWS_FLAG = "5.19.0"
"""The first transformers that reads `loss_is_scaled_for_ga` of the class"""
OLDER = Unmet(f"it is about transformers {COUNTS_ITEMS} and later, and an older one is asked for")


def _custom_losses(module: Module) -> Iterator[ast.AST]:
    """The losses of a file: methods of trainers, and functions that trainers are given."""
    yield from (method for _, method in custom_loss_methods_with_open_flag(module))
    yield from given_loss_functions(module)


class CustomLossBreaksGradientAccumulation(SourceRule):
    code = "SRC013"
    fault = Fault.GRADIENT_ACCUMULATION_WRONG
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    looks_at = CodePlaces("hand-written losses that a trainer computes", _custom_losses)

    def unmet(self) -> Unmet | None:
        """Why the rule can say nothing, also where an older transformers is pinned, which counts no
        items; None where it can.
        """
        if self.subject.pins.is_release_surely_before("transformers", COUNTS_ITEMS):
            return OLDER
        return super().unmet()

    def findings(self) -> Iterator[Finding]:
        """Findings on hand-written losses that break gradient accumulation."""
        module = self.subject
        if module.pins.is_release_surely_before("transformers", COUNTS_ITEMS):
            return
        for owner, method in custom_loss_methods_with_open_flag(module):
            yield from self._findings_on_class(owner, method)
        for function in given_loss_functions(module):
            yield from self._findings_on_function(function)

    def _findings_on_class(self, owner: ast.ClassDef, method: ast.FunctionDef) -> Iterator[Finding]:
        """The finding on the `compute_loss` of a class."""
        module = self.subject
        arguments = method.args
        if does_class_mention_loss_kwargs_flag(owner) or arguments.vararg is not None:
            return
        if uses_item_count(method) or divides_by_accumulation_steps(method):
            return
        names = [one.arg for one in (*arguments.args, *arguments.kwonlyargs)]
        missing = ITEM_COUNT not in names and arguments.kwarg is None
        unscaled = not accumulation_is_always_one_step(module) and batch_may_have_labels(
            module, method
        )
        if missing or unscaled:
            yield self._finding_on_loss(owner, method, missing=missing, unscaled=unscaled)

    def _findings_on_function(self, function: LossFunction) -> Iterator[Finding]:
        """The finding on a function that a trainer is given as its loss."""
        module = self.subject
        arguments = function.args
        if (
            arguments.vararg is not None
            or uses_item_count(function)
            or divides_by_accumulation_steps(function)
        ):
            return
        every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        missing = arguments.kwarg is None and ITEM_COUNT not in [one.arg for one in every]
        if not missing and accumulation_is_always_one_step(module):
            return
        fault = (
            f"the loss function does not take {ITEM_COUNT}: the Trainer stops with a TypeError"
            if missing
            else f"the loss function never reads {ITEM_COUNT}: with gradient accumulation its gradients are too large"
        )
        yield self.finding(
            fault,
            f"take {ITEM_COUNT}=None as a parameter, and divide the summed loss by it if it is not None",
            evidence=[
                "the Trainer never divides the loss of compute_loss_func by the accumulation steps"
            ],
            cases=[case_of_node(module, function, _signature_text(function))],
        )

    def _finding_on_loss(
        self, owner: ast.ClassDef, method: ast.FunctionDef, *, missing: bool, unscaled: bool
    ) -> Finding:
        """The finding on one loss: a parameter that is missing, gradients that are not scaled, or
        both.
        """
        module = self.subject
        changes: Changes = ()
        is_before_flag = module.pins.is_release_surely_before("transformers", KNOWS_FLAG)
        # An older Trainer does not know the flag: the edit would change nothing there.
        if unscaled and not is_before_flag:
            changes = insert_statements_before(
                module, _first_statement_after_docstring(owner), f"{LOSS_KWARGS_FLAG} = False", ""
            )
        if missing:
            changes = (
                *changes,
                *append_parameter_with_default(module, method, f"{ITEM_COUNT}=None"),
            )
        if missing:
            fault = f"compute_loss does not take {ITEM_COUNT}: the Trainer stops with a TypeError"
        else:
            fault = (
                f"compute_loss never reads {ITEM_COUNT}: with gradient accumulation its"
                " gradients are too large"
            )
        return self.finding(
            fault,
            _remedy_of_loss(missing=missing, unscaled=unscaled, is_before_flag=is_before_flag),
            evidence=[
                "the Trainer divides by the accumulation steps only if the model takes no"
                " loss arguments"
            ],
            cases=[case_of_node(module, method, f"class {owner.name}: def compute_loss")],
            fix=fix_of_changes(module, changes),
        )


def _remedy_of_loss(*, missing: bool, unscaled: bool, is_before_flag: bool) -> str:
    """What fixes a missing parameter, gradients that are not scaled, or both.

    Args:
        is_before_flag: An older transformers is asked for, which knows another flag.
    """
    flag = (
        "self.model_accepts_loss_kwargs = False after super().__init__() in the class's own __init__"
        if is_before_flag
        else f"{LOSS_KWARGS_FLAG} = False in the class (transformers 5.19 and later)"
    )
    scale = f"divide the summed loss by {ITEM_COUNT}, or set {flag}"
    if not missing:
        return scale
    taken = f"take {ITEM_COUNT}=None as a parameter of compute_loss"
    return f"{taken}, and {scale}" if unscaled else taken


def _first_statement_after_docstring(owner: ast.ClassDef) -> ast.stmt:
    """The first statement of a class after its docstring."""
    first = owner.body[0]
    is_text = (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    )
    return owner.body[1] if is_text else first


def _signature_text(function: LossFunction) -> str:
    """The signature of a loss as text: `def name(outputs, labels)`, or the parameters of a lambda."""
    parameters = ast.unparse(function.args)
    if isinstance(function, ast.Lambda):
        return f"lambda {parameters}"
    return f"def {function.name}({parameters})"
