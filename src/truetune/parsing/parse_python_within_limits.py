"""Parses Python source and literals within limits on nesting and on whole numbers, so that code may
walk the tree by recursion.

Source is parsed and never run. Its tree is walked once here, so that rules may walk it by recursion without checking
its depth. A literal in a log is bounded much more tightly than a script: it is one record.
"""

from __future__ import annotations

import ast
import warnings
from typing import Any

from truetune.parsing.input_limits import (
    MAX_LITERAL_CHARACTERS,
    SOURCE,
    InputLimitError,
    Limits,
    refuse_too_large,
)

_MAX_BITS = 14_000
"""Python refuses to write a whole number of more than 4,300 digits; in hexadecimal it reads longer ones."""
_MAX_TERMS = 2_500
"""Terms of one sum; tests of truetune read 2,000."""
_MAX_BRACKETS = 20
"""Brackets of a literal in a log; a record of a trainer has none inside."""


def parse_python(text: str, limits: Limits = SOURCE) -> ast.Module:
    """The syntax tree. Raises InputLimitError, and SyntaxError or ValueError as `ast.parse` does."""
    refuse_too_large(len(text), limits)
    try:
        with warnings.catch_warnings():
            # A script with `"\d"` would print its SyntaxWarning into our own output.
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (RecursionError, MemoryError):
        raise InputLimitError(f"nested more than {limits.max_nesting} deep") from None
    _refuse_deep_tree_or_huge_numbers(tree, limits)
    return tree


def parse_literal(text: str) -> Any:
    """A Python literal, as logs print it. Raises InputLimitError, ValueError or SyntaxError."""
    if len(text) > MAX_LITERAL_CHARACTERS:
        raise InputLimitError(f"a literal of more than {MAX_LITERAL_CHARACTERS:,} characters")
    if text.count("(") + text.count("[") + text.count("{") > _MAX_BRACKETS:
        raise InputLimitError(f"a literal with more than {_MAX_BRACKETS} brackets")
    try:
        return ast.literal_eval(text)
    except (RecursionError, MemoryError, TypeError):
        # TypeError: {'a': {[]: 1}} has a key that can't be one
        raise InputLimitError("a literal that is nested too deeply, or no literal") from None


def _refuse_deep_tree_or_huge_numbers(tree: ast.Module, limits: Limits) -> None:
    """Raise InputLimitError if a syntax tree is too deep or holds a huge whole number. Nodes are
    followed without recursion.

    A sum of many terms (`a + b + c`) is nested to its left, one level a term. That is no nesting to a reader of the
    code, so the left side of an operator counts towards a limit of its own.
    """
    waiting: list[tuple[ast.AST, int, int]] = [(tree, 1, 0)]
    while waiting:
        node, depth, terms = waiting.pop()
        if depth > limits.max_nesting or terms > _MAX_TERMS:
            raise InputLimitError(
                f"nested more than {limits.max_nesting} deep", getattr(node, "lineno", None)
            )
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, int)
            and node.value.bit_length() > _MAX_BITS
        ):
            raise InputLimitError(
                f"a whole number of {node.value.bit_length():,} bits", node.lineno
            )
        for child in ast.iter_child_nodes(node):
            if isinstance(node, ast.BinOp) and child is node.left:
                waiting.append((child, depth, terms + 1))
            else:
                waiting.append((child, depth + 1, terms))
