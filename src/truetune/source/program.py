"""Program: the files that are judged together, because one imports another.

Files that import each other form a group; each group has one table of scopes and one flow, and each file is parsed and
walked once. A group that is too long for that is cut: what its parts import from each other stays open, as if these
files were not given.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from truetune.source.data_flow import DataFlow
from truetune.source.import_search import ImportSearch
from truetune.source.imported_names import ImportedNames
from truetune.source.module import Module
from truetune.source.scopes import Scope, Scopes

MAX_GROUP_CHARACTERS = 2_000_000
"""Of one group: about 50,000 lines, whose tables take some 300 MB"""
MAX_FILES_AROUND = 24
"""Files that are analysed again with one whose fix is tried"""
IMPORT_LINE = re.compile(
    r"""^[ \t]*["']?[ \t]*(?:from[ \t]+(\.*)([\w.]*)[ \t]+import[ \t]*(\([^)]*|[^\n#]*)|import[ \t]+([^\n#]*))""",
    re.M,
)
"""A line that imports, as text: it groups files before any is parsed. In a notebook a line stands in quotes."""
DOTTED_NAME = re.compile(r"[A-Za-z_][\w.]*")


class Program:
    """A group of files, each of which imports another or is imported."""

    def __init__(self, modules: Iterable[Module], imports: ImportSearch) -> None:
        self.imports = imports
        self.modules = tuple(replace(module, program=self) for module in modules)
        self.scopes = Scopes(*(module.tree for module in self.modules))
        self._module_of = {self.scopes.inside[module.tree]: module for module in self.modules}
        paths = {scope: module.path for scope, module in self._module_of.items()}
        self.flow = DataFlow(self.scopes, ImportedNames(self.scopes, paths, imports))
        self._running_with: dict[str, tuple[Module, ...]] = {}

    def home(self, node: ast.AST, otherwise: Module) -> Module:
        """The file that a node stands in."""
        scope: Scope | None = self.scopes.inside.get(node) or self.scopes.of.get(node)
        return otherwise if scope is None else self._module_of[scope.of_file]

    def running_with(self, module: Module) -> tuple[Module, ...]:
        """A file, those that import it, and all that these import: the code that may run in one process with it.

        The file itself comes first. Two scripts that import one helper run apart.
        """
        if module.path not in self._running_with:
            users = _reachable_modules(module, self._importers)
            found = {user.path: user for user in users}
            for user in users:
                found.update((one.path, one) for one in _reachable_modules(user, self._imported))
            self._running_with[module.path] = tuple(found.values())
        return self._running_with[module.path]

    def around(self, module: Module) -> Module:
        """The file in a small group of its own, of those that it runs with; its fixes are tried there."""
        near = self.running_with(module)[:MAX_FILES_AROUND]
        return Program(near, self.imports).modules[0]

    def with_text_changed(self, module: Module) -> Module:
        """Another text of one of the files, in the same group."""
        changed = [module if one.path == module.path else one for one in self.modules]
        program = Program(changed, self.imports)
        return next(one for one in program.modules if one.path == module.path)

    @cached_property
    def _imported(self) -> dict[str, list[Module]]:
        """Path -> the files that it imports."""
        by_path = {module.path: module for module in self.modules}
        found: dict[str, list[Module]] = {}
        for module in self.modules:
            targets = dict.fromkeys(find_imported_files(self.imports, module.path, module.text))
            found[module.path] = [by_path[target] for target in targets if target in by_path]
        return found

    @cached_property
    def _importers(self) -> dict[str, list[Module]]:
        by_path = {module.path: module for module in self.modules}
        found: dict[str, list[Module]] = {}
        for path, targets in self._imported.items():
            for target in targets:
                found.setdefault(target.path, []).append(by_path[path])
        return found


def _reachable_modules(module: Module, next_of: dict[str, list[Module]]) -> list[Module]:
    """A file and all that are reached from it, the near ones first."""
    found = {module.path: module}
    waiting = [module]
    for one in waiting:
        for following in next_of.get(one.path, ()):
            if following.path not in found:
                found[following.path] = following
                waiting.append(following)
    return list(found.values())


def find_imported_files(imports: ImportSearch, path: str, text: str) -> Iterator[str]:
    """The files that the text of a file imports, as far as its lines say."""
    for match in IMPORT_LINE.finditer(text):
        dots, base, names, modules = match.groups()
        if modules is not None:
            wanted = [
                (0, tuple(name.partition(" ")[0].split(".")))
                for name in map(str.strip, modules.split(","))
            ]
        else:
            parts = tuple(part for part in base.split(".") if part)
            wanted = [(len(dots), (*parts, name)) for name in DOTTED_NAME.findall(names)] or [
                (len(dots), parts)
            ]
        for level, dotted in wanted:
            found = imports.find(path, level, dotted)
            if found is not None and found.path != path:
                yield found.path


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
    taken: set[str] = set()
    for path, _ in texts:
        if path not in taken:
            groups.append(_grow_group(path, neighbours, lengths, taken))
    return groups


def _grow_group(
    path: str, neighbours: dict[str, set[str]], lengths: dict[str, int], taken: set[str]
) -> list[str]:
    """One group, from its first file on, as far as MAX_CHARACTERS reach; `taken` is added to."""
    group = [path]
    taken.add(path)
    characters = lengths[path]
    for one in group:
        for near in sorted(neighbours[one] - taken):
            if characters + lengths[near] <= MAX_GROUP_CHARACTERS:
                taken.add(near)
                group.append(near)
                characters += lengths[near]
    return group
