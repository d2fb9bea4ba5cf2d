"""The project's own files agree with each other."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import truetune

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))


def test_ci_runs_the_commands_of_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = [
        line
        for line in (ROOT / ".ci" / "run").read_text().splitlines()
        if line.startswith("python -m venv")
    ]
    assert len(commands) == 2
    for command in commands:
        assert f"```sh\n{command}\n```" in readme


def test_the_changelog_knows_the_version() -> None:
    assert f"## {truetune.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_public_names_are_documented() -> None:
    for path in SOURCES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert not tree.body or ast.get_docstring(tree), path
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                assert ast.get_docstring(node), f"{path}: {node.name}"


def test_nothing_names_a_place_outside() -> None:
    # Built from names, so that this file does not have such a path itself.
    outside = re.compile("|".join(f"/{name}/" for name in ("tmp", "root", "home")))
    for path in (*SOURCES, ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        assert not outside.search(path.read_text(encoding="utf-8")), path
