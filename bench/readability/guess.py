"""The guess test: paths of modules and signatures of functions, drawn at random, for a reader who sees nothing else.

The reader writes what each does; the answers are compared with the docstrings. A new seed gives a new sample, so that
names can't be chosen for the test. What was drawn, guessed and judged is kept beside this file.
"""

from __future__ import annotations

import ast
import random
from dataclasses import dataclass
from pathlib import Path

from bench.readability.measure import Function


@dataclass(frozen=True, slots=True)
class DrawnName:
    """One thing to guess, with what is hidden from the reader."""

    shown: str
    """The module's path, or the function's file with its signature"""
    docstring: str
    """What it does in its own words; empty where it has none"""


def draw_names(folder: Path, seed: int, modules: int, functions: int) -> list[DrawnName]:
    """Modules and functions of a package, at random.

    Args:
        folder: of the package.
        seed: the same seed draws the same names of the same code.
        modules: how many modules; `__init__` and empty ones are left out.
        functions: how many functions and methods; `__special__` ones and those inside functions are left out.

    Returns:
        The modules, then the functions.
    """
    drawn_modules = []
    drawn_functions = []
    for path in sorted(folder.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        shown_path = str(path.relative_to(folder.parent))
        if path.name != "__init__.py" and tree.body:
            drawn_modules.append(DrawnName(shown_path, ast.get_docstring(tree) or ""))
        drawn_functions += _functions_of(tree, shown_path)
    generator = random.Random(seed)
    return [
        *generator.sample(drawn_modules, min(modules, len(drawn_modules))),
        *generator.sample(drawn_functions, min(functions, len(drawn_functions))),
    ]


def _functions_of(tree: ast.Module, path: str) -> list[DrawnName]:
    """The functions of a module and the methods of its classes."""
    drawn = []
    for node in tree.body:
        if isinstance(node, Function):
            drawn.append(_drawn_function(node, path, ""))
        elif isinstance(node, ast.ClassDef):
            drawn += [
                _drawn_function(method, path, f"{node.name}.")
                for method in node.body
                if isinstance(method, Function) and not method.name.startswith("__")
            ]
    return drawn


def _drawn_function(function: Function, path: str, owner: str) -> DrawnName:
    returns = f" -> {ast.unparse(function.returns)}" if function.returns is not None else ""
    signature = f"{owner}{function.name}({ast.unparse(function.args)}){returns}"
    return DrawnName(f"{path}: {signature}", ast.get_docstring(function) or "")
