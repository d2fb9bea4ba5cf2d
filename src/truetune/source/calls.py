"""Call: a call with its names resolved and its arguments laid out."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class Call:
    """One call."""

    node: ast.Call
    names: tuple[str, ...]
    """What is called, qualified (`transformers.AutoTokenizer.from_pretrained`, `len`): see `DataFlow.name`; for a class
    of the file, its bases' names; empty for a method of an object, or where nothing is known"""
    method: str | None
    """The attribute that is called, where it is not reached through a module or an imported class"""
    receiver: ast.expr | None
    """What the method is called on"""
    args: tuple[ast.expr, ...]
    keywords: Mapping[str, ast.expr]
    """By name, with the entries of `**kwargs` that are known"""
    open: bool
    """There are `*args` or `**kwargs` of which nothing is known: a keyword that is not in `keywords` may be given"""

    def named(self, *patterns: str) -> bool:
        return any(fnmatchcase(name, pattern) for name in self.names for pattern in patterns)

    def argument(self, position: int, name: str) -> ast.expr | None:
        """The argument at that position (None-like -1: keyword only) or of that name."""
        if name in self.keywords:
            return self.keywords[name]
        if 0 <= position < len(self.args) and not any(
            isinstance(a, ast.Starred) for a in self.args[: position + 1]
        ):
            return self.args[position]
        return None

    def lacks(self, name: str, position: int = -1) -> bool:
        """Is this argument certainly not given?"""
        return not self.open and self.argument(position, name) is None
