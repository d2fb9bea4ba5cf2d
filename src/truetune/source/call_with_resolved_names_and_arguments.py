"""Call: one call in a script with its names resolved and its arguments expanded.

`DataFlow.call` makes these, and rules ask them instead of the tree: what is called, under its qualified name, what an
argument is, whether it is surely absent. `**kwargs` are laid out as far as their entries are known; the rest is
`open`, so a rule that needs an argument to be missing asks `lacks` and not the keywords.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase


def last_name_of_called(call: ast.Call) -> str:
    """The last name of what is called: `load` of `json.load(file)`; empty if it has none, as in `tools[0](file)`."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


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
        """Is one of its names like one of these patterns (`trl.*Trainer`)?"""
        return any(fnmatchcase(name, pattern) for name in self.names for pattern in patterns)

    def argument(self, position: int, name: str) -> ast.expr | None:
        """The argument of that name, or at that position (-1: by keyword only)."""
        if name in self.keywords:
            return self.keywords[name]
        # Behind `*args` no position is known.
        if 0 <= position < len(self.args) and not any(
            isinstance(a, ast.Starred) for a in self.args[: position + 1]
        ):
            return self.args[position]
        return None

    def lacks(self, name: str, position: int = -1) -> bool:
        """Is this argument certainly not given?"""
        return not self.open and self.argument(position, name) is None
