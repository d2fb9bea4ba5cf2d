"""Finds loops that count micro-batches, or divide the loss, by hand where their engine (DeepSpeed,
Accelerate, Lightning) does so as well.

DeepSpeed's engine wants `backward` and `step` after each micro-batch: it divides the loss, counts
the calls of `step`, and updates the weights at every so many of them. Accelerate's `accumulate`
lets the optimizer step at its own batches alone, and its `backward` divides the loss. Lightning
divides the loss that `training_step` returns.

How it works: the number that the engine was told is read from its arguments, from a dictionary or
from a file of settings; the loop's from the remainder in the condition. Two of them are compared by
value, else by their text.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.read_settings_in_launch_files import read_document_in_folder_or_parents
from truetune.checks.source.evidence.nodes_that_an_expression_is_computed_from import backward_slice
from truetune.checks.source.evidence.which_place_surely_runs_first import LOOPS
from truetune.errors import TruetuneError
from truetune.settings import located_document
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

KEY = "gradient_accumulation_steps"
DEEPSPEED = "deepspeed.initialize"
ACCELERATE = ("accelerate.Accelerator",)
LIGHTNING = ("lightning.*Trainer", "pytorch_lightning.Trainer")
DEEPSPEED_KEYS = frozenset(
    ("train_micro_batch_size_per_gpu", "zero_optimization", "train_batch_size")
)
MAX_JSON_FILES = 30
"""JSON files beside a script that are opened for DeepSpeed's settings. Chosen, not measured: one folder has a few"""


class EngineAccumulation(NamedTuple):
    """The number of micro-batches that an engine counts."""

    number: int | None
    """None where only the program knows it"""
    text: str
    """As it is written: `8`, `args.accum`"""
    node: ast.AST | None
    """Where, in code"""
    file: str = ""
    """Where, in a file of settings"""
    line: int = 0


class DoubleAccumulation(NamedTuple):
    """A place that counts, or divides by, what the engine counts or divides by already."""

    node: ast.AST
    engine: EngineAccumulation
    kind: str
    """`step`, `backward`, `never` or `loss`"""
    library: str
    by: str
    """The number of the loop, as written"""
    times: int | None = None
    """The same, where it is known"""


def find_double_accumulation(module: Module) -> Iterator[DoubleAccumulation]:
    """Steps under a remainder, and losses that are divided, where the engine does both."""
    yield from _double_accumulation_with_deepspeed(module)
    yield from _double_accumulation_with_accelerate(module)
    yield from _double_accumulation_with_lightning(module)


def calls_that_may_accumulate_gradients(module: Module) -> Iterator[Call]:
    """The steps and backward passes of DeepSpeed's engine, and the calls that make an Accelerator
    or a Trainer of Lightning, which accumulate or may.
    """
    for call in module.methods("step", "backward"):
        if _is_deepspeed_engine(module, call.receiver):
            yield call
    yield from module.calls(*ACCELERATE, *LIGHTNING)


def _double_accumulation_with_deepspeed(module: Module) -> Iterator[DoubleAccumulation]:
    """Steps and backward passes of DeepSpeed's engine that the loop around them counts too, and
    losses that both divide.
    """
    accumulation = _accumulation_of_deepspeed(module)
    if accumulation is None or accumulation.number == 1:
        return
    for call in module.methods("step", "backward"):
        if not _is_deepspeed_engine(module, call.receiver):
            continue
        remainder = _remainder_deciding_call(module, call.node)
        if remainder is not None and _do_loop_and_engine_both_accumulate(
            module, remainder, accumulation
        ):
            if _accumulates_between_calls(module, call):
                by = ast.unparse(remainder.right)
                times = _known_whole_number(module, remainder.right)
                if times is None and _reads_accumulation_steps_key(module, remainder.right):
                    times = accumulation.number
                kind = str(call.method)
                yield DoubleAccumulation(call.node, accumulation, kind, "DeepSpeed", by, times)
        if call.method == "backward" and call.args:
            yield from _loss_divided_twice(
                module, call.args[0], accumulation, "DeepSpeed's backward"
            )


def _accumulates_between_calls(module: Module, call: Call) -> bool:
    """Are gradients, or losses, added up between two such calls?

    Two models that are trained in turn have `backward` and `step` under one remainder, and leave
    batches out.
    """
    guard = next((one for one in module.parents(call.node) if isinstance(one, ast.If)), None)
    if call.method == "backward":
        loss = call.args[0] if call.args else None
        return isinstance(loss, ast.Name) and bool(module.expressions_added_to_variable(loss))
    loop = next((one for one in module.parents(call.node) if isinstance(one, LOOPS)), None)
    for backward in _backward_calls_of_engine(module, call.receiver):
        around = set(module.parents(backward.node))
        if guard not in around and (loop is None or loop in around):
            return True
    return False


def _backward_calls_of_engine(module: Module, engine: ast.expr | None) -> Iterator[Call]:
    """The backward passes of one engine."""
    name = None if engine is None else ast.unparse(engine)
    for call in module.methods("backward"):
        if call.receiver is not None and ast.unparse(call.receiver) == name:
            yield call


def _known_whole_number(module: Module, node: ast.expr) -> int | None:
    """The whole number that an expression is; None where it is none, or not known."""
    value = module.flow.value(node)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _is_deepspeed_engine(module: Module, receiver: ast.expr | None) -> bool:
    """Is it the engine, the first of what `deepspeed.initialize` gives back?"""
    if receiver is None:
        return False
    return any(
        isinstance(origin.node, ast.Call)
        and module.flow.name(origin.node.func) == DEEPSPEED
        and origin.path[:1] in ((0,), ())
        for origin in module.flow.origins(receiver)
    )


def _accumulation_of_deepspeed(module: Module) -> EngineAccumulation | None:
    """What the engine of a script counts; None where that is not known."""
    for part in module.self_and_files_run_together:
        for call in part.calls(DEEPSPEED):
            config_argument = call.keywords.get("config") or call.keywords.get("config_params")
            engine_accumulation = (
                None
                if config_argument is None
                else _accumulation_in_settings(part, config_argument)
            )
            if engine_accumulation is not None:
                return engine_accumulation
            if config_argument is None:
                return _accumulation_of_deepspeed_file_beside(Path(part.path))
            if not isinstance(config_argument, ast.Dict):
                beside = _accumulation_of_deepspeed_file_beside(Path(part.path))
                return beside or _accumulation_read_from_settings(part, config_argument)
    return None


def _accumulation_in_settings(module: Module, expression: ast.expr) -> EngineAccumulation | None:
    """The number of micro-batches in a dictionary of the code, or in the file that it is read from;
    None where it is not known.
    """
    # What is set later counts, whatever the dictionary was made with.
    stored = _accumulation_assigned_in_settings(module, expression)
    if stored is not None:
        return _accumulation_of_expression(module, stored)
    for node in backward_slice(module, expression):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == KEY:
                    return _accumulation_of_expression(module, value)
        if isinstance(node, ast.Constant) and str(node.value).endswith(".json"):
            return _accumulation_of_settings_file(Path(module.path).parent, str(node.value))
    return None


def _accumulation_assigned_in_settings(module: Module, settings: ast.expr) -> ast.expr | None:
    """N of `ds_config["gradient_accumulation_steps"] = N`; None where nothing is stored so."""
    for target in module.nodes(ast.Subscript):
        is_key = isinstance(target.slice, ast.Constant) and target.slice.value == KEY
        holder = module.scopes.parent.get(target)
        is_same = is_key and ast.unparse(target.value) == ast.unparse(settings)
        if is_same and isinstance(holder, ast.Assign) and target in holder.targets:
            return holder.value
    return None


def _accumulation_read_from_settings(
    module: Module, settings: ast.expr
) -> EngineAccumulation | None:
    """The number as the code itself reads it from the engine's settings, whose file is not available:
    `config["gradient_accumulation_steps"]`; None where it reads none.
    """
    for read in module.nodes(ast.Subscript):
        is_key = isinstance(read.slice, ast.Constant) and read.slice.value == KEY
        if is_key and ast.unparse(read.value) == ast.unparse(settings):
            return EngineAccumulation(None, ast.unparse(read), read)
    return None


def _accumulation_of_expression(module: Module, value: ast.expr) -> EngineAccumulation | None:
    """The number that an expression gives; None where the library chooses it."""
    if module.flow.value(value) == "auto":
        return None
    return EngineAccumulation(_known_whole_number(module, value), ast.unparse(value), value)


def _accumulation_of_settings_file(folder: Path, name: str) -> EngineAccumulation | None:
    """The number in a file of settings that the code names."""
    document = read_document_in_folder_or_parents(folder, name)
    value = None if document is None else document.value.get(KEY)
    if document is None or not isinstance(value, int) or isinstance(value, bool):
        return None
    spot = document.position_of_key(KEY)
    line = spot.line if spot is not None else 1
    return EngineAccumulation(value, str(value), None, document.path, line)


def _accumulation_of_deepspeed_file_beside(script: Path) -> EngineAccumulation | None:
    """The number in the one file of DeepSpeed's settings beside a script, whose command names it."""
    engine_accumulations: list[EngineAccumulation | None] = []
    try:
        files = sorted(script.parent.glob("*.json"))[:MAX_JSON_FILES]
    except OSError:
        return None
    for file in files:
        try:
            keys = located_document.read_located_document(file).value
        except (TruetuneError, OSError, ValueError):
            continue
        if isinstance(keys, dict) and not DEEPSPEED_KEYS.isdisjoint(keys):
            engine_accumulations.append(_accumulation_of_settings_file(script.parent, file.name))
    return engine_accumulations[0] if len(engine_accumulations) == 1 else None


def _remainder_deciding_call(module: Module, node: ast.AST) -> ast.BinOp | None:
    """The remainder in the condition under which a call of a loop is made, or after which one is
    left out.
    """
    inner = node
    for parent in module.parents(node):
        if isinstance(parent, ast.If) and inner in parent.body:
            remainder = _remainder_compared_by_operator(parent.test, ast.Eq) or _negated_remainder(
                parent.test
            )
            if remainder is not None:
                return remainder
        if isinstance(parent, LOOPS):
            return _remainder_of_continue_before_call(parent, node)
        inner = parent
    return None


def _remainder_of_continue_before_call(
    loop: ast.For | ast.AsyncFor | ast.While, node: ast.AST
) -> ast.BinOp | None:
    """The remainder of a test before a call in the same loop that skips the call: `if (i + 1) % n
    != 0: continue`; None without one.
    """
    for statement in loop.body:
        if statement.lineno >= getattr(node, "lineno", 0):
            break
        if isinstance(statement, ast.If) and isinstance(statement.body[-1], ast.Continue):
            test = statement.test
            remainder = _remainder_compared_by_operator(test, ast.NotEq)
            if remainder is None and _is_remainder(test) and isinstance(test, ast.BinOp):
                remainder = test
            if remainder is not None:
                return remainder
    return None


def _remainder_compared_by_operator(
    test: ast.expr, comparison: type[ast.cmpop]
) -> ast.BinOp | None:
    """The remainder on the left of a comparison by this operator: `x % n == 0`, also as a part of
    `... or i == last`; None where a test has none.
    """
    for part in ast.walk(test):
        if not isinstance(part, ast.Compare) or len(part.ops) != 1:
            continue
        if isinstance(part.ops[0], comparison) and _is_remainder(part.left):
            assert isinstance(part.left, ast.BinOp)
            return part.left
    return None


def _negated_remainder(test: ast.expr) -> ast.BinOp | None:
    """The remainder that a test negates: `not x % n`; None for other tests."""
    for part in ast.walk(test):
        is_not = isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.Not)
        if is_not and isinstance(part, ast.UnaryOp) and isinstance(part.operand, ast.BinOp):
            if _is_remainder(part.operand):
                return part.operand
    return None


def _is_remainder(node: ast.expr) -> bool:
    """Is an expression a remainder: `x % n`?"""
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod)


def _do_loop_and_engine_both_accumulate(
    module: Module, remainder: ast.BinOp, accumulation: EngineAccumulation
) -> bool:
    """Does the loop wait for several batches, and the engine for several calls?"""
    by = module.flow.value(remainder.right)
    if isinstance(by, int) and by == 1:
        return False
    if accumulation.number is not None:
        return True
    origins = (origin.node for origin in module.flow.origins(remainder.right))
    return accumulation.text in map(ast.unparse, (remainder.right, *origins))


def _loss_divided_twice(
    module: Module, loss: ast.expr, accumulation: EngineAccumulation, library: str
) -> Iterator[DoubleAccumulation]:
    """The finding of a loss that is divided by the same number by which the library divides it as
    well.
    """
    for origin_node in (loss, *(origin.node for origin in module.flow.origins(loss))):
        if not isinstance(origin_node, ast.BinOp) or not isinstance(origin_node.op, ast.Div):
            continue
        number = module.flow.value(origin_node.right)
        is_same_number = accumulation.number not in (None, 1) and number == accumulation.number
        text = ast.unparse(origin_node.right)
        is_same_text = text == accumulation.text
        if (
            is_same_number
            or is_same_text
            or _is_engine_accumulation_setting(module, origin_node.right)
        ):
            yield DoubleAccumulation(origin_node, accumulation, "loss", library, text)
            return


def _reads_accumulation_steps_key(module: Module, value: ast.expr) -> bool:
    """Is it the number of a dictionary of settings: `config["gradient_accumulation_steps"]`?"""
    return any(
        isinstance(node, ast.Subscript)
        and isinstance(node.slice, ast.Constant)
        and node.slice.value == KEY
        for node in (value, *(origin.node for origin in module.flow.origins(value)))
    )


def _is_engine_accumulation_setting(module: Module, divisor: ast.expr) -> bool:
    """Is it the engine's own setting, whatever the name that it was given: `config["gradient_accumulation_steps"]`,
    `engine.gradient_accumulation_steps()`?
    """
    for node in (divisor, *(origin.node for origin in module.flow.origins(divisor))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            names = [node.func.attr, *(ast.unparse(one).strip("'") for one in node.args[:1])]
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            names = [str(node.slice.value)]
        else:
            names = [node.attr] if isinstance(node, ast.Attribute) else []
        if KEY in names:
            return True
    return False


def _double_accumulation_with_accelerate(module: Module) -> Iterator[DoubleAccumulation]:
    """Losses that Accelerate divides as well, and steps that its own count never meets."""
    accumulation = _accumulation_of_constructor(module, ACCELERATE, KEY)
    if accumulation is None:
        return
    for call in module.methods("backward"):
        if "accelerator" in module.flow.types(call.receiver) and call.args:
            yield from _loss_divided_twice(
                module, call.args[0], accumulation, "accelerator.backward"
            )
    for call in module.methods("step"):
        if "optimizer" not in module.flow.types(call.receiver) or not _is_in_accumulate_block(
            module, call.node
        ):
            continue
        remainder = _remainder_deciding_call(module, call.node)
        if remainder is not None and _is_condition_false_at_every_update(
            module, remainder, accumulation
        ):
            by = ast.unparse(remainder.right)
            yield DoubleAccumulation(call.node, accumulation, "never", "Accelerate", by)


def _is_condition_false_at_every_update(
    module: Module, remainder: ast.BinOp, accumulation: EngineAccumulation
) -> bool:
    """Does a condition hold at none of the batches at which Accelerate lets the optimizer step?

    It does so at batches n, 2n, ...: a count from 0 names the batch after each of them.
    """
    test = module.scopes.parent.get(remainder)
    if isinstance(test, ast.Compare) and module.flow.value(test.comparators[0]) != 0:
        return False  # `i % n == n - 1` names the very batch
    by = _known_whole_number(module, remainder.right)
    if by is not None and math.gcd(by, accumulation.number or by) == 1:
        return False  # every third batch is a fourth one now and then
    return _is_enumerate_counter_from_zero(module, remainder.left)


def _accumulation_of_constructor(
    module: Module, patterns: tuple[str, ...], key: str
) -> EngineAccumulation | None:
    """The number that the one call of a class is given; None where it is 1 or not given."""
    calls = list(module.calls(*patterns))
    value = calls[0].keywords.get(key) if len(calls) == 1 else None
    accumulation = None if value is None else _accumulation_of_expression(module, value)
    return None if accumulation is None or accumulation.number == 1 else accumulation


def _is_in_accumulate_block(module: Module, node: ast.AST) -> bool:
    """Does it stand inside of `with accelerator.accumulate(model)`?"""
    return any(
        isinstance(parent, ast.With)
        and any("accumulate" in ast.unparse(item.context_expr) for item in parent.items)
        for parent in module.parents(node)
    )


def _is_enumerate_counter_from_zero(module: Module, counter: ast.expr) -> bool:
    """Is it the number of `enumerate(loader)`, which begins at 0, as it is?"""
    if not isinstance(counter, ast.Name):
        return False
    for loop in module.parents(counter):
        if not isinstance(loop, ast.For) or not isinstance(loop.iter, ast.Call):
            continue
        targets = loop.target.elts if isinstance(loop.target, ast.Tuple) else []
        is_counted = bool(targets) and ast.unparse(targets[0]) == counter.id
        begin = module.flow.call(loop.iter).argument(1, "start")
        if is_counted and ast.unparse(loop.iter.func) == "enumerate":
            return begin is None or module.flow.value(begin) == 0
    return False


def _double_accumulation_with_lightning(module: Module) -> Iterator[DoubleAccumulation]:
    """Losses of `training_step` that Lightning divides as well."""
    accumulation = _accumulation_of_constructor(module, LIGHTNING, "accumulate_grad_batches")
    if accumulation is None or module.mentions("automatic_optimization = False"):
        return
    for function in module.nodes(ast.FunctionDef):
        if function.name != "training_step":
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Return) and node.value is not None:
                yield from _loss_divided_twice(module, node.value, accumulation, "Lightning")
