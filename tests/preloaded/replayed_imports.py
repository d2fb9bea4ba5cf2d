"""Packages that a server has imported before its forks, and that each fork still imports: as if for the first time.

truetune's hooks wait for `transformers` and others to be imported. So a fork must not find them in `sys.modules`. The
server imports them once under `record_imports`, and takes them out. In a fork `ReplayedImports` is asked for them like
any finder: a module comes back as it is, after all modules of these packages that it had imported itself, in their
order. A hook that is called after an import finds what it finds after a real one: the module whole, what it rests on
loaded, and what nobody has imported yet not there.

Trade-off: names that one module took from another were bound before the hook changes that other one. truetune's hooks
change classes, and no names in modules; and test_preloaded_python.py holds which modules a program has loaded.
"""

from __future__ import annotations

import copy
import importlib
import importlib.abc
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

READS_ENVIRONMENT = ("datasets.config",)
"""Modules that keep what variables say at their import: they are executed again, in the program's environment"""


@dataclass
class RecordedModule:
    """A module that was imported, and what a program sees of it before it is used."""

    module: Any
    """What stands in `sys.modules`, which may be another object than its loader executed"""
    imports: list[str]
    """Modules of the same packages that it imported, in their order"""
    names: frozenset[str]
    """What it held when its import was complete; submodules and lazy attributes come later"""


@dataclass
class ImportRecorder(importlib.abc.MetaPathFinder):
    """Notes each import of some packages, and which module did it."""

    packages: frozenset[str]
    modules: dict[str, RecordedModule] = field(default_factory=dict)
    _stack: list[list[str]] = field(default_factory=list)
    """What each module that is being imported has imported until now"""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Give the spec that other finders have, with a loader that notes its work."""
        if name.partition(".")[0] not in self.packages:
            return None
        if self._stack:
            self._stack[-1].append(name)
        spec: Any = None
        for finder in [other for other in sys.meta_path if other is not self]:
            spec = spec or finder.find_spec(name, path, target)
        if hasattr(getattr(spec, "loader", None), "exec_module"):
            self._watch_loader(name, spec.loader)
        return spec

    def _watch_loader(self, name: str, loader: Any) -> None:
        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            imports: list[str] = []
            self._stack.append(imports)
            try:
                loader.exec_module(module)
            finally:
                self._stack.pop()
            loaded = sys.modules[name]
            self.modules[name] = RecordedModule(loaded, imports, frozenset(vars(loaded)))

        loader.exec_module = exec_module


@contextmanager
def record_imports(packages: Iterable[str]) -> Iterator[ImportRecorder]:
    """Record what is imported of these packages inside."""
    recorder = ImportRecorder(frozenset(packages))
    sys.meta_path.insert(0, recorder)
    try:
        yield recorder
    finally:
        sys.meta_path.remove(recorder)


class ReplayedImports(importlib.abc.MetaPathFinder):
    """Hands out recorded modules, each at its first import."""

    def __init__(self, recorder: ImportRecorder) -> None:
        """Take the recorded modules out of `sys.modules`, and stand in front of the finders of files."""
        self.modules = recorder.modules
        for recorded in self.modules.values():
            _add_imports_of_loaded_modules(recorded, self.modules)
        for name, recorded in self.modules.items():
            sys.modules.pop(name, None)
            _forget_later_names(recorded)
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Give the spec of a recorded module; None for others."""
        recorded = self.modules.get(name)
        if recorded is None:
            return None
        spec = copy.copy(recorded.module.__spec__)
        spec.loader = _ReplayingLoader(recorded)
        return spec


class _ReplayingLoader(importlib.abc.Loader):
    def __init__(self, recorded: RecordedModule) -> None:
        self.recorded = recorded
        self.spec = recorded.module.__spec__

    def create_module(self, spec: Any) -> Any:
        return self.recorded.module

    def exec_module(self, module: ModuleType) -> None:
        # Importing a submodule sets its name here, and hides what has the same name (`datasets.utils.tqdm`, a class).
        held = dict(vars(module))
        for name in self.recorded.imports:
            if name not in sys.modules:
                importlib.import_module(name)
        vars(module).update(held)
        module.__spec__ = self.spec
        if self.spec.name in READS_ENVIRONMENT:
            self.spec.loader.exec_module(module)


def _add_imports_of_loaded_modules(
    recorded: RecordedModule, modules: dict[str, RecordedModule]
) -> None:
    """Add what a module imported that was loaded already: the modules that its names are from."""
    known = {*recorded.imports, recorded.module.__name__}
    for name in recorded.names:
        value = vars(recorded.module).get(name)
        place = (
            value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        )
        if isinstance(place, str) and place in modules and place not in known:
            known.add(place)
            recorded.imports.append(place)


def _forget_later_names(recorded: RecordedModule) -> None:
    """Remove the submodules, and of a lazy module all, that came after its import: the next import sets them."""
    is_lazy = type(recorded.module) is not ModuleType
    held = vars(recorded.module)
    for name in [name for name in held if name not in recorded.names]:
        if is_lazy or isinstance(held[name], ModuleType):
            del held[name]
