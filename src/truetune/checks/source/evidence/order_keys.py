"""What an order goes by, and which end of it is the better one: `key=mean_rank` is followed to the ranks it reads.

How it works: the expression of a key is followed through means, casts, loops and the project's own helpers to the
column that it reads, and the name of that column (`score`, `rank`) says whether more is better.

The trade-off: a name that may mean either is not judged, and neither is a key of several columns.
"""

from __future__ import annotations

import ast
import re

from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.values_of_run import Attribute, Function, Result, Value

MORE_IS_BETTER = frozenset(
    (
        "score", "scores", "reward", "rewards", "rating", "ratings", "quality", "upvotes", "votes", "likes", "wins",
        "elo", "points", "grade", "helpfulness", "correctness", "overall", "accuracy", "karma", "stars",
    )
)  # fmt: skip
LESS_IS_BETTER = frozenset(
    (
        "rank", "ranks", "ranking", "loss", "perplexity", "ppl", "error", "errors", "distance", "penalty", "toxicity",
        "downvotes", "nll", "harm", "mistakes", "wer", "cer", "losses", "perplexities", "distances", "penalties",
    )
)  # fmt: skip
OPEN_NAMES = frozenset(("neg", "negative", "inverse", "inverted", "minus", "bad"))
"""Words that turn the meaning of a name around"""
AGGREGATES = frozenset(
    ("mean", "fmean", "nanmean", "average", "median", "nanmedian", "sum", "max", "min", "float", "int", "round",
     "values", "item", "tolist", "list", "sorted", "array", "tensor")
)  # fmt: skip
"""Calls and methods that leave the direction of what they are given as it is"""
HELPER_WORDS = frozenset(("key", "by", "sort", "order", "sorting"))
"""Words in names of functions that may turn a column around to sort by it"""
VERBS = ("rank", "ranking", "grade", "error")
"""Names of functions that say what is done, and not which end of the result is better"""
MAX_DEPTH = 8
WORDS = re.compile(r"[A-Za-z]+|\d+")


def key_of_function(key: Value) -> tuple[str, bool] | None:
    """The column that a key function reads: `lambda answer: -answer["score"]`, `itemgetter("score")`, `mean_rank`."""
    if isinstance(key, Result) and key.call.named("operator.itemgetter", "operator.attrgetter"):
        plain = constant_of(key.call.args[0]) if key.call.args else None
        return (plain, False) if isinstance(plain, str) else None
    if isinstance(key, Function):
        return _key_of_definition(key.definition, key.home, 0)
    if isinstance(key, Attribute) and key.name in ("get", "__getitem__"):
        name = name_of_node(key.base.node)
        return None if name is None else (name, False)
    return None


def is_more_better(name: str) -> bool | None:
    """Is more of it better? None where its name does not say."""
    words = {word.lower() for word in WORDS.findall(re.sub(r"([a-z])([A-Z])", r"\1_\2", name))}
    if words & OPEN_NAMES:
        return None
    if words & LESS_IS_BETTER:
        return False
    return True if words & MORE_IS_BETTER else None


def name_of_node(node: ast.AST | None) -> str | None:
    """`score` of `answer["score"]`, `answer.score`, `scores[i]` and `"score"`."""
    if isinstance(node, ast.Subscript):
        key = node.slice
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            return key.value
        return name_of_node(node.value)
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return None


def _key_of_definition(
    definition: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, home: Module, depth: int
) -> tuple[str, bool] | None:
    """The column that a function returns; by its own name where what it returns is too much to follow."""
    if isinstance(definition, ast.Lambda):
        return _column_of(definition.body, home, {}, depth)
    returned, names = _plain_body(definition)
    found = None if returned is None else _column_of(returned, home, names, depth)
    if found is not None and is_more_better(found[0]) is not None:
        return found
    return _key_by_name(definition.name)


def _key_by_name(name: str) -> tuple[str, bool] | None:
    """A function whose name says what it returns: `mean_rank`, and not `rank_key`, which may turn it around."""
    words = {word.lower() for word in WORDS.findall(name)}
    return None if words & HELPER_WORDS or name in VERBS else (name, False)


def _plain_body(
    definition: ast.FunctionDef | ast.AsyncFunctionDef,
) -> tuple[ast.expr | None, dict[str, ast.expr]]:
    """What a function returns at its end, and the names that it sets before; None where it has arms or loops."""
    names: dict[str, ast.expr] = {}
    for statement in definition.body:
        if isinstance(statement, ast.Return):
            return statement.value, names
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            names[statement.targets[0].id] = statement.value
        elif not isinstance(statement, ast.Expr):
            return None, names
    return None, names


def _column_of(
    node: ast.expr, home: Module, names: dict[str, ast.expr], depth: int
) -> tuple[str, bool] | None:
    """The column that an expression reads, and whether it is negated."""
    if depth > MAX_DEPTH:
        return None
    depth += 1
    if isinstance(node, ast.Name) and node.id in names:
        # Without the name itself: `rank = rank + 1` would be followed for ever.
        others = dict(names)
        return _column_of(others.pop(node.id), home, others, depth)
    if isinstance(node, ast.Tuple) and node.elts:
        return _column_of(node.elts[0], home, names, depth)
    if isinstance(node, ast.GeneratorExp | ast.ListComp):
        return _column_of_loop(node, home, names, depth)
    if isinstance(node, ast.UnaryOp | ast.BinOp):
        return _column_of_arithmetic(node, home, names, depth)
    if isinstance(node, ast.Call):
        return _column_of_call(node, home, names, depth)
    name = name_of_node(node)
    return None if name is None else (name, False)


def _negated(found: tuple[str, bool] | None) -> tuple[str, bool] | None:
    return None if found is None else (found[0], not found[1])


def _column_of_loop(
    node: ast.GeneratorExp | ast.ListComp, home: Module, names: dict[str, ast.expr], depth: int
) -> tuple[str, bool] | None:
    """`rank` of `(one["rank"] for one in answer["votes"])`, and `ranks` of `(r for r in answer["ranks"])`."""
    loop = node.generators[0]
    if isinstance(loop.target, ast.Name):
        names = {**names, loop.target.id: loop.iter}
    return _column_of(node.elt, home, names, depth)


def _column_of_arithmetic(
    node: ast.UnaryOp | ast.BinOp, home: Module, names: dict[str, ast.expr], depth: int
) -> tuple[str, bool] | None:
    """`-score`, `sum(ranks) / len(ranks)`, `-1 * score`, `5 - rank`; None where two columns are put together."""
    if isinstance(node, ast.UnaryOp):
        is_minus = isinstance(node.op, ast.USub)
        return _negated(_column_of(node.operand, home, names, depth)) if is_minus else None
    left, right = _number_of(node.left), _number_of(node.right)
    if isinstance(node.op, ast.Div) and left is None:
        return _column_of(node.left, home, names, depth)
    number, other = (left, node.right) if left is not None else (right, node.left)
    if number is None:
        return None
    found = _column_of(other, home, names, depth)
    is_turned = isinstance(node.op, ast.Sub | ast.Div) and left is not None
    if isinstance(node.op, ast.Mult):
        is_turned = number < 0
    return _negated(found) if is_turned else found


def _number_of(node: ast.expr) -> float | None:
    """A number that is written out, with its sign."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _number_of(node.operand)
        return None if inner is None else -inner
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return float(node.value)
    return None


def _column_of_call(
    node: ast.Call, home: Module, names: dict[str, ast.expr], depth: int
) -> tuple[str, bool] | None:
    """The column in a call: `answer.get("rank")`, `mean(answer["ranks"].values())`, a helper of the same file."""
    called = name_of_node(node.func)
    if called is None:
        return None
    if called == "get" and node.args:
        is_plain = isinstance(node.args[0], ast.Constant)
        return _column_of(node.args[0], home, {}, depth) if is_plain else None
    if called in AGGREGATES:
        inside = node.args[0] if node.args else getattr(node.func, "value", None)
        return None if inside is None else _column_of(inside, home, names, depth)
    helper = _helper_of(home, called)
    if helper is not None and isinstance(node.func, ast.Name):
        return _key_of_definition(helper, home, depth)
    return _key_by_name(called)


def _helper_of(home: Module, name: str) -> ast.FunctionDef | None:
    """The one function of a file that has this name."""
    named = [one for one in home.nodes(ast.FunctionDef) if one.name == name]
    return named[0] if len(named) == 1 else None
