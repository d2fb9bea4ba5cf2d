"""Resolves a name that a file imports to its definition in another file that is judged with it.

How it works: the file is found (`import_search.py`), and the name is looked up among its bindings as they are at its
end. Re-exports (`from .part import name` in an `__init__.py`), stars and cycles are followed up to a depth.

The trade-off: where the other file binds the name by no statement (`globals()[...]`, `__getattr__`), nothing is known
of it, and the import's own qualified name is all that a rule sees.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from truetune.source.find_file_of_import import ImportSearch
from truetune.source.name_bindings_in_scopes import Binding, Scope, Scopes

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

    def definitions_of_import(
        self, binding: Binding, attributes: Sequence[str] = ()
    ) -> tuple[ImportedName, ...]:
        """What an import, with attributes behind it, stands for among the files; empty where that is not known."""
        statement = binding.node
        level = statement.level if isinstance(statement, ast.ImportFrom) else 0
        return self._definitions_of_dotted_name(
            self._scopes.of[statement].enclosing_file_scope,
            level,
            (*_parts_of_imported_name(binding), *attributes),
            0,
        )

    def definitions_of_star_import(
        self, scope: Scope, name: str, attributes: Sequence[str] = ()
    ) -> tuple[ImportedName, ...]:
        """What a name stands for that `from x import *` may have brought into a file."""
        return self._definitions_of_last_star_import(scope, (name, *attributes), 0)

    def _definitions_of_dotted_name(
        self, importer: Scope, level: int, parts: tuple[str, ...], depth: int
    ) -> tuple[ImportedName, ...]:
        """The definitions that a dotted name stands for, seen from the file that imports it."""
        key = (importer, level, parts)
        if key in self._known or depth > MAX_REEXPORTS:
            return self._known.get(key, ())
        self._known[key] = ()  # a cycle of imports ends here
        target = self._find_file_and_count_parts_used(importer, level, parts)
        if target is not None:
            scope, used = target
            self._known[key] = self._definitions_in_file(scope, parts[used:], depth)
        return self._known[key]

    def _find_file_and_count_parts_used(
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
            if scope is not importer and self._scopes.bindings_at_end_of_file(
                scope, parts[package.used]
            ):
                return scope, package.used
        return self._files[target.path], target.used

    def _definitions_in_file(
        self, scope: Scope, parts: tuple[str, ...], depth: int
    ) -> tuple[ImportedName, ...]:
        """The definitions that the parts of a name stand for in a file; the first part is one of
        its names.
        """
        if not parts:
            return ()
        bindings = self._scopes.bindings_at_end_of_file(scope, parts[0])
        if not bindings:
            return self._definitions_of_last_star_import(scope, parts, depth)
        # Several bindings (`try: from a import x`, `except ImportError: x = None`) may each be the one that holds.
        links: list[ImportedName] = []
        for binding in bindings:
            links += self._definitions_of_binding(binding, parts[1:], depth)
        return tuple(links)

    def _definitions_of_binding(
        self, binding: Binding, rest: tuple[str, ...], depth: int
    ) -> tuple[ImportedName, ...]:
        """The definition that a binding with attributes stands for: itself, or if it is an import,
        what that leads to.
        """
        if binding.kind != "import":
            return (ImportedName(binding, rest),)
        statement = binding.node
        level = statement.level if isinstance(statement, ast.ImportFrom) else 0
        importer = self._scopes.of[statement].enclosing_file_scope
        further = self._definitions_of_dotted_name(
            importer, level, (*_parts_of_imported_name(binding), *rest), depth + 1
        )
        return further or (ImportedName(binding, rest),)

    def _definitions_of_last_star_import(
        self, scope: Scope, parts: tuple[str, ...], depth: int
    ) -> tuple[ImportedName, ...]:
        """What a name stands for that the last fitting `from x import *` brought; stars bring no private names."""
        if parts[0].startswith("_"):
            return ()
        # The last star wins, as in Python.
        for star in reversed(scope.stars):
            module = tuple(star.module.split(".")) if star.module else ()
            links = self._definitions_of_dotted_name(
                scope, star.level, (*module, *parts), depth + 1
            )
            if links:
                return links
        return ()


def _parts_of_imported_name(binding: Binding) -> tuple[str, ...]:
    """The dotted name that an import means, without the dots that a relative one begins with."""
    return tuple(part for part in binding.target.split(".") if part)
