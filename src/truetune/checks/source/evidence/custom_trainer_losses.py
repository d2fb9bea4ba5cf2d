"""Finds losses of a project's own: those that a subclass of the Trainer computes, and functions
that a Trainer is given.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.source.parsed_source_file import Module

ITEM_COUNT = "num_items_in_batch"
LOSS_KWARGS_FLAG = "loss_is_scaled_for_ga"
OPEN_TRAINERS = ("transformers.Trainer", "transformers.Seq2SeqTrainer", "trl.SFTTrainer")
TRAINING_ARGUMENTS = (
    "transformers.TrainingArguments",
    "transformers.Seq2SeqTrainingArguments",
    "trl.SFTConfig",
)
ACCUMULATION_STEPS = "gradient_accumulation_steps"
LOSS_FUNCTION = "compute_loss_func"
LossFunction = ast.FunctionDef | ast.Lambda


def custom_loss_methods_with_open_flag(
    module: Module,
) -> Iterator[tuple[ast.ClassDef, ast.FunctionDef]]:
    """The `compute_loss` of each class derived from a trainer that leaves
    `model_accepts_loss_kwargs` open, with the class.
    """
    for owner in module.nodes(ast.ClassDef):
        method = next(
            (i for i in owner.body if isinstance(i, ast.FunctionDef) and i.name == "compute_loss"),
            None,
        )
        if method is not None and derives_from_trainer_with_open_loss_flag(module, owner):
            yield owner, method


def given_loss_functions(module: Module) -> Iterator[LossFunction]:
    """The functions that trainers are given as `compute_loss_func`, each once, as far as the files
    hold them.
    """
    seen: set[ast.AST] = set()
    for call in module.calls(*OPEN_TRAINERS):
        argument = call.keywords.get(LOSS_FUNCTION)
        function = _loss_function_of_expression(module, argument) if argument is not None else None
        if function is not None and function not in seen:
            seen.add(function)
            yield function


def _loss_function_of_expression(module: Module, expression: ast.expr) -> LossFunction | None:
    """The function that runs where an expression is called: a function, one in `partial`, an
    object's `__call__`.
    """
    maker = module.flow.producing_call(expression)
    if maker is not None and maker.named("functools.partial") and maker.args:
        # A partial that fills in the number itself is read by its keyword.
        return (
            None
            if ITEM_COUNT in maker.keywords
            else _loss_function_of_expression(module, maker.args[0])
        )
    function = module.flow.function_that_expression_names(expression)
    if function is None and maker is not None:
        function = _dunder_call_method_of_class(module, maker.node.func)
    return function if isinstance(function, LossFunction) else None


def _dunder_call_method_of_class(module: Module, expression: ast.expr) -> ast.FunctionDef | None:
    """The `__call__` of the class of the files that an expression names, where it is written in the
    class itself.
    """
    owners = [origin.node for origin in module.flow.origins(expression)]
    if len(owners) != 1 or not isinstance(owners[0], ast.ClassDef):
        return None
    methods = (item for item in owners[0].body if isinstance(item, ast.FunctionDef))
    return next((item for item in methods if item.name == "__call__"), None)


def derives_from_trainer_with_open_loss_flag(module: Module, owner: ast.ClassDef) -> bool:
    """Is a class derived from a trainer that leaves the loss flag open? TRL's others set it themselves."""
    return any(name in OPEN_TRAINERS for name in module.flow.bases(owner))


def does_class_mention_loss_kwargs_flag(owner: ast.ClassDef) -> bool:
    """Does a class name the flag, or its older form, be it set or read?"""
    return any(
        (node.id if isinstance(node, ast.Name) else node.attr)
        in (LOSS_KWARGS_FLAG, "model_accepts_loss_kwargs")
        for node in ast.walk(owner)
        if isinstance(node, (ast.Name, ast.Attribute))
    )


def uses_item_count(method: LossFunction) -> bool:
    """Does a loss read the number of items, itself or in its keyword arguments?"""
    names = {ITEM_COUNT} | ({method.args.kwarg.arg} if method.args.kwarg else set())
    return any(isinstance(node, ast.Name) and node.id in names for node in ast.walk(method))


def divides_by_accumulation_steps(method: LossFunction) -> bool:
    """Does a loss divide by the accumulation steps itself?"""
    return any(
        isinstance(n, ast.Attribute) and "gradient_accumulation_steps" in n.attr
        for n in ast.walk(method)
    )


def accumulation_is_always_one_step(module: Module) -> bool:
    """Do all arguments that the file makes leave accumulation at one step?"""
    made = list(module.calls(*TRAINING_ARGUMENTS))
    return bool(made) and all(
        call.lacks(ACCUMULATION_STEPS)
        or module.flow.value(call.keywords.get(ACCUMULATION_STEPS)) == 1
        for call in made
    )
