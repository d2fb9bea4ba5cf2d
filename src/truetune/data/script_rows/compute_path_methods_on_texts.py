"""Computes attributes and methods of a script's file paths, which a run with rows keeps as texts.

The trade-off: no link is followed and no relative path is made absolute. The folders of the script and of the command
are tried for a relative one when a file is read.
"""

from __future__ import annotations

from os.path import normpath
from pathlib import PurePath
from typing import Any

from truetune.source.symbolic_execution.values_of_run import Constant, Sequence, Value

MAX_PARENTS = 16
"""Parents that are told: deeper ones lie outside of every project"""
SAME_PATH_METHODS = ("resolve", "absolute", "expanduser", "as_posix")
PART_ATTRIBUTES = ("name", "stem", "suffix")


def attribute_of_path(path: str, name: str) -> Value | None:
    """The value of a path's attribute: a parent folder, or a part of its name; None for any other."""
    if name == "parent":
        return Constant(_parent_path(path, 1))
    if name == "parents":
        above: list[Value] = [
            Constant(_parent_path(path, steps)) for steps in range(1, MAX_PARENTS + 1)
        ]
        return Sequence("tuple", above)
    if name in PART_ATTRIBUTES:
        return Constant(getattr(PurePath(path), name))
    return None


def path_from_method(path: str, method: str, given: list[Any]) -> Value | None:
    """The path that a method of a path returns; None for any other method, or if an argument is no
    text.
    """
    if method in SAME_PATH_METHODS:
        return Constant(path)
    if not given or not all(isinstance(one, str) for one in given):
        return None
    if method == "joinpath":
        return Constant("/".join([path, *given]))
    if method in ("with_name", "with_suffix", "with_stem"):
        try:
            return Constant(str(getattr(PurePath(path), method)(given[0])))
        except ValueError:
            return None  # an empty name, or a suffix without a dot
    return None


def _parent_path(path: str, steps: int) -> str:
    """The folder that is so many steps above a path."""
    return normpath("/".join([path, *[".."] * steps]))
