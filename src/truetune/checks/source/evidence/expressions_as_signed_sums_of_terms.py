"""Writes an expression as a sum of terms with signs, through the names that it is made of.

How it works: sums, differences, products, means, `min` and `max` are taken apart, and names are replaced by the one
expression that they are set to. A term is what is left: a product of factors that are no sums. So a loss, or a reward,
can be asked in which direction it moves with an entropy, an advantage or a distance.

The trade-off: a name with several values, a function that is not known, and a product of two sums are terms of
their own, of which nothing is known but their words.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import NamedTuple

from truetune.source.parsed_source_file import Module

MAX_STEPS = 14
"""Names through which a term is followed; losses that are written out have five or six"""
MAX_TERMS = 24
"""Terms that a product of sums may have; losses have a handful"""
KEEPING = frozenset(
    ("mean", "sum", "float", "item", "squeeze", "view", "flatten", "to", "clone", "contiguous", "round", "int",
     "nanmean", "masked_mean", "log", "log2", "log1p", "sqrt", "exp", "tanh", "cpu", "unsqueeze", "reshape",
     "tensor", "double")
)  # fmt: skip
"""Functions and methods whose result grows with what they are given"""
EXTREMES = {"min": "min", "minimum": "min", "max": "max", "maximum": "max"}


class SignedTerm(NamedTuple):
    """One term of a sum."""

    sign: int
    factors: tuple[ast.expr, ...]
    """The expressions that are multiplied, constants left out"""
    extremes: tuple[tuple[str, int, ast.AST], ...]
    """The `min` and `max` of several terms around it, from the outside in, each with the sign that it has in the sum"""

    @property
    def names_and_texts_in_factors(self) -> list[str]:
        """The names, attributes and texts in the factors."""
        return [word for one in self.factors for word in names_and_texts_in_expression(one)]


def signed_terms(
    module: Module, node: ast.expr, is_leaf: Callable[[ast.expr], bool]
) -> list[SignedTerm]:
    """The terms of an expression.

    Args:
        module: The file of the expression.
        node: The expression.
        is_leaf: Tells expressions that are not taken apart, such as names that say what they are.

    Returns:
        Each term with the sign that it has in the sum.
    """
    return _signed_terms_within_name_steps(module, node, is_leaf, MAX_STEPS)


def names_and_texts_in_expression(node: ast.AST) -> list[str]:
    """The names, attributes and texts in an expression."""
    words = []
    for one in ast.walk(node):
        if isinstance(one, ast.Name):
            words.append(one.id)
        elif isinstance(one, ast.Attribute):
            words.append(one.attr)
        elif isinstance(one, ast.Constant) and isinstance(one.value, str):
            words.append(one.value)
    return words


def _signed_terms_within_name_steps(
    module: Module, node: ast.expr, is_leaf: Callable[[ast.expr], bool], steps: int
) -> list[SignedTerm]:
    """The terms of an expression, through so many more names."""
    leaf = [SignedTerm(1, (node,), ())]
    if steps <= 0 or is_leaf(node):
        return leaf
    if isinstance(node, ast.Constant):
        return []
    if isinstance(node, ast.BinOp):
        return _terms_of_operation(module, node, is_leaf, steps - 1) or leaf
    if isinstance(node, ast.Call):
        return _terms_of_call(module, node, is_leaf, steps - 1) or leaf
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _terms_with_opposite_sign(
            _signed_terms_within_name_steps(module, node.operand, is_leaf, steps - 1)
        )
    values = _expressions_with_same_terms(module, node)
    if not values:
        return leaf
    return _terms_of_all(module, values, is_leaf, steps - 1)


def _terms_of_all(
    module: Module, nodes: list[ast.expr], is_leaf: Callable[[ast.expr], bool], steps: int
) -> list[SignedTerm]:
    """The terms of several expressions, one after the other."""
    return [
        term
        for one in nodes
        for term in _signed_terms_within_name_steps(module, one, is_leaf, steps)
    ]


def _expressions_with_same_terms(module: Module, node: ast.expr) -> list[ast.expr]:
    """The expressions whose terms are those of another: both of an `if`, `a` of `a[i]`, what a name is set to."""
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Constant):
        return [node.value]
    value = _value_of_name(module, node) if isinstance(node, ast.Name) else None
    return [] if value is None else [value]


def _terms_with_opposite_sign(terms: list[SignedTerm]) -> list[SignedTerm]:
    """The same terms with the other sign."""
    return [
        term._replace(
            sign=-term.sign,
            extremes=tuple((name, -sign, node) for name, sign, node in term.extremes),
        )
        for term in terms
    ]


def _terms_of_operation(
    module: Module, node: ast.BinOp, is_leaf: Callable[[ast.expr], bool], steps: int
) -> list[SignedTerm]:
    """The terms of a sum, a difference, a product or a quotient."""
    left = _signed_terms_within_name_steps(module, node.left, is_leaf, steps)
    right = _signed_terms_within_name_steps(module, node.right, is_leaf, steps)
    if isinstance(node.op, ast.Add):
        return left + right
    if isinstance(node.op, ast.Sub):
        return left + _terms_with_opposite_sign(right)
    if isinstance(node.op, ast.Mult):
        return _terms_of_product(module, node, left, right)
    if isinstance(node.op, ast.Div):
        return _terms_of_quotient(module, node, left, right)
    return []


def _terms_of_product(
    module: Module, node: ast.BinOp, left: list[SignedTerm], right: list[SignedTerm]
) -> list[SignedTerm]:
    """The terms of a product: of a sum and a factor, or of two sums that are short."""
    for factor, terms in ((node.left, right), (node.right, left)):
        number = module.flow.value(factor)
        if isinstance(number, int | float) and not isinstance(number, bool):
            return _terms_with_opposite_sign(terms) if number < 0 else terms
    if not left or not right or len(left) * len(right) > MAX_TERMS:
        return []
    return [
        SignedTerm(
            one.sign * two.sign,
            one.factors + two.factors,
            _min_max_wrappers_after_multiplying(one, two.sign)
            + _min_max_wrappers_after_multiplying(two, one.sign),
        )
        for one in left
        for two in right
    ]


def _min_max_wrappers_after_multiplying(
    term: SignedTerm, sign: int
) -> tuple[tuple[str, int, ast.AST], ...]:
    """The extremes around a term after it was multiplied by a factor of that sign."""
    return tuple((name, one * sign, node) for name, one, node in term.extremes)


def _terms_of_quotient(
    module: Module, node: ast.BinOp, left: list[SignedTerm], right: list[SignedTerm]
) -> list[SignedTerm]:
    """The terms of a quotient: those above the line; of `1 / x`, those below it the other way round."""
    number = module.flow.value(node.left)
    if isinstance(number, int | float):
        return _terms_with_opposite_sign(right) if number > 0 else right
    return left


def _terms_of_call(
    module: Module, node: ast.Call, is_leaf: Callable[[ast.expr], bool], steps: int
) -> list[SignedTerm]:
    """The terms of a call that grows with its arguments; nothing for any other."""
    function = node.func
    last = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    owner = _owner_of_method(module, function)
    values = list(node.args) if owner is None else [owner, *node.args]
    if last in EXTREMES and len(values) > 1:
        return _terms_of_min_or_max(module, node, EXTREMES[last], is_leaf, steps)
    if last in KEEPING and values:
        return _signed_terms_within_name_steps(module, values[0], is_leaf, steps)
    return []


def _owner_of_method(module: Module, function: ast.expr) -> ast.expr | None:
    """The `x` of `x.mean`; None for a function, also for one of a library, such as `torch.mean`."""
    if not isinstance(function, ast.Attribute):
        return None
    name = module.flow.name(function) or ""
    return None if name.startswith(("torch.", "numpy.", "math.")) else function.value


def _terms_of_min_or_max(
    module: Module, node: ast.Call, name: str, is_leaf: Callable[[ast.expr], bool], steps: int
) -> list[SignedTerm]:
    """The terms of `min(a, b)` and `max(a, b)`, each with the extreme around it."""
    terms = _terms_of_all(module, node.args, is_leaf, steps)
    around = (name, 1, node)
    return [term._replace(extremes=(around, *term.extremes)) for term in terms]


def _value_of_name(module: Module, name: ast.Name) -> ast.expr | None:
    """The one expression that a name is set to, also as one of a tuple's."""
    bindings = module.scopes.bindings_that_reach(name)
    if len(bindings) != 1 or bindings[0].kind != "value":
        return None
    value = bindings[0].value
    for place in bindings[0].path:
        if not isinstance(value, ast.Tuple | ast.List) or place >= len(value.elts):
            return None
        value = value.elts[place]
    return value if isinstance(value, ast.expr) else None


def has_word(words: list[str], pattern: re.Pattern[str]) -> bool:
    """Is one of some words like a pattern?"""
    return any(pattern.search(word) for word in words)
