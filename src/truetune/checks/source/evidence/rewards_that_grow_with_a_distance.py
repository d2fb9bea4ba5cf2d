"""Finds reward functions that pay for a distance: they grow where the completion is further from what is wanted.

How it works: what a reward function returns for a completion is written as a sum of terms with signs. A distance is
`abs(a - b)`, `(a - b) ** 2`, or a call of a function that measures one (an edit distance, an error rate), of the
completion. A reward that falls with it (`-distance`, `1 - distance`, `1 / (1 + distance)`, `exp(-distance)`) is right.

The trade-off: a function whose name says that the distance is wanted (novelty, diversity), or that is a penalty, and
trainers that give their rewards weights, are left alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.expressions_as_signed_sums_of_terms import (
    SignedTerm,
    signed_terms,
)
from truetune.checks.source.evidence.rewards_without_difference import reward_functions_of_file
from truetune.source.parsed_source_file import Module

DISTANCES = re.compile(
    r"^(?:levenshtein(?:_distance)?|edit_?distance|distance|hamming(?:_distance)?|damerau\w*|wer|cer|mse|mae"
    r"|mean_(?:squared|absolute)_error|mse_loss|l1_loss|euclidean|l2_distance|ter)$",
    re.I,
)
"""Names of functions that measure a distance"""
DISTANCE_MODULES = (
    "Levenshtein.",
    "editdistance.",
    "jiwer.",
    "nltk.edit_distance",
    "rapidfuzz.distance.",
)
NO_DISTANCES = re.compile(r"normalized_similarity|similarity|ratio", re.I)
WANTED = re.compile(
    r"penal|novel|divers|differ|distinct|unlike|repuls|cost|distance|error|loss|paraphras|rewrit|copy|copies"
    r"|original",
    re.I,
)
"""Words in a function's name by which a distance is wanted (from a text that is not to be copied), or by which it is no
reward
"""


ARGUMENTS_OF_VERL = frozenset(("solution_str", "ground_truth"))
"""Of the function that gives the reward of one answer"""


class RewardedDistance(NamedTuple):
    """A reward function that grows with a distance."""

    function: ast.FunctionDef
    distance: ast.expr


def rewarded_distances(module: Module) -> Iterator[RewardedDistance]:
    """The reward functions of a file whose rewards grow with a distance, each once."""
    if "reward_weights" in module.text:
        return
    for function in scoring_functions(module):
        if WANTED.search(function.name):
            continue
        expression = _distance_all_rewards_grow_with(module, function)
        if expression is not None:
            yield RewardedDistance(function, expression)


def scoring_functions(module: Module) -> Iterator[ast.FunctionDef]:
    """The functions of a file that give rewards: those of GRPO, and verl's `compute_score`."""
    yield from reward_functions_of_file(module)
    for function in module.nodes(ast.FunctionDef):
        names = {one.arg for one in (*function.args.args, *function.args.kwonlyargs)}
        if names >= ARGUMENTS_OF_VERL:
            yield function


def _distance_all_rewards_grow_with(module: Module, function: ast.FunctionDef) -> ast.expr | None:
    """The distance with which all rewards of a function grow; None where one falls with it, or none is seen."""
    terms: list[SignedTerm] = []
    for reward in _single_reward_expressions(function):
        found = signed_terms(module, reward, _is_distance)
        terms += [term for term in found if any(_is_distance(one) for one in term.factors)]
    if not terms or any(term.sign < 0 for term in terms):
        return None
    return next(one for one in terms[0].factors if _is_distance(one))


def _single_reward_expressions(function: ast.FunctionDef) -> Iterator[ast.expr]:
    """The expressions of single rewards: what a comprehension is made of, what a list gets appended."""
    returned = [one.value for one in ast.walk(function) if isinstance(one, ast.Return)]
    yield from _rewards_in_returned_values(function, returned)
    names = {one.id for one in returned if isinstance(one, ast.Name)}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and _is_name_in(names, *node.targets):
            if isinstance(node.value, ast.ListComp):
                yield node.value.elt
        elif isinstance(node, ast.Call) and _is_append_to(names, node):
            yield node.args[0]


def _rewards_in_returned_values(
    function: ast.FunctionDef, returned: list[ast.expr | None]
) -> Iterator[ast.expr]:
    """The rewards that a function returns as they are: in a comprehension, or one where it judges one answer."""
    judges_one_answer = {one.arg for one in function.args.args} >= ARGUMENTS_OF_VERL
    for value in returned:
        if isinstance(value, ast.ListComp):
            yield value.elt
        elif judges_one_answer and value is not None:
            yield value


def _is_name_in(names: set[str], *nodes: ast.expr) -> bool:
    """Is one of some expressions one of these names?"""
    return any(isinstance(node, ast.Name) and node.id in names for node in nodes)


def _is_append_to(names: set[str], call: ast.Call) -> bool:
    """Does a call append something to a list of one of these names?"""
    if not isinstance(call.func, ast.Attribute) or not _is_name_in(names, call.func.value):
        return False
    return call.func.attr == "append" and bool(call.args)


def _is_distance(node: ast.expr) -> bool:
    """Is an expression a distance between two values?"""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        is_square = isinstance(node.right, ast.Constant) and node.right.value == 2
        return is_square and _is_difference(node.left)
    return isinstance(node, ast.Call) and _is_call_of_distance(node)


def _is_difference(node: ast.expr) -> bool:
    """Is an expression `a - b`?"""
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub)


def _is_call_of_distance(call: ast.Call) -> bool:
    """Is a call `abs(a - b)`, or one of a function that measures a distance?"""
    last = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if last in ("abs", "fabs") and call.args:
        return _is_difference(call.args[0])
    text = ast.unparse(call.func)
    if NO_DISTANCES.search(text):
        return False
    return DISTANCES.search(last) is not None or text.startswith(DISTANCE_MODULES)
