"""Groups files that are judged together, because one imports another.

How it works: files that import each other form a group. Lines that import are found as text, so files are grouped
before any is parsed; then each group has one table of scopes and one data flow, and each file is parsed and walked
once.

The trade-off: a group that is too long for the memory is cut. What its parts import from each other stays open, as if
these files were not given.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from truetune.source.data_flow import DataFlow
from truetune.source.find_file_of_import import ImportSearch
from truetune.source.name_bindings_in_scopes import Scope, Scopes
from truetune.source.parsed_source_file import Module
from truetune.source.resolve_imported_names import ImportedNames

MAX_GROUP_CHARACTERS = 2_000_000
"""Of one group: about 50,000 lines, whose tables take some 300 MB"""
MAX_FILES_AROUND = 24
"""Files that are analysed again with one whose fix is tried. Chosen, not measured: a fix is tried for each finding, and
with a whole package each try takes seconds; with fewer files a fix may lose what it was derived from"""
IMPORT_LINE = re.compile(
    r"""^[ \t]*["']?[ \t]*(?:from[ \t]+(\.*)([\w.]*)[ \t]+import[ \t]*(\([^)]*|[^\n#]*)|import[ \t]+([^\n#]*))""",
    re.M,
)
"""A line that imports, as text: it groups files before any is parsed. In a notebook a line stands in quotes."""
MAIN_GUARD = re.compile(r"^if __name__ *== *", re.M)
"""What the files begin with that can be started and imported"""
DOTTED_NAME = re.compile(r"[A-Za-z_][\w.]*")


class Program:
    """A group of files, each of which imports another or is imported."""

    def __init__(self, modules: Iterable[Module], imports: ImportSearch) -> None:
        self.imports = imports
        # Copies, because a module alone and one in a program answer differently and may both be in use.
        self.modules = tuple(replace(module, program=self) for module in modules)
        self.scopes = Scopes(*(module.tree for module in self.modules))
        self._module_of = {self.scopes.inside[module.tree]: module for module in self.modules}
        paths = {scope: module.path for scope, module in self._module_of.items()}
        self.flow = DataFlow(self.scopes, ImportedNames(self.scopes, paths, imports), paths)
        self._running_with: dict[str, tuple[Module, ...]] = {}

    def file_holding_node(self, node: ast.AST, otherwise: Module) -> Module:
        """The file (its home) that a node is in; `otherwise` where no file of the group holds it."""
        scope: Scope | None = self.scopes.inside.get(node) or self.scopes.of.get(node)
        return otherwise if scope is None else self._module_of[scope.enclosing_file_scope]

    def files_in_same_process(self, module: Module) -> tuple[Module, ...]:
        """A file, those that import it, and all that these import: the code that may run in one
        process with it. The file itself comes first.

        The file itself comes first. Two scripts that import one helper run apart.
        """
        if module.path not in self._running_with:
            users = _reachable_modules(module, self._importing_files_by_path)
            running = {user.path: user for user in users}
            for user in users:
                running.update(
                    (one.path, one)
                    for one in _reachable_modules(user, self._imported_files_by_path)
                )
            self._running_with[module.path] = tuple(running.values())
        return self._running_with[module.path]

    def entry_files_that_may_reach(self, module: Module) -> tuple[Module, ...]:
        """The files of which a run may reach this one: itself, or those that import it, where they can be started.

        A file that nothing imports is started, and so is one that asks whether it is the main one.
        """
        users = _reachable_modules(module, self._importing_files_by_path)
        started = [
            user
            for user in users
            if not self._importing_files_by_path.get(user.path)
            or MAIN_GUARD.search(user.text) is not None
        ]
        return tuple(started) or (module,)

    def module_in_own_small_group(self, module: Module) -> Module:
        """The group around a file: the file in a small group of its own, with only those that it runs with, to try
        fixes.
        """
        near = self.files_in_same_process(module)[:MAX_FILES_AROUND]
        return Program(near, self.imports).modules[0]

    def with_text_changed(self, module: Module) -> Module:
        """The file with another text, in the same group."""
        # The whole group is analysed again: a value of the changed file may come from, or go to, any other.
        changed = [module if one.path == module.path else one for one in self.modules]
        program = Program(changed, self.imports)
        return next(one for one in program.modules if one.path == module.path)

    @cached_property
    def _imported_files_by_path(self) -> dict[str, list[Module]]:
        """Path -> the files that it imports."""
        by_path = {module.path: module for module in self.modules}
        imported: dict[str, list[Module]] = {}
        for module in self.modules:
            targets = dict.fromkeys(find_imported_files(self.imports, module.path, module.text))
            imported[module.path] = [by_path[target] for target in targets if target in by_path]
        return imported

    @cached_property
    def _importing_files_by_path(self) -> dict[str, list[Module]]:
        """Path -> the files that import it."""
        by_path = {module.path: module for module in self.modules}
        importers: dict[str, list[Module]] = {}
        for path, targets in self._imported_files_by_path.items():
            for target in targets:
                importers.setdefault(target.path, []).append(by_path[path])
        return importers


def _reachable_modules(module: Module, next_of: dict[str, list[Module]]) -> list[Module]:
    """A file and all that are reached from it, the near ones first."""
    reachable = {module.path: module}
    waiting = [module]
    for one in waiting:
        for following in next_of.get(one.path, ()):
            if following.path not in reachable:
                reachable[following.path] = following
                waiting.append(following)
    return list(reachable.values())


def find_imported_files(imports: ImportSearch, path: str, text: str) -> Iterator[str]:
    """The files that the text of a file imports, as far as its lines say."""
    for match in IMPORT_LINE.finditer(text):
        dots, base, names, modules = match.groups()
        if modules is not None:  # `import a.b, c as d`
            names_of_modules = (name.strip().partition(" ")[0] for name in modules.split(","))
            wanted = [(0, tuple(name.split("."))) for name in names_of_modules]
        else:  # `from ..a import b`, where `b` may be a module too; a star leaves the package
            parts = tuple(part for part in base.split(".") if part)
            wanted = [(len(dots), (*parts, name)) for name in DOTTED_NAME.findall(names)]
            wanted = wanted or [(len(dots), parts)]
        for level, dotted in wanted:
            file = imports.find(path, level, dotted)
            if file is not None and file.path != path:
                yield file.path


def group_by_imports(texts: Sequence[tuple[str, str]], imports: ImportSearch) -> list[list[str]]:
    """The files in groups that import each other, in the order of their first files; a group may be one file.

    Args:
        texts: Path and text of each file.
        imports: Which file a name means.
    """
    lengths = {path: len(text) for path, text in texts}
    neighbours: dict[str, set[str]] = {path: set() for path, _ in texts}
    for path, text in texts:
        for target in find_imported_files(imports, path, text):
            if target in neighbours:
                neighbours[path].add(target)
                neighbours[target].add(path)
    groups: list[list[str]] = []
    grouped: set[str] = set()
    for path, _ in texts:
        if path not in grouped:
            groups.append(_group_within_size_from_first_file(path, neighbours, lengths, grouped))
    return groups


def _group_within_size_from_first_file(
    path: str, neighbours: dict[str, set[str]], lengths: dict[str, int], grouped: set[str]
) -> list[str]:
    """One group, from its first file on, as far as MAX_GROUP_CHARACTERS reach; `grouped` is added to."""
    group = [path]
    grouped.add(path)
    characters = lengths[path]
    # The list grows while it is read, so near files come before far ones where a group is cut.
    for one in group:
        for near in sorted(neighbours[one] - grouped):
            if characters + lengths[near] <= MAX_GROUP_CHARACTERS:
                grouped.add(near)
                group.append(near)
                characters += lengths[near]
    return group
