"""The project's own files agree with each other."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import truetune
from tests.syntax_trees import without_collections

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))


@dataclass(frozen=True)
class Module:
    """What the tests here ask of a source file."""

    path: Path
    is_empty: bool
    docstring: str
    undocumented: tuple[str, ...]
    """Public functions at its top that have no docstring"""
    variables: frozenset[str]
    """Its strings that are names of truetune's environment variables"""


@cache
def modules() -> tuple[Module, ...]:
    """All source files: parsing them takes two seconds."""
    with without_collections():
        return tuple(read_module(path) for path in SOURCES)


def read_module(path: Path) -> Module:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    strings = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    return Module(
        path,
        not tree.body,
        ast.get_docstring(tree) or "",
        tuple(
            node.name
            for node in tree.body
            if isinstance(node, ast.FunctionDef)
            and not node.name.startswith("_")
            and not ast.get_docstring(node)
        ),
        frozenset(text for text in strings if re.fullmatch(r"_?TRUETUNE_[A-Z_]+", text)),
    )


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
    for module in modules():
        assert module.is_empty or module.docstring, module.path
        assert module.undocumented == (), module.path


def test_nothing_names_a_place_outside() -> None:
    # Built from names, so that this file does not have such a path itself.
    outside = re.compile("|".join(f"/{name}/" for name in ("tmp", "root", "home")))
    for path in (*SOURCES, ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        assert not outside.search(path.read_text(encoding="utf-8")), path


def test_environment_variables_are_documented() -> None:
    page = (ROOT / "docs" / "environment-variables.md").read_text(encoding="utf-8")
    own = {name for module in modules() for name in module.variables}
    assert own
    assert [name for name in sorted(own) if f"`{name}`" not in page] == []


def test_prose_names_tests_that_exist() -> None:
    """A comment says which test holds a trick; a test of another name leaves the next reader without it."""
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    defined = set(re.findall(r"^def (test_\w+)", tests, flags=re.M))
    files = {path.stem for path in (ROOT / "tests").rglob("*.py")}
    for path in SOURCES:
        # Settings and columns are called `test_datasets` as well: the name of a test is a sentence. The whole text is
        # searched, since taking comments apart from code costs half a minute.
        named = set(re.findall(r"`(test_\w+_\w+_\w+)`", path.read_text(encoding="utf-8")))
        assert named <= defined | files, f"{path}: no test is named {named - defined - files}"


def test_packages_name_modules_that_exist() -> None:
    """The docstring of a package says which module is for what."""
    for module in modules():
        if module.path.name == "__init__.py":
            named = set(re.findall(r"`(\w+\.py)`", module.docstring))
            below = {path.name for path in module.path.parent.rglob("*.py")}
            assert named <= below, f"{module.path}: there is no {named - below}"


def test_architecture_lists_every_package_and_names_what_exists() -> None:
    """The page by which a newcomer finds the code: a package that it leaves out is found by nobody."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    package = ROOT / "src" / "truetune"
    entries = {
        path
        for path in package.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    listed = re.findall(r"^\| (`[^|]+`) \|", page, flags=re.M)
    names = {name for cell in listed for name in re.findall(r"`([\w./]+)`", cell)}
    missing = {path.name for path in entries if not path.name.startswith("__")} - names
    assert not missing, f"docs/architecture.md says nothing of {missing}"
    for name in re.findall(r"`([a-z_]+(?:\.\w+)+)`", page):
        parts = name.split(".")
        if package / parts[0] in entries:
            assert _is_defined(package, parts), f"docs/architecture.md: there is no {name}"


def _is_defined(folder: Path, parts: list[str]) -> bool:
    """Is `parts` the dotted way to a module below a folder, or to a name at the top of one?"""
    below = folder.joinpath(*parts)
    if below.is_dir() or below.with_suffix(".py").is_file():
        return True
    module = folder.joinpath(*parts[:-1]).with_suffix(".py")
    if not module.is_file():
        return False
    tree = ast.parse(module.read_text(encoding="utf-8"))
    return parts[-1] in {getattr(node, "name", "") for node in tree.body}
