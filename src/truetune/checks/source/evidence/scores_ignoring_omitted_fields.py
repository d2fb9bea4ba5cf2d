"""Finds scores that go over the fields of a prediction only, so that what the prediction leaves out
is not counted.

How it works: names say which of two mappings is the model's (`pred`, `answer`). Silent wherever the
file uses the other one for more than looking fields up: it may count what is missing there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.wrong_score_counts_in_loops import (
    ANSWER_READER_NAME,
    ANSWER_VALUE_NAME,
    MEAN_NAME,
    REFERENCE_NAME,
    counter_raised_by,
    is_divisor_of_score,
    is_precision,
)
from truetune.source.parsed_source_file import Module

FILLS_FIELDS = ("setdefault", "fromkeys", "model_dump", "asdict", "model_validate")
"""Calls after which a mapping has all fields"""


class FieldScore(NamedTuple):
    """A score over the fields of a prediction."""

    node: ast.AST
    """The loop, or the comprehension"""
    given: str
    """The mapping of the prediction"""
    reference: str
    counter: str
    """What the score is divided by"""


def scores_over_predicted_fields_only(module: Module) -> Iterator[FieldScore]:
    """The scores of a file that count the fields of a prediction and no others."""
    for loop in module.nodes(ast.For):
        fields = _mapping_and_key_looped_over(loop.target, loop.iter)
        if fields is None or not _is_answer_without_filled_fields(module, fields[0]):
            continue
        reference = _other_mapping_looked_up(loop.body, fields[1], fields[0])
        if reference is None or not _is_only_looked_up(module, reference):
            continue
        for statement in ast.walk(loop):
            name = counter_raised_by(statement) if isinstance(statement, ast.stmt) else None
            if name is not None and is_divisor_of_score(module, loop, name):
                yield FieldScore(loop, ast.unparse(fields[0]), ast.unparse(reference), name)
                break
    yield from _field_scores_of_comprehensions(module)


def _field_scores_of_comprehensions(module: Module) -> Iterator[FieldScore]:
    """The field scores that are the mean of a comprehension.

    `sum(gold.get(k) == v for k, v in pred.items()) / len(pred)`, and the mean of such a list.
    """
    for node in module.nodes(ast.BinOp, ast.Call):
        made, counter = _averaged_comprehension_and_divisor(node)
        if made is None or len(made.generators) != 1:
            continue
        generator = made.generators[0]
        fields = _mapping_and_key_looped_over(generator.target, generator.iter)
        if fields is None or not _is_answer_without_filled_fields(module, fields[0]):
            continue
        given = ast.unparse(fields[0])
        reference = _other_mapping_looked_up([made.elt], fields[1], fields[0])
        is_own = counter in ("", f"len({given})") and not is_precision(module, node)
        if reference is not None and is_own and _is_only_looked_up(module, reference):
            yield FieldScore(made, given, ast.unparse(reference), f"len({given})")


def _averaged_comprehension_and_divisor(
    node: ast.AST,
) -> tuple[ast.GeneratorExp | ast.ListComp | None, str]:
    """The comprehension that a mean is made of, and the divisor, empty where a function divides."""
    call: ast.AST
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        call, counter = node.left, ast.unparse(node.right)
        is_sum = isinstance(call, ast.Call) and ast.unparse(call.func) == "sum"
    else:
        call, counter = node, ""
        is_sum = isinstance(call, ast.Call) and bool(MEAN_NAME.search(ast.unparse(call.func)))
    if not is_sum or not isinstance(call, ast.Call) or not call.args:
        return None, ""
    made = call.args[0]
    return (made, counter) if isinstance(made, ast.GeneratorExp | ast.ListComp) else (None, "")


def _mapping_and_key_looped_over(target: ast.expr, rows: ast.expr) -> tuple[ast.expr, str] | None:
    """(mapping, name of the key) of `for key, value in pred.items()` and `for key in pred`; None of
    other loops.
    """
    mapping: ast.expr | None = rows
    key: ast.expr | None = target
    if isinstance(rows, ast.Call):
        if rows.args or not isinstance(rows.func, ast.Attribute):
            return None
        if rows.func.attr not in ("items", "keys"):
            return None
        mapping = rows.func.value
        if rows.func.attr == "items":
            key = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else None
    if not isinstance(key, ast.Name) or not isinstance(mapping, ast.Name | ast.Subscript):
        return None
    text = ast.unparse(mapping)
    is_answer = ANSWER_VALUE_NAME.search(text) and not REFERENCE_NAME.search(text)
    return (mapping, key.id) if is_answer else None


def _other_mapping_looked_up(
    body: list[ast.stmt] | list[ast.expr], key: str, expression: ast.expr
) -> ast.Name | None:
    """The other mapping in which the key is looked up; None where there is none, or another one
    than a name.
    """
    own = ast.unparse(expression)
    for node in (part for one in body for part in ast.walk(one)):
        holder = _mapping_looked_up(node, key)
        if isinstance(holder, ast.Name) and holder.id != own and REFERENCE_NAME.search(holder.id):
            return holder
    return None


def _mapping_looked_up(node: ast.AST, key: str) -> ast.expr | None:
    """The mapping in which a key is looked up: `gold` of `gold[key]` and of `gold.get(key)`; None
    for any other expression.
    """
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        return node.value if ast.unparse(node.slice) == key else None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
        return None
    is_get = node.func.attr == "get" and ast.unparse(node.args[0]) == key
    return node.func.value if is_get else None


def _is_only_looked_up(module: Module, reference: ast.Name) -> bool:
    """Is the reference nowhere gone through, counted or compared as a whole, where missing fields
    would show?
    """
    around = module.scopes.of[reference]
    for node in module.nodes(ast.Name):
        if node.id != reference.id or not isinstance(node.ctx, ast.Load):
            continue
        if module.scopes.of[node] is not around and not _one_is_inside_comprehension(
            module, node, reference
        ):
            continue
        parent = module.scopes.parent.get(node)
        is_key = isinstance(parent, ast.Subscript) and parent.value is node
        is_get = isinstance(parent, ast.Attribute) and parent.attr == "get"
        is_test = isinstance(parent, ast.Compare) and isinstance(parent.ops[0], ast.In | ast.NotIn)
        if not (is_key or is_get or is_test):
            return False
    return True


def _one_is_inside_comprehension(module: Module, node: ast.Name, reference: ast.Name) -> bool:
    """Does one of the two stand in a comprehension of the other's function?"""
    around = {id(part) for part in module.parents(reference)}
    return any(
        isinstance(part, ast.FunctionDef) and id(part) in around for part in module.parents(node)
    ) or not any(isinstance(part, ast.FunctionDef) for part in module.parents(node))


def _is_answer_without_filled_fields(module: Module, expression: ast.expr) -> bool:
    """Is a mapping what was read out of an answer, with no step that gives it all fields?"""
    if isinstance(expression, ast.Subscript):
        return True
    if not isinstance(expression, ast.Name):
        return False
    values = [
        node.value
        for node in module.nodes(ast.Assign)
        if any(isinstance(one, ast.Name) and one.id == expression.id for one in node.targets)
    ]
    return all(_is_parsed_answer(module, value) for value in values)


def _is_parsed_answer(module: Module, value: ast.expr) -> bool:
    """Is a value read out of an answer without a step that fills in fields: `json.loads(...)`,
    `parse(text)`, `row["prediction"]`?
    """
    if isinstance(value, ast.Subscript | ast.Name):
        return True
    if isinstance(value, ast.Dict):
        return not value.keys  # {} where nothing could be read
    if not isinstance(value, ast.Call) or any(one in ast.unparse(value) for one in FILLS_FIELDS):
        return False
    name = ast.unparse(value.func)
    is_reader = ANSWER_READER_NAME.search(name) is not None or name.endswith(".get")
    functions = (one for one in module.nodes(ast.FunctionDef) if one.name == name)
    return is_reader and not any(map(_may_fill_fields, functions))


def _may_fill_fields(function: ast.FunctionDef) -> bool:
    """May a function give a mapping all fields: by a loop over them, or by a call that does?"""
    for node in ast.walk(function):
        if isinstance(node, ast.DictComp | ast.For):
            return True
        if isinstance(node, ast.Attribute) and node.attr in FILLS_FIELDS:
            return True
    return False
