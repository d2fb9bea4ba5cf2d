"""Loops that count micro-batches by hand where their engine counts them as well.

DeepSpeed's engine wants `backward` and `step` after each micro-batch: it divides the loss, counts the calls of `step`,
and updates the weights at every so many of them. Accelerate's `accumulate` lets the optimizer step at its own batches
alone, and its `backward` divides the loss. Lightning divides the loss that `training_step` returns.

How it works: the number that the engine was told is read from its arguments, from a dictionary or from a file of
settings; the loop's from the remainder in the condition. Two of them are compared by value, else by their text.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.launch_files import read_document_in_folder_or_parents
from truetune.checks.source.evidence.backward_slices import backward_slice
from truetune.checks.source.evidence.execution_order import LOOPS
from truetune.errors import TruetuneError
from truetune.settings import located_document
from truetune.source.parsed_source_file import Module
from truetune.source.resolved_calls import Call

KEY = "gradient_accumulation_steps"
DEEPSPEED = "deepspeed.initialize"
ACCELERATE = ("accelerate.Accelerator",)
LIGHTNING = ("lightning.*Trainer", "pytorch_lightning.Trainer")
DEEPSPEED_KEYS = frozenset(
    ("train_micro_batch_size_per_gpu", "zero_optimization", "train_batch_size")
)
MAX_JSON_FILES = 30
"""JSON files beside a script that are opened for DeepSpeed's settings. Chosen, not measured: one folder has a few"""


class Accumulation(NamedTuple):
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


class CountedTwice(NamedTuple):
    """A place that counts, or divides by, what the engine counts or divides by already."""

    node: ast.AST
    engine: Accumulation
    kind: str
    """`step`, `backward`, `never` or `loss`"""
    library: str
    by: str
    """The number of the loop, as written"""
    times: int | None = None
    """The same, where it is known"""


def find_counted_twice(module: Module) -> Iterator[CountedTwice]:
    """Steps under a remainder, and losses that are divided, where the engine does both."""
    yield from _of_deepspeed(module)
    yield from _of_accelerate(module)
    yield from _of_lightning(module)


def engine_calls(module: Module) -> Iterator[Call]:
    """Steps and backward passes of engines that accumulate, or may."""
    for call in module.methods("step", "backward"):
        if _is_engine(module, call.receiver):
            yield call
    yield from module.calls(*ACCELERATE, *LIGHTNING)


def _of_deepspeed(module: Module) -> Iterator[CountedTwice]:
    """What DeepSpeed's engine counts, and the loop around it as well."""
    accumulation = _accumulation_of_deepspeed(module)
    if accumulation is None or accumulation.number == 1:
        return
    for call in module.methods("step", "backward"):
        if not _is_engine(module, call.receiver):
            continue
        remainder = _remainder_of(module, call.node)
        if remainder is not None and _counts(module, remainder, accumulation):
            if _accumulates_in_between(module, call):
                by = ast.unparse(remainder.right)
                times = _whole_number(module, remainder.right)
                kind = str(call.method)
                yield CountedTwice(call.node, accumulation, kind, "DeepSpeed", by, times)
        if call.method == "backward" and call.args:
            yield from _divided(module, call.args[0], accumulation, "DeepSpeed's backward")


def _accumulates_in_between(module: Module, call: Call) -> bool:
    """Are gradients, or losses, added up between two such calls?

    Two models that are trained in turn have `backward` and `step` under one remainder, and leave batches out.
    """
    guard = next((one for one in module.parents(call.node) if isinstance(one, ast.If)), None)
    if call.method == "backward":
        loss = call.args[0] if call.args else None
        return isinstance(loss, ast.Name) and bool(module.additions_to(loss))
    loop = next((one for one in module.parents(call.node) if isinstance(one, LOOPS)), None)
    for backward in _backwards_of(module, call.receiver):
        around = set(module.parents(backward.node))
        if guard not in around and (loop is None or loop in around):
            return True
    return False


def _backwards_of(module: Module, engine: ast.expr | None) -> Iterator[Call]:
    """The backward passes of one engine."""
    name = None if engine is None else ast.unparse(engine)
    for call in module.methods("backward"):
        if call.receiver is not None and ast.unparse(call.receiver) == name:
            yield call


def _whole_number(module: Module, node: ast.expr) -> int | None:
    """The whole number that an expression is; None where it is none, or not known."""
    value = module.flow.value(node)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _is_engine(module: Module, receiver: ast.expr | None) -> bool:
    """Is it the engine, the first of what `deepspeed.initialize` gives back?"""
    if receiver is None:
        return False
    return any(
        isinstance(origin.node, ast.Call)
        and module.flow.name(origin.node.func) == DEEPSPEED
        and origin.path[:1] in ((0,), ())
        for origin in module.flow.origins(receiver)
    )


def _accumulation_of_deepspeed(module: Module) -> Accumulation | None:
    """What the engine of a script counts; None where that is not known."""
    for part in module.with_linked:
        for call in part.calls(DEEPSPEED):
            given = call.keywords.get("config") or call.keywords.get("config_params")
            found = None if given is None else _in_settings(part, given)
            if found is not None:
                return found
            if given is None or not isinstance(given, ast.Dict):
                return _of_file_beside(Path(part.path))
    return None


def _in_settings(module: Module, given: ast.expr) -> Accumulation | None:
    """The number in a dictionary of the code, or in the file that it is read from."""
    # What is set later counts, whatever the dictionary was made with.
    stored = _stored_number(module, given)
    if stored is not None:
        return _of_expression(module, stored)
    for node in backward_slice(module, given):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == KEY:
                    return _of_expression(module, value)
        if isinstance(node, ast.Constant) and str(node.value).endswith(".json"):
            return _of_file(Path(module.path).parent, str(node.value))
    return None


def _stored_number(module: Module, settings: ast.expr) -> ast.expr | None:
    """N of `ds_config["gradient_accumulation_steps"] = N`; None where nothing is stored so."""
    for target in module.nodes(ast.Subscript):
        is_key = isinstance(target.slice, ast.Constant) and target.slice.value == KEY
        holder = module.scopes.parent.get(target)
        is_same = is_key and ast.unparse(target.value) == ast.unparse(settings)
        if is_same and isinstance(holder, ast.Assign):
            return holder.value
    return None


def _of_expression(module: Module, value: ast.expr) -> Accumulation | None:
    """The number that an expression gives; None where the library chooses it."""
    if module.flow.value(value) == "auto":
        return None
    return Accumulation(_whole_number(module, value), ast.unparse(value), value)


def _of_file(folder: Path, name: str) -> Accumulation | None:
    """The number in a file of settings that the code names."""
    document = read_document_in_folder_or_parents(folder, name)
    value = None if document is None else document.value.get(KEY)
    if document is None or not isinstance(value, int) or isinstance(value, bool):
        return None
    spot = document.position_of_key(KEY)
    line = spot.line if spot is not None else 1
    return Accumulation(value, str(value), None, document.path, line)


def _of_file_beside(script: Path) -> Accumulation | None:
    """The number in the one file of DeepSpeed's settings beside a script, whose command names it."""
    found: list[Accumulation | None] = []
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
            found.append(_of_file(script.parent, file.name))
    return found[0] if len(found) == 1 else None


def _remainder_of(module: Module, node: ast.AST) -> ast.BinOp | None:
    """The remainder in the condition under which a call of a loop is made, or after which one is left out."""
    inner = node
    for parent in module.parents(node):
        if isinstance(parent, ast.If) and inner in parent.body:
            remainder = _zero_remainder(parent.test, ast.Eq) or _negated(parent.test)
            if remainder is not None:
                return remainder
        if isinstance(parent, LOOPS):
            return _remainder_of_continue(parent, node)
        inner = parent
    return None


def _remainder_of_continue(
    loop: ast.For | ast.AsyncFor | ast.While, node: ast.AST
) -> ast.BinOp | None:
    """`if (i + 1) % n != 0: continue` before a call in the same loop"""
    for statement in loop.body:
        if statement.lineno >= getattr(node, "lineno", 0):
            break
        if isinstance(statement, ast.If) and isinstance(statement.body[-1], ast.Continue):
            test = statement.test
            remainder = _zero_remainder(test, ast.NotEq)
            if remainder is None and _is_remainder(test) and isinstance(test, ast.BinOp):
                remainder = test
            if remainder is not None:
                return remainder
    return None


def _zero_remainder(test: ast.expr, comparison: type[ast.cmpop]) -> ast.BinOp | None:
    """`x % n == 0`, also as a part of `... or i == last`, and compared with `n - 1`"""
    for part in ast.walk(test):
        if not isinstance(part, ast.Compare) or len(part.ops) != 1:
            continue
        if isinstance(part.ops[0], comparison) and _is_remainder(part.left):
            assert isinstance(part.left, ast.BinOp)
            return part.left
    return None


def _negated(test: ast.expr) -> ast.BinOp | None:
    """`not x % n`"""
    for part in ast.walk(test):
        is_not = isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.Not)
        if is_not and isinstance(part, ast.UnaryOp) and isinstance(part.operand, ast.BinOp):
            if _is_remainder(part.operand):
                return part.operand
    return None


def _is_remainder(node: ast.expr) -> bool:
    """`x % n`"""
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod)


def _counts(module: Module, remainder: ast.BinOp, accumulation: Accumulation) -> bool:
    """Does the loop wait for several batches, and the engine for several calls?"""
    by = module.flow.value(remainder.right)
    if isinstance(by, int) and by == 1:
        return False
    if accumulation.number is not None:
        return True
    return ast.unparse(remainder.right) == accumulation.text


def _divided(
    module: Module, loss: ast.expr, accumulation: Accumulation, library: str
) -> Iterator[CountedTwice]:
    """A loss that is divided by the number by which the library divides it as well."""
    for origin_node in (loss, *(origin.node for origin in module.flow.origins(loss))):
        if not isinstance(origin_node, ast.BinOp) or not isinstance(origin_node.op, ast.Div):
            continue
        number = module.flow.value(origin_node.right)
        is_same_number = accumulation.number not in (None, 1) and number == accumulation.number
        text = ast.unparse(origin_node.right)
        if is_same_number or text == accumulation.text or text.endswith(f".{KEY}"):
            yield CountedTwice(origin_node, accumulation, "loss", library, text)
            return


def _of_accelerate(module: Module) -> Iterator[CountedTwice]:
    """Losses that Accelerate divides as well, and steps that its own count never meets."""
    accumulation = _accumulation_of_call(module, ACCELERATE, KEY)
    if accumulation is None:
        return
    for call in module.methods("backward"):
        if "accelerator" in module.flow.types(call.receiver) and call.args:
            yield from _divided(module, call.args[0], accumulation, "accelerator.backward")
    for call in module.methods("step"):
        if "optimizer" not in module.flow.types(call.receiver) or not _is_in_accumulate(
            module, call.node
        ):
            continue
        remainder = _remainder_of(module, call.node)
        if remainder is not None and _misses_each_update(module, remainder, accumulation):
            by = ast.unparse(remainder.right)
            yield CountedTwice(call.node, accumulation, "never", "Accelerate", by)


def _misses_each_update(module: Module, remainder: ast.BinOp, accumulation: Accumulation) -> bool:
    """Does a condition hold at none of the batches at which Accelerate lets the optimizer step?

    It does so at batches n, 2n, ...: a count from 0 names the batch after each of them.
    """
    test = module.scopes.parent.get(remainder)
    if isinstance(test, ast.Compare) and module.flow.value(test.comparators[0]) != 0:
        return False  # `i % n == n - 1` names the very batch
    by = _whole_number(module, remainder.right)
    if by is not None and math.gcd(by, accumulation.number or by) == 1:
        return False  # every third batch is a fourth one now and then
    return _counts_from_zero(module, remainder.left)


def _accumulation_of_call(
    module: Module, patterns: tuple[str, ...], key: str
) -> Accumulation | None:
    """The number that the one call of a class is given; None where it is 1 or not given."""
    calls = list(module.calls(*patterns))
    value = calls[0].keywords.get(key) if len(calls) == 1 else None
    accumulation = None if value is None else _of_expression(module, value)
    return None if accumulation is None or accumulation.number == 1 else accumulation


def _is_in_accumulate(module: Module, node: ast.AST) -> bool:
    """Does it stand inside of `with accelerator.accumulate(model)`?"""
    return any(
        isinstance(parent, ast.With)
        and any("accumulate" in ast.unparse(item.context_expr) for item in parent.items)
        for parent in module.parents(node)
    )


def _counts_from_zero(module: Module, counter: ast.expr) -> bool:
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


def _of_lightning(module: Module) -> Iterator[CountedTwice]:
    """Losses of `training_step` that Lightning divides as well."""
    accumulation = _accumulation_of_call(module, LIGHTNING, "accumulate_grad_batches")
    if accumulation is None or module.mentions("automatic_optimization = False"):
        return
    for function in module.nodes(ast.FunctionDef):
        if function.name != "training_step":
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Return) and node.value is not None:
                yield from _divided(module, node.value, accumulation, "Lightning")
