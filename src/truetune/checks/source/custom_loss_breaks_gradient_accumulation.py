"""A `compute_loss` of one's own breaks gradient accumulation.

## What it does
It finds trainer classes whose `compute_loss` never reads `num_items_in_batch`, or does not take it at all, and that do
not say `loss_is_scaled_for_ga`. The Trainer counts tokens only in batches that have `labels`: a loss that reads other
columns alone (pairs, a teacher's tokens), in a file that speaks of no labels, is left alone. So is a file whose
arguments accumulate nothing.

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

from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.batch_columns import may_have_labels
from truetune.checks.source.places import at, fix
from truetune.source.edits import Changes, insert_before, insert_parameter
from truetune.source.module import Module

ITEMS, FLAG = "num_items_in_batch", "loss_is_scaled_for_ga"
TRAINERS = ("transformers.Trainer", "transformers.Seq2SeqTrainer", "trl.SFTTrainer")
ARGUMENTS = ("transformers.TrainingArguments", "transformers.Seq2SeqTrainingArguments", "trl.SFTConfig")
STEPS = "gradient_accumulation_steps"


class CustomLossBreaksGradientAccumulation(SourceRule):
    code = "TT708"
    severity = "error"

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for owner in module.nodes(ast.ClassDef):
            method = next((i for i in owner.body if isinstance(i, ast.FunctionDef) and i.name == "compute_loss"), None)
            if method is None or not _of_trainer(module, owner) or _says(owner):
                continue
            arguments = method.args
            taken = ITEMS in [a.arg for a in (*arguments.args, *arguments.kwonlyargs)]
            if arguments.vararg is not None or _used(method) or _hands_on(method):
                continue
            missing = not taken and arguments.kwarg is None
            if not missing and (_never_accumulates(module) or not may_have_labels(module, method)):
                continue
            changes: Changes = insert_before(module, _first(owner), f"{FLAG} = False", "")
            if missing:
                changes = (*changes, *insert_parameter(module, method, f"{ITEMS}=None"))
            yield self.finding(
                f"compute_loss does not take {ITEMS}: the Trainer stops"
                if missing
                else f"compute_loss never reads {ITEMS}: with gradient accumulation its gradients are too large",
                f"divide the summed loss by {ITEMS}, or set {FLAG} = False in the class (transformers 5.19 and later)",
                evidence=["the Trainer divides by the accumulation steps only where the model takes no loss arguments"],
                cases=[at(module, method, f"class {owner.name}: def compute_loss")],
                fix=fix(module, changes),
            )


def _first(owner: ast.ClassDef) -> ast.stmt:
    """The first statement of a class behind its docstring."""
    first = owner.body[0]
    is_text = (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    )
    return owner.body[1] if is_text else first


def _of_trainer(module: Module, owner: ast.ClassDef) -> bool:
    """Derived from a trainer that leaves the flag open; TRL's others set it themselves."""
    return any(name in TRAINERS for name in module.flow.bases(owner))


def _says(owner: ast.ClassDef) -> bool:
    """Is the flag, or its older form, set in the class or on `self`?"""
    return any(
        (node.id if isinstance(node, ast.Name) else node.attr) in (FLAG, "model_accepts_loss_kwargs")
        for node in ast.walk(owner)
        if isinstance(node, (ast.Name, ast.Attribute))
    )


def _used(method: ast.FunctionDef) -> bool:
    names = {ITEMS} | ({method.args.kwarg.arg} if method.args.kwarg else set())
    return any(isinstance(node, ast.Name) and node.id in names for node in ast.walk(method))


def _hands_on(method: ast.FunctionDef) -> bool:
    """Does it divide by the steps itself?"""
    return any(isinstance(n, ast.Attribute) and "gradient_accumulation_steps" in n.attr for n in ast.walk(method))


def _never_accumulates(module: Module) -> bool:
    """Do all arguments that the file makes leave accumulation at one step?"""
    made = list(module.calls(*ARGUMENTS))
    return bool(made) and all(call.lacks(STEPS) or module.flow.value(call.keywords.get(STEPS)) == 1 for call in made)
