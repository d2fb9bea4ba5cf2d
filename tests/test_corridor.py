"""Imports point backwards along the corridor, and the core needs no heavy library."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import truetune

ROOT = Path(truetune.__file__).parent
ROOMS = (
    "errors",
    "parsing",
    "confinement",
    "probe",
    "trainers",
    "spec",
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
    "training",
    "evaluation",
    "serving",
    "report",
    "viewing",
    "callback",
    "demo",
    "cli",
)
LIGHT = (
    "parsing",
    "confinement",
    "trainers",
    "spec",
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
    "report",
    "viewing",
    "cli",
)
HEAVY = {"torch", "transformers", "trl", "peft", "datasets", "accelerate"}
FREE = ("__str__", "_repr_html_", "dataset", "save_as")
"""Functions that may reach forward: a notebook or a user asks a result to draw itself, or for its rows."""


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(ROOT.rglob("*.py")):
        room = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if room in ROOMS:
            yield room, path


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef) and node.name in FREE:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        yield from imports(node)


@pytest.mark.parametrize(
    ("room", "path"), list(modules()), ids=lambda value: getattr(value, "name", value)
)
def test_imports_point_backwards(room: str, path: Path) -> None:
    for name in imports(ast.parse(path.read_text(encoding="utf-8"))):
        first, _, rest = name.partition(".")
        if first == "truetune" and rest:
            target = rest.partition(".")[0]
            assert ROOMS.index(target) <= ROOMS.index(room), f"{room} imports {name}"
        if room in LIGHT:
            assert first not in HEAVY, f"{room} imports {name}"


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
