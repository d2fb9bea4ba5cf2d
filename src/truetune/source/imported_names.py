"""What a name that a file imports stands for in another file that is judged with it.

How it works: the file is found (`import_search.py`), and the name is looked up among its bindings as they are at its
end. Re-exports (`from .part import name` in an `__init__.py`), stars and cycles are followed up to a depth.

The trade-off: where the other file binds the name by no statement (`globals()[...]`, `__getattr__`), nothing is known
of it, and the import's own qualified name is all that a rule sees.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from truetune.source.import_search import ImportSearch
from truetune.source.scopes import Binding, Scope, Scopes

MAX_REEXPORTS = 8
"""Files that re-export a name one after the other. Chosen, not measured: packages re-export through two or three"""


class ImportedName(NamedTuple):
    """One binding in another file, and the attributes of it that are meant."""

    binding: Binding
    rest: tuple[str, ...]
    """Of an import that leads out of the files, these are a part of its qualified name"""


class ImportedNames:
    """The imports of all files that are judged together."""

    def __init__(self, scopes: Scopes, paths: Mapping[Scope, str], imports: ImportSearch) -> None:
        """`paths`: the scope of each file, and its path."""
        self._scopes = scopes
        self._paths = paths
        self._imports = imports
        self._files = {path: scope for scope, path in paths.items()}
        self._known: dict[tuple[Scope, int, tuple[str, ...]], tuple[ImportedName, ...]] = {}

    def of_import(
        self, binding: Binding, attributes: Sequence[str] = ()
    ) -> tuple[ImportedName, ...]:
        """What an import, with attributes behind it, stands for among the files; empty where that is not known."""
        statement = binding.node
        level = statement.level if isinstance(statement, ast.ImportFrom) else 0
        return self._follow(
            self._scopes.of[statement].of_file, level, (*_split_target(binding), *attributes), 0
        )

    def of_star(
        self, scope: Scope, name: str, attributes: Sequence[str] = ()
    ) -> tuple[ImportedName, ...]:
        """What a name stands for that `from x import *` may have brought into a file."""
        return self._from_stars(scope, (name, *attributes), 0)

    def _follow(
        self, importer: Scope, level: int, parts: tuple[str, ...], depth: int
    ) -> tuple[ImportedName, ...]:
        """What a dotted name stands for, seen from the file that imports it."""
        key = (importer, level, parts)
        if key in self._known or depth > MAX_REEXPORTS:
            return self._known.get(key, ())
        self._known[key] = ()  # a cycle of imports ends here
        target = self._find_target(importer, level, parts)
        if target is not None:
            scope, used = target
            self._known[key] = self._in_file(scope, parts[used:], depth)
        return self._known[key]

    def _find_target(
        self, importer: Scope, level: int, parts: tuple[str, ...]
    ) -> tuple[Scope, int] | None:
        """The file that a dotted name means, and how many parts of the name are used for it.

        A name that a package binds goes before its module of the same name (`from .load import load`).
        """
        path = self._paths[importer]
        target = self._imports.find(path, level, parts)
        if target is None or target.path not in self._files:
            return None
        package = self._imports.find(path, level, parts[: target.used - 1]) if target.used else None
        if package is not None and package.used == target.used - 1 and package.path in self._files:
            scope = self._files[package.path]
            # The importer itself may be that package, on its way to bind the name: then its module is meant.
            if scope is not importer and self._scopes.at_end_of_file(scope, parts[package.used]):
                return scope, package.used
        return self._files[target.path], target.used

    def _in_file(
        self, scope: Scope, parts: tuple[str, ...], depth: int
    ) -> tuple[ImportedName, ...]:
        """What the parts of a name stand for in a file; the first part is one of its names."""
        if not parts:
            return ()
        bindings = self._scopes.at_end_of_file(scope, parts[0])
        if not bindings:
            return self._from_stars(scope, parts, depth)
        # Several bindings (`try: from a import x`, `except ImportError: x = None`) may each be the one that holds.
        links: list[ImportedName] = []
        for binding in bindings:
            links += self._bound(binding, parts[1:], depth)
        return tuple(links)

    def _bound(
        self, binding: Binding, rest: tuple[str, ...], depth: int
    ) -> tuple[ImportedName, ...]:
        """What a binding with attributes stands for: itself, or of an import what that leads to."""
        if binding.kind != "import":
            return (ImportedName(binding, rest),)
        statement = binding.node
        level = statement.level if isinstance(statement, ast.ImportFrom) else 0
        importer = self._scopes.of[statement].of_file
        further = self._follow(importer, level, (*_split_target(binding), *rest), depth + 1)
        return further or (ImportedName(binding, rest),)

    def _from_stars(
        self, scope: Scope, parts: tuple[str, ...], depth: int
    ) -> tuple[ImportedName, ...]:
        """What a name stands for that the last fitting `from x import *` brought; stars bring no private names."""
        if parts[0].startswith("_"):
            return ()
        # The last star wins, as in Python.
        for star in reversed(scope.stars):
            module = tuple(star.module.split(".")) if star.module else ()
            links = self._follow(scope, star.level, (*module, *parts), depth + 1)
            if links:
                return links
        return ()


def _split_target(binding: Binding) -> tuple[str, ...]:
    """The dotted name that an import means, without the dots that a relative one begins with."""
    return tuple(part for part in binding.target.split(".") if part)
