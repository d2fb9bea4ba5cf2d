"""Finds dropout in a script's own modules that `eval()` can't switch off.

How it works: only `nn.Dropout` layers that belong to a module have a mode. `F.dropout` takes it as an argument that is
True by default, `scaled_dot_product_attention` has none, and a layer that is made in the forward pass is new, and so in
training mode, at each call. For the two functions, everything that the rate is made of is searched for the mode: its
expression, what its names are set to, and the branches that it stands in.

The trade-off: a rate that a caller gives (a parameter of a function) is left to the caller. So only rates that a module
holds, or that are written, are judged.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import NamedTuple

from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

ATTENTION = ("torch.nn.functional.scaled_dot_product_attention",)
DROPOUT = (
    "torch.nn.functional.dropout",
    "torch.nn.functional.dropout1d",
    "torch.nn.functional.dropout2d",
    "torch.nn.functional.alpha_dropout",
    "torch.nn.functional.feature_alpha_dropout",
    "torch.dropout",
)
LAYERS = ("torch.nn.Dropout", "torch.nn.Dropout1d", "torch.nn.Dropout2d", "torch.nn.AlphaDropout")
MODULES = ("torch.nn.Module", "torch.nn.*", "*LightningModule", "transformers.*PreTrainedModel")
ON_PURPOSE = re.compile(r"monte.?carlo|\bmc[_ -]?dropout|simcse|always_dropout|prenet", re.I)
"""Code that keeps dropout on where it evaluates: to sample, to make two views, Tacotron's prenet"""
MODE = re.compile(r"\btraining\b|is_train|train_mode|eval_mode|\binference\b|deterministic", re.I)
"""What a rate depends on that follows the mode"""
MAX_STEPS = 6
"""Names between the call and where a rate is written; two or three are usual"""


class ModelessDropout(NamedTuple):
    """A dropout that is on in every mode."""

    node: ast.AST
    form: str
    """`attention`, `function` or `layer`"""


def inline_dropouts_with_their_form(module: Module) -> Iterator[tuple[Call, str]]:
    """The dropouts that a script's own modules apply by a function, or by a layer that they make for
    the call, each with its form.
    """
    for call in module.calls(*ATTENTION):
        if call.argument(4, "dropout_p") is not None and _is_in_method_of_nn_module(
            module, call.node
        ):
            yield call, "attention"
    for call in module.calls(*DROPOUT):
        if _is_in_method_of_nn_module(module, call.node):
            yield call, "function"
    for call in module.calls(*LAYERS):
        if _is_layer_called_where_it_is_made(module, call.node) and _is_in_method_of_nn_module(
            module, call.node
        ):
            yield call, "layer"


def dropouts_on_in_every_mode(module: Module) -> Iterator[ModelessDropout]:
    """The dropouts of a script's own modules that are on in every mode."""
    if ON_PURPOSE.search(module.text):
        return
    for call, form in inline_dropouts_with_their_form(module):
        rate = _rate_of_dropout(call, form)
        if rate is not None and (
            _is_certainly_zero(module, rate) or _is_given_by_caller(module, rate)
        ):
            continue
        if form == "function" and not _is_functional_dropout_always_on(module, call):
            continue
        if not _does_dropout_depend_on_training_mode(module, call.node, rate):
            yield ModelessDropout(call.node, form)


def _is_in_method_of_nn_module(module: Module, node: ast.AST) -> bool:
    """Does a place stand in a method of a class of modules?"""
    owner = module.flow.class_around(node)
    if owner is None or module.function_around(node) is None:
        return False
    bases = module.flow.bases(owner)
    return any(fnmatchcase(base, pattern) for base in bases for pattern in MODULES)


def _is_layer_called_where_it_is_made(module: Module, node: ast.AST) -> bool:
    """Is a layer called in the expression that makes it: `nn.Dropout(0.5)(x)`?"""
    parent = next(iter(module.parents(node)), None)
    return isinstance(parent, ast.Call) and parent.func is node


def _rate_of_dropout(call: Call, form: str) -> ast.expr | None:
    """The expression of the rate; None where none is given."""
    if form == "attention":
        return call.argument(4, "dropout_p")
    return call.argument(1 if form == "function" else 0, "p")


def _is_certainly_zero(module: Module, rate: ast.expr) -> bool:
    """Is a rate 0 wherever it comes from?"""
    origins = module.flow.origins(rate)
    values = [module.flow.value(origin.node) for origin in origins]
    return bool(values) and all(isinstance(value, int | float) and value == 0 for value in values)


def _is_given_by_caller(module: Module, rate: ast.expr) -> bool:
    """Is a rate a parameter of the function that applies it?"""
    function = module.function_around(rate)
    if function is None or not isinstance(rate, ast.Name):
        return False
    given = function.args
    names = {one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)}
    return rate.id in names


def _is_functional_dropout_always_on(module: Module, call: Call) -> bool:
    """Is `training` not given to `F.dropout`, or given as True?"""
    training_argument = call.argument(2, "train" if call.named("torch.dropout") else "training")
    if training_argument is None:
        return not call.open
    return module.flow.value(training_argument) is True


def _does_dropout_depend_on_training_mode(
    module: Module, node: ast.AST, rate: ast.expr | None
) -> bool:
    """Does a branch around a dropout, or something that its rate is made of, follow the mode?"""
    for parent in module.parents(node):
        if isinstance(parent, ast.If | ast.IfExp) and MODE.search(ast.unparse(parent.test)):
            return True
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
            break
    function = module.function_around(node)
    if function is not None and _tests_training_mode_before_place(function, node):
        return True
    if function is not None and _runs_only_in_lightning_training_step(module, function, MAX_STEPS):
        return True
    return rate is not None and _does_expression_use_training_mode(module, rate, MAX_STEPS)


def _tests_training_mode_before_place(function: ast.AST, node: ast.AST) -> bool:
    """Does an `if` of a function, before a place, test the mode?"""
    for one in ast.walk(function):
        is_before = isinstance(one, ast.If) and one.lineno < getattr(node, "lineno", 0)
        if is_before and isinstance(one, ast.If) and MODE.search(ast.unparse(one.test)):
            return True
    return False


def _runs_only_in_lightning_training_step(module: Module, function: ast.AST, steps: int) -> bool:
    """Is a function a training step of Lightning, or called by such functions alone?"""
    if getattr(function, "name", "") == "training_step":
        return True
    if getattr(function, "name", "") == "forward" or steps <= 0:
        return False
    callers = [
        module.function_around(call) for call in module.flow.calls_of_function_or_class(function)
    ]
    return bool(callers) and all(
        one is not None
        and one is not function
        and _runs_only_in_lightning_training_step(module, one, steps - 1)
        for one in callers
    )


def _does_expression_use_training_mode(module: Module, node: ast.expr, steps: int) -> bool:
    """Does an expression, or what its names and attributes are set to, hold the mode?"""
    if MODE.search(ast.unparse(node)):
        return True
    if steps <= 0:
        return False
    for part in ast.walk(node):
        if isinstance(part, ast.Name | ast.Attribute) and isinstance(part.ctx, ast.Load):
            if _is_function_that_reads_mode(module, part) or any(
                _does_expression_use_training_mode(module, value, steps - 1)
                or _is_value_set_by_training_mode(module, value)
                for value in _values_assigned_to(module, part)
            ):
                return True
    return False


def _is_function_that_reads_mode(module: Module, node: ast.Name | ast.Attribute) -> bool:
    """Is a name that of a function or property of the file that asks for the mode?"""
    name = node.id if isinstance(node, ast.Name) else node.attr
    return any(
        one.name == name and MODE.search(ast.unparse(one)) is not None
        for one in module.nodes(ast.FunctionDef)
    )


def _values_assigned_to(module: Module, node: ast.Name | ast.Attribute) -> list[ast.expr]:
    """The expressions that a name or an attribute of the object is set to."""
    if isinstance(node, ast.Attribute):
        return [value for value, _ in module.flow.values_assigned_to_attribute(node)]
    return [
        binding.value
        for binding in module.scopes.bindings_that_reach(node)
        if isinstance(binding.value, ast.expr)
    ]


def _is_value_set_by_training_mode(module: Module, value: ast.expr) -> bool:
    """Is a value set in a branch on the mode, or by a method that sets the mode?"""
    for parent in module.parents(value):
        if isinstance(parent, ast.If) and MODE.search(ast.unparse(parent.test)):
            return True
        if isinstance(parent, ast.FunctionDef):
            return parent.name in ("train", "eval", "training", "set_mode")
    return False
