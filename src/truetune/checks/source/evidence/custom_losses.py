"""Losses that a subclass of the Trainer computes itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.source.module import Module

ITEM_COUNT = "num_items_in_batch"
LOSS_KWARGS_FLAG = "loss_is_scaled_for_ga"
OPEN_TRAINERS = ("transformers.Trainer", "transformers.Seq2SeqTrainer", "trl.SFTTrainer")
TRAINING_ARGUMENTS = (
    "transformers.TrainingArguments",
    "transformers.Seq2SeqTrainingArguments",
    "trl.SFTConfig",
)
ACCUMULATION_STEPS = "gradient_accumulation_steps"


def custom_loss_methods(module: Module) -> Iterator[tuple[ast.ClassDef, ast.FunctionDef]]:
    """The `compute_loss` of each class derived from a trainer that leaves the flag open."""
    for owner in module.nodes(ast.ClassDef):
        method = next(
            (i for i in owner.body if isinstance(i, ast.FunctionDef) and i.name == "compute_loss"),
            None,
        )
        if method is not None and derives_from_open_trainer(module, owner):
            yield owner, method


def derives_from_open_trainer(module: Module, owner: ast.ClassDef) -> bool:
    """Derived from a trainer that leaves the flag open; TRL's others set it themselves."""
    return any(name in OPEN_TRAINERS for name in module.flow.bases(owner))


def says_whether_it_is_scaled(owner: ast.ClassDef) -> bool:
    """Is the flag, or its older form, set in the class or on `self`?"""
    return any(
        (node.id if isinstance(node, ast.Name) else node.attr)
        in (LOSS_KWARGS_FLAG, "model_accepts_loss_kwargs")
        for node in ast.walk(owner)
        if isinstance(node, (ast.Name, ast.Attribute))
    )


def uses_item_count(method: ast.FunctionDef) -> bool:
    """Does compute_loss read the number of items, itself or in its keyword arguments?"""
    names = {ITEM_COUNT} | ({method.args.kwarg.arg} if method.args.kwarg else set())
    return any(isinstance(node, ast.Name) and node.id in names for node in ast.walk(method))


def divides_by_steps(method: ast.FunctionDef) -> bool:
    """Does it divide by the steps itself?"""
    return any(
        isinstance(n, ast.Attribute) and "gradient_accumulation_steps" in n.attr
        for n in ast.walk(method)
    )


def never_accumulates(module: Module) -> bool:
    """Do all arguments that the file makes leave accumulation at one step?"""
    made = list(module.calls(*TRAINING_ARGUMENTS))
    return bool(made) and all(
        call.lacks(ACCUMULATION_STEPS)
        or module.flow.value(call.keywords.get(ACCUMULATION_STEPS)) == 1
        for call in made
    )
