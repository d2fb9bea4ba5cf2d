"""Plain values: what is proved to hold no field of a conversation, and so is the same for every row of a recipe.

Proved by exact type: a value of any class that is not named here might carry a field inside. The trade-off: an object
that holds none (a namespace of numbers) counts as not plain, and its template loses its recipe.
"""

from __future__ import annotations

from typing import Any

from jinja2.runtime import Undefined

SCALARS = frozenset((str, int, float, bool, type(None)))
"""By exact type: a `Traced` is a str, too"""


def is_plain(value: Any) -> bool:
    """Is it proved to hold no field? True for scalars and for containers of nothing else."""
    if type(value) in SCALARS:
        return True
    if isinstance(value, list | tuple):
        return all(is_plain(item) for item in value)
    if isinstance(value, dict):
        return all(is_plain(key) and is_plain(item) for key, item in value.items())
    # An undefined value holds a name and a hint for errors; a range holds integers.
    return isinstance(value, Undefined | range)


def is_comparable(value: Any) -> bool:
    """Is it plain text, whose comparison `Traced` notes, or a scalar, which no text equals or orders with?"""
    return type(value) in SCALARS or isinstance(value, Undefined)


def is_container(value: Any) -> bool:
    """Is it a list, tuple or mapping, which no text equals?"""
    return isinstance(value, list | tuple | dict)
