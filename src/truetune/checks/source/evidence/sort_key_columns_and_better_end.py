"""Finds the column that an order goes by, and which end of it is the better one:

`key=mean_rank` is followed to the ranks it reads.

How it works: the expression of a key is followed through means, casts, loops and the project's own
helpers to the column that it reads, and the name of that column (`score`, `rank`) says whether more
is better.

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
"""Casts, sums and helpers inside one another that a key is followed through. Chosen by hand: beyond it
the key counts as not known
"""
WORDS = re.compile(r"[A-Za-z]+|\d+")


def column_and_negation_of_key_function(key: Value) -> tuple[str, bool] | None:
    """The column that a key function reads, and whether it is negated: `lambda answer:
    -answer["score"]`, `itemgetter("score")`, `mean_rank`; None where it is not known.
    """
    if isinstance(key, Result) and key.call.named("operator.itemgetter", "operator.attrgetter"):
        plain = constant_of(key.call.args[0]) if key.call.args else None
        return (plain, False) if isinstance(plain, str) else None
    if isinstance(key, Function):
        return _column_and_negation_of_definition(key.definition, key.home, 0)
    if isinstance(key, Attribute) and key.name in ("get", "__getitem__"):
        name = last_name_of_node(key.base.node)
        return None if name is None else (name, False)
    return None


def is_higher_better(name: str) -> bool | None:
    """Is a higher value of this name better? None where the name does not say."""
    words = {word.lower() for word in WORDS.findall(re.sub(r"([a-z])([A-Z])", r"\1_\2", name))}
    if words & OPEN_NAMES:
        return None
    if words & LESS_IS_BETTER:
        return False
    return True if words & MORE_IS_BETTER else None


def last_name_of_node(node: ast.AST | None) -> str | None:
    """The last name or text of a node: `score` of `answer["score"]`, `answer.score`, `scores[i]`
    and `"score"`; None without one.
    """
    if isinstance(node, ast.Subscript):
        key = node.slice
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            return key.value
        return last_name_of_node(node.value)
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return None


def _column_and_negation_of_definition(
    definition: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, home: Module, depth: int
) -> tuple[str, bool] | None:
    """The column that a function returns; by its own name where what it returns is too much to
    follow.
    """
    if isinstance(definition, ast.Lambda):
        return _column_and_negation_of_expression(definition.body, home, {}, depth)
    returned, names = _returned_value_and_earlier_assignments(definition)
    found = (
        None
        if returned is None
        else _column_and_negation_of_expression(returned, home, names, depth)
    )
    if found is not None and is_higher_better(found[0]) is not None:
        return found
    return _column_and_negation_by_name(definition.name)


def _column_and_negation_by_name(name: str) -> tuple[str, bool] | None:
    """The column that a function's name says it returns, as `mean_rank` does; None for others, such
    as `rank_key`, which may turn it around.
    """
    words = {word.lower() for word in WORDS.findall(name)}
    return None if words & HELPER_WORDS or name in VERBS else (name, False)


def _returned_value_and_earlier_assignments(
    definition: ast.FunctionDef | ast.AsyncFunctionDef,
) -> tuple[ast.expr | None, dict[str, ast.expr]]:
    """What a function returns at its end, and the names that it sets before; None where it has arms
    or loops.
    """
    names: dict[str, ast.expr] = {}
    for statement in definition.body:
        if isinstance(statement, ast.Return):
            return statement.value, names
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            names[statement.targets[0].id] = statement.value
        elif not isinstance(statement, ast.Expr):
            return None, names
    return None, names


def _column_and_negation_of_expression(
    node: ast.expr, home: Module, names: dict[str, ast.expr], depth: int
) -> tuple[str, bool] | None:
    """The column that an expression reads, and whether it is negated."""
    if depth > MAX_DEPTH:
        return None
    depth += 1
    if isinstance(node, ast.Name) and node.id in names:
        # Without the name itself: `rank = rank + 1` would be followed for ever.
        others = dict(names)
        return _column_and_negation_of_expression(others.pop(node.id), home, others, depth)
    if isinstance(node, ast.Tuple) and node.elts:
        return _column_and_negation_of_expression(node.elts[0], home, names, depth)
    if isinstance(node, ast.GeneratorExp | ast.ListComp):
        return _column_and_negation_of_comprehension(node, home, names, depth)
    if isinstance(node, ast.UnaryOp | ast.BinOp):
        return _column_and_negation_of_arithmetic(node, home, names, depth)
    if isinstance(node, ast.Call):
        return _column_and_negation_of_call(node, home, names, depth)
    name = last_name_of_node(node)
    return None if name is None else (name, False)


def _with_negation_flipped(found: tuple[str, bool] | None) -> tuple[str, bool] | None:
    """The same column with the other sign; None stays None."""
    return None if found is None else (found[0], not found[1])


def _column_and_negation_of_comprehension(
    node: ast.GeneratorExp | ast.ListComp, home: Module, names: dict[str, ast.expr], depth: int
) -> tuple[str, bool] | None:
    """The column that a comprehension reads: `rank` of `(one["rank"] for one in answer["votes"])`,
    `ranks` of `(r for r in answer["ranks"])`; None otherwise.
    """
    loop = node.generators[0]
    if isinstance(loop.target, ast.Name):
        names = {**names, loop.target.id: loop.iter}
    return _column_and_negation_of_expression(node.elt, home, names, depth)


def _column_and_negation_of_arithmetic(
    node: ast.UnaryOp | ast.BinOp, home: Module, names: dict[str, ast.expr], depth: int
) -> tuple[str, bool] | None:
    """The column in arithmetic, and whether it is negated; None where two columns are put together.

    `-score`, `sum(ranks) / len(ranks)`, `-1 * score`, `5 - rank`.
    """
    if isinstance(node, ast.UnaryOp):
        is_minus = isinstance(node.op, ast.USub)
        return (
            _with_negation_flipped(
                _column_and_negation_of_expression(node.operand, home, names, depth)
            )
            if is_minus
            else None
        )
    left, right = _written_number(node.left), _written_number(node.right)
    if isinstance(node.op, ast.Div) and left is None:
        return _column_and_negation_of_expression(node.left, home, names, depth)
    number, other = (left, node.right) if left is not None else (right, node.left)
    if number is None:
        return None
    found = _column_and_negation_of_expression(other, home, names, depth)
    is_turned = isinstance(node.op, ast.Sub | ast.Div) and left is not None
    if isinstance(node.op, ast.Mult):
        is_turned = number < 0
    return _with_negation_flipped(found) if is_turned else found


def _written_number(node: ast.expr) -> float | None:
    """The number that is written out in the code, with its sign; None for other expressions."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _written_number(node.operand)
        return None if inner is None else -inner
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return float(node.value)
    return None


def _column_and_negation_of_call(
    node: ast.Call, home: Module, names: dict[str, ast.expr], depth: int
) -> tuple[str, bool] | None:
    """The column in a call: `answer.get("rank")`, `mean(answer["ranks"].values())`, a helper of the
    same file.
    """
    called = last_name_of_node(node.func)
    if called is None:
        return None
    if called == "get" and node.args:
        is_plain = isinstance(node.args[0], ast.Constant)
        return (
            _column_and_negation_of_expression(node.args[0], home, {}, depth) if is_plain else None
        )
    if called in AGGREGATES:
        inside = node.args[0] if node.args else getattr(node.func, "value", None)
        return (
            None
            if inside is None
            else _column_and_negation_of_expression(inside, home, names, depth)
        )
    helper = _only_function_named(home, called)
    if helper is not None and isinstance(node.func, ast.Name):
        return _column_and_negation_of_definition(helper, home, depth)
    return _column_and_negation_by_name(called)


def _only_function_named(home: Module, name: str) -> ast.FunctionDef | None:
    """The one function of a file that has this name."""
    named = [one for one in home.nodes(ast.FunctionDef) if one.name == name]
    return named[0] if len(named) == 1 else None
