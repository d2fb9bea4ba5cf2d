"""A `compute_loss` of one's own breaks gradient accumulation.

## What it does
It finds trainer classes whose `compute_loss` never reads `num_items_in_batch`, or does not take it at all, and that do
not say `loss_is_scaled_for_ga`. The Trainer counts tokens only in batches that have `labels`: a loss that reads other
columns alone (pairs, a teacher's tokens), in a file that speaks of no labels, is left alone. So is a file whose
arguments accumulate nothing, and one beside requirements for a transformers before 4.46.

## Why it is bad
The Trainer expects a loss that is divided by the tokens of the whole window, and does not divide again: with 4
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
missing parameter is added. Tokens of short micro-batches still weigh more than others. The flag is known from
transformers 5.19 on; before, `self.model_accepts_loss_kwargs = False` behind `super().__init__()` does the same.

## References
- huggingface/transformers#34191, huggingface/transformers#35438, huggingface/transformers#37766
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.batch_labels_presence import batch_may_have_labels
from truetune.checks.source.evidence.cases_and_fixes import case_at, fix_of_changes
from truetune.checks.source.evidence.custom_losses import (
    ITEM_COUNT,
    LOSS_KWARGS_FLAG,
    custom_loss_methods,
    divides_by_steps,
    never_accumulates,
    says_whether_it_is_scaled,
    uses_item_count,
)
from truetune.source.source_edits import Changes, insert_before, insert_parameter

COUNTS_ITEMS = "4.46.0"
"""The first transformers whose Trainer counts the items of a batch"""


OLDER = Unmet(f"it is about transformers {COUNTS_ITEMS} and later, and an older one is asked for")


class CustomLossBreaksGradientAccumulation(SourceRule):
    code = "SRC013"
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    looks_at = CodePlaces("trainers with a compute_loss of their own", custom_loss_methods)

    def unmet(self) -> Unmet | None:
        if self.subject.pins.before("transformers", COUNTS_ITEMS):
            return OLDER
        return super().unmet()

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if module.pins.before("transformers", COUNTS_ITEMS):
            return
        for owner, method in custom_loss_methods(module):
            arguments = method.args
            if says_whether_it_is_scaled(owner) or arguments.vararg is not None:
                continue
            if uses_item_count(method) or divides_by_steps(method):
                continue
            names = [one.arg for one in (*arguments.args, *arguments.kwonlyargs)]
            missing = ITEM_COUNT not in names and arguments.kwarg is None
            unscaled = not never_accumulates(module) and batch_may_have_labels(module, method)
            if missing or unscaled:
                yield self._finding(owner, method, missing=missing, unscaled=unscaled)

    def _finding(
        self, owner: ast.ClassDef, method: ast.FunctionDef, *, missing: bool, unscaled: bool
    ) -> Finding:
        """The finding on one loss: a parameter that is missing, gradients that are not scaled, or both."""
        module = self.subject
        changes: Changes = ()
        if unscaled:
            changes = insert_before(
                module, _first_statement(owner), f"{LOSS_KWARGS_FLAG} = False", ""
            )
        if missing:
            changes = (*changes, *insert_parameter(module, method, f"{ITEM_COUNT}=None"))
        if missing:
            fault = f"compute_loss does not take {ITEM_COUNT}: the Trainer stops"
        else:
            fault = (
                f"compute_loss never reads {ITEM_COUNT}: with gradient accumulation its"
                " gradients are too large"
            )
        return self.finding(
            fault,
            _remedy_of_loss(missing=missing, unscaled=unscaled),
            evidence=[
                "the Trainer divides by the accumulation steps only where the model takes no"
                " loss arguments"
            ],
            cases=[case_at(module, method, f"class {owner.name}: def compute_loss")],
            fix=fix_of_changes(module, changes),
        )


def _remedy_of_loss(*, missing: bool, unscaled: bool) -> str:
    """What fixes a missing parameter, gradients that are not scaled, or both."""
    scale = (
        f"divide the summed loss by {ITEM_COUNT}, or set {LOSS_KWARGS_FLAG} = False in the class (transformers 5.19"
        " and later)"
    )
    if not missing:
        return scale
    taken = f"take {ITEM_COUNT}=None as a parameter of compute_loss"
    return f"{taken}, and {scale}" if unscaled else taken


def _first_statement(owner: ast.ClassDef) -> ast.stmt:
    """The first statement of a class behind its docstring."""
    first = owner.body[0]
    is_text = (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    )
    return owner.body[1] if is_text else first
