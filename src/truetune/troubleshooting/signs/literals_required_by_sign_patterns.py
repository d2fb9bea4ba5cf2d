"""Finds the literals that a text must hold for a pattern to match in it: a fast test before the
slow search.

How it works: the tree that `re` itself parses a pattern into is walked for literals that each match has to hold, one of
them for each alternative. `in` searches them some fifty times as fast as a pattern is searched, and of 800 patterns a
file matches few. The trade-off: the parser of `re` is not public. Where it is missing or its tree is not understood, no
literal is required, and patterns are searched as they are.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

# More alternatives are searched no faster than the pattern.
MAX_ALTERNATIVES = 40
MIN_CHARACTERS = 2
"""A single letter stands in every file"""


@cache
def literals_of_which_one_is_required(pattern: str) -> frozenset[str]:
    """Literals in lower case of which a matching text, in lower case, holds at least one; empty where none is known."""
    try:
        parser = importlib.import_module("re._parser")
        tree = parser.parse(pattern, re.MULTILINE)
        return _literals_of_sequence(tree) or frozenset()
    except (ImportError, AttributeError, TypeError, ValueError, RecursionError):
        return frozenset()


def _literals_of_sequence(items: Iterable[tuple[Any, Any]]) -> frozenset[str] | None:
    """The best literals that a sequence of items requires: each match has to hold all its items."""
    choices: list[frozenset[str]] = []
    run = ""
    for operation, argument in items:
        if str(operation) == "LITERAL":
            run += chr(argument)
            continue
        choices.append(frozenset((run.lower(),)))
        run = ""
        inner = _literals_of_item(str(operation), argument)
        if inner is not None:
            choices.append(inner)
    choices.append(frozenset((run.lower(),)))
    best = max(choices, key=lambda one: (min(map(len, one)), -len(one)))
    return best if min(map(len, best)) >= MIN_CHARACTERS else None


def _literals_of_item(operation: str, argument: Any) -> frozenset[str] | None:
    """The literals that one item of a pattern requires; None for one that requires nothing that is
    known.
    """
    if operation == "SUBPATTERN":
        return _literals_of_sequence(argument[-1])
    if operation == "ATOMIC_GROUP":
        return _literals_of_sequence(argument)
    if operation in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT") and argument[0] >= 1:
        return _literals_of_sequence(argument[-1])
    return _literals_of_branches(argument[1]) if operation == "BRANCH" else None


def _literals_of_branches(branches: Sequence[Iterable[tuple[Any, Any]]]) -> frozenset[str] | None:
    """The literals that alternatives require, one of which a match holds; None where one
    alternative requires nothing.
    """
    literals: set[str] = set()
    for branch in branches:
        inner = _literals_of_sequence(branch)
        if inner is None:
            return None
        literals |= inner
    return frozenset(literals) if len(literals) <= MAX_ALTERNATIVES else None
