"""Scripts that stand in strings, to be run by another process, import what is there.

No checker reads such a string: after a rename `bench/check.py` asked for a function that had gone.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
IMPORT = re.compile(r"^[ \t]*from (truetune[\w.]*) import ([\w, ]+)$", re.MULTILINE)


def imports_in_strings(path: Path) -> Iterator[tuple[str, str]]:
    """(module, name) of each import of truetune that stands in a string of a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for match in IMPORT.finditer(node.value):
                for name in match[2].split(","):
                    yield match[1], name.split(" as ")[0].strip()


def is_there(module: str, name: str) -> bool:
    found = importlib.import_module(module)
    if hasattr(found, name):
        return True
    is_package = hasattr(found, "__path__")
    return is_package and importlib.util.find_spec(f"{module}.{name}") is not None


def test_scripts_of_the_benchmarks_import_what_is_there() -> None:
    imports = [
        (path.name, *imported)
        for path in sorted((ROOT / "bench").rglob("*.py"))
        if "cases" not in path.parts
        for imported in imports_in_strings(path)
    ]
    assert imports
    assert [entry for entry in imports if not is_there(*entry[1:])] == []
