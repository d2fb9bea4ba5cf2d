"""Finds labels that are the ids shifted by one token, however the code writes that.

Labels that begin at the second of their tokens are read: `ids[1:]`, `roll(ids, -1)`, `labels[:,
:-1] = ids[:, 1:]`. Names, casts and stacks are looked through, since each gives the same tokens
again.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.source.parsed_source_file import Module

MASKED_SHORT = re.compile(r"\[-100\] \* \(len\(.*?\) - 1\) \+ ")
"""A mask that is one token shorter than the prompt"""
CASTS = ("tensor", "as_tensor", "from_numpy", "LongTensor", "array", "asarray", "list", "stack")
"""Functions that make another container of the same tokens"""
SAME_TOKENS = frozenset(
    ("to", "cuda", "long", "clone", "copy", "contiguous", "detach", "view", "reshape", "squeeze")
    + ("unsqueeze", "pin_memory", "astype", "type", "int", "tolist", "numpy", "cpu", "flatten")
)
"""Methods that give the same tokens again"""
JOINS = ("cat", "concat", "concatenate", "pad")
"""Functions that put a filler behind tokens"""
MAX_STEPS = 8
"""Casts, stacks and names that are looked through. Chosen: the longest chain seen in scripts has five"""


def expression_leaving_first_token_out(module: Module, labels: ast.AST) -> ast.AST | None:
    """The expression that leaves out the first token of what the labels are made of; None where
    none does.
    """
    for node in sources_of_same_tokens(module, labels):
        if isinstance(node, ast.BinOp) and MASKED_SHORT.match(ast.unparse(node)):
            return node
        if isinstance(node, ast.Subscript) and _slice_drops_first_token_only(node):
            return node
        if isinstance(node, ast.Call) and _is_roll_left_by_one(node):
            return node
    return _slice_assignment_shifting_labels(module, labels)


def sources_of_same_tokens(module: Module, node: ast.AST) -> Iterator[ast.AST]:
    """The expressions that hold the same tokens from their first on, back to where they are cut or
    made.
    """
    waiting = [(node, 0)]
    while waiting:
        part, depth = waiting.pop()
        for origin in module.flow.origins(part):
            if origin.path or origin.element:
                continue
            yield origin.node
            inner = _source_of_first_tokens(origin.node)
            if inner is not None and depth < MAX_STEPS:
                waiting.append((inner, depth + 1))


def _source_of_first_tokens(node: ast.AST) -> ast.expr | None:
    """What a cast, a stack, a comprehension or a sum takes its first tokens from."""
    if isinstance(node, ast.BinOp):
        return node.left if isinstance(node.op, ast.Add) else None
    if isinstance(node, ast.ListComp | ast.GeneratorExp):
        return node.elt
    return _source_of_first_tokens_of_call(node) if isinstance(node, ast.Call) else None


def _source_of_first_tokens_of_call(node: ast.Call) -> ast.expr | None:
    """What a call takes its first tokens from; None where it may give other tokens."""
    name = _function_name(node.func)
    first = node.args[0] if node.args else None
    if name in JOINS and isinstance(first, ast.List | ast.Tuple):
        return first.elts[0] if first.elts else None
    if name in CASTS or (name == "pad" and len(node.args) > 1):
        return first
    # A method gives the tokens of its object again: `ids[1:].clone()`, `ids.to(device)`.
    if isinstance(node.func, ast.Attribute) and name in SAME_TOKENS:
        return node.func.value
    return None


def _function_name(function: ast.expr) -> str:
    """The last name of a function: `stack` of `torch.stack`."""
    return function.attr if isinstance(function, ast.Attribute) else ast.unparse(function)


def _is_roll_left_by_one(node: ast.Call) -> bool:
    """Is it `torch.roll(ids, -1)` or `ids.roll(shifts=-1)`?"""
    if _function_name(node.func) != "roll":
        return False
    shifts = [ast.unparse(word.value) for word in node.keywords if word.arg in ("shifts", "shift")]
    shifts += [ast.unparse(argument) for argument in node.args[:2]]
    return any(shift in ("-1", "(-1,)", "[-1]") for shift in shifts)


def _slice_assignment_shifting_labels(module: Module, labels: ast.AST) -> ast.AST | None:
    """The slice by which the tokens of a tensor are replaced by their successors: `labels[:, :-1] =
    ids[:, 1:]`; None otherwise.
    """
    if not isinstance(labels, ast.Name):
        return None
    for node in module.nodes(ast.Assign):
        target = node.targets[0]
        if not isinstance(target, ast.Subscript) or not isinstance(target.value, ast.Name):
            continue
        is_same = target.value.id == labels.id and module.scopes.scope_that_binds_name(
            target.value
        ) is module.scopes.scope_that_binds_name(labels)
        if (
            is_same
            and _slice_drops_last_token_only(target)
            and _leaves_first_token_out(module, node.value)
        ):
            return node
    return None


def _leaves_first_token_out(module: Module, value: ast.expr) -> bool:
    """Does a value leave out its first token, itself or under a cast?"""
    parts = sources_of_same_tokens(module, value)
    return any(
        isinstance(part, ast.Subscript) and _slice_drops_first_token_only(part) for part in parts
    )


def _slice_of_last_dimension(node: ast.Subscript) -> ast.Slice | None:
    """The slice of the last dimension; None where it is an index."""
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return parts[-1] if parts and isinstance(parts[-1], ast.Slice) else None


def _slice_drops_first_token_only(node: ast.Subscript) -> bool:
    """Does a slice leave out the first token alone: `x[1:]`, `x[:, 1:]`?"""
    last = _slice_of_last_dimension(node)
    if last is None or last.lower is None or last.upper:
        return False
    return ast.unparse(last.lower) == "1"


def _slice_drops_last_token_only(node: ast.Subscript) -> bool:
    """Does a slice leave out the last token alone: `x[:-1]`, `x[:, :-1]`?"""
    last = _slice_of_last_dimension(node)
    if last is None or last.lower is not None or last.upper is None:
        return False
    return ast.unparse(last.upper) == "-1"


def leaves_last_token_out(module: Module, ids: ast.expr) -> bool:
    """Are the ids cut before their last?"""
    return any(
        isinstance(part, ast.Subscript) and _slice_drops_last_token_only(part)
        for node in sources_of_same_tokens(module, ids)
        for part in ast.walk(node)
    )
