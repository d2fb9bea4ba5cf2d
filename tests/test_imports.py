"""Imports point from later layers to earlier ones, never in a circle, and the core needs no heavy library."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import truetune
from tests.syntax_trees import without_collections

ROOT = Path(truetune.__file__).parent
LAYERS = (
    "errors",
    "package",
    "cached_for_one_call",
    "plugins",
    "lazy_report_drawers",
    "parsing",
    "confinement",
    "probe",
    "trainers",
    "settings",
    "source",
    "logs",
    "checkpoint",
    "memory",
    "doctor",
    "data",
    "render",
    "encoding",
    "collate",
    "auditing",
    "generation",
    "tokenized",
    "checks",
    "fixing",
    "rehearsal",
    "evaluation",
    "serving",
    "rewards",
    "training",
    "troubleshooting",
    "report",
    "viewing",
    "assistants",
    "editors",
    "callback",
    "axolotl",
    "lightning",
    "demo",
    "cli",
)
LIGHT = (
    "plugins",
    "parsing",
    "confinement",
    "trainers",
    "settings",
    "source",
    "logs",
    "checkpoint",
    "memory",
    "data",
    "render",
    "encoding",
    "auditing",
    "tokenized",
    "checks",
    "fixing",
    "rewards",
    "report",
    "viewing",
    "assistants",
    "editors",
    "cli",
)
HEAVY = {"torch", "transformers", "trl", "peft", "datasets", "accelerate"}
ASKED_BY_USERS = ("dataset",)
"""Functions that may import a heavy library: a user asks encoded rows for a data set of `datasets`"""


@cache
def modules() -> tuple[tuple[str, Path], ...]:
    """Each module with its layer."""
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        layer = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if layer in LAYERS:
            found.append((layer, path))
    return tuple(found)


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef) and node.name in ASKED_BY_USERS:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        yield from imports(node)


@cache
def imports_by_file() -> dict[Path, tuple[str, ...]]:
    """What each module imports, anywhere in it."""
    with without_collections():
        return {
            path: tuple(imports(ast.parse(path.read_text(encoding="utf-8"))))
            for _, path in modules()
        }


@pytest.mark.parametrize("layer", LAYERS)
def test_imports_point_backwards(layer: str) -> None:
    paths = [path for of, path in modules() if of == layer]
    assert paths, "the layer has no module"
    for path in paths:
        for name in imports_by_file()[path]:
            first, _, rest = name.partition(".")
            if first == "truetune" and rest:
                target = rest.partition(".")[0]
                assert LAYERS.index(target) <= LAYERS.index(layer), f"{path} imports {name}"
            if layer in LIGHT:
                assert first not in HEAVY, f"{path} imports {name}"


def import_graph() -> dict[str, set[str]]:
    """Module -> the modules of truetune that it imports, inside of functions too; not those for types alone."""
    names = {_module_name(path): path for path in ROOT.rglob("*.py")}
    with without_collections():
        return {
            name: {found for found in _imported(path, names) if found != name}
            for name, path in names.items()
        }


def _module_name(path: Path) -> str:
    parts = ("truetune", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(path: Path, names: dict[str, Path]) -> Iterator[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If)
        and "TYPE_CHECKING" in (getattr(node.test, "id", ""), getattr(node.test, "attr", ""))
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in names)
        elif isinstance(node, ast.ImportFrom) and node.module in names:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in names else node.module


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Groups of modules of which each reaches each other one: the strongly connected components."""
    reached = {name: _reachable(name, graph) for name in graph}
    found: list[set[str]] = []
    for name in graph:
        group = {other for other in reached[name] if name in reached[other]}
        if group and group not in found:
            found.append(group)
    return found


def _reachable(start: str, graph: dict[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting.extend(graph[name])
    return seen


def test_no_module_imports_itself_through_others() -> None:
    found = circles(import_graph())
    assert [sorted(group) for group in found] == []


def test_a_circle_is_seen() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}
    assert circles(graph) == [{"a", "b", "c"}]


def test_a_check_loads_neither_torch_nor_transformers() -> None:
    code = (
        "import sys, truetune\n"
        "assert 'numpy' not in sys.modules\n"
        "from truetune.demo import DATA, TOKENIZER\n"
        "truetune.check(data=str(DATA), tokenizer=str(TOKENIZER))\n"
        f"print(sorted({HEAVY!r} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_utils() -> None:
    assert not list(ROOT.rglob("util*.py"))
