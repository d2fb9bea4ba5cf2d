"""What the constructors of trainers take, release by release, written down from the packages' sources.

    python -m tests.settings.trainer_signatures FOLDER > src/truetune/settings/stacks/signatures.json

FOLDER holds the source of each release as `trl-0.9.6/trl/...`, `transformers-4.45.2/transformers/...` (an unpacked
wheel, or `git archive`). Nothing of it is imported. An argument that a decorator still takes under its old name
(`deprecate_kwarg`) counts as taken until the release that the decorator names.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.version import Version

PACKAGES = ("transformers", "trl")
PREFIX_OF_MODULES = {"transformers": "trainer*.py", "trl": "**/*_trainer.py"}
"""Where trainers are defined"""


def sources(folder: Path, package: str) -> list[tuple[str, Path]]:
    """The releases of a package that are here, from the oldest, each with its source."""
    found = [
        (path.name.removeprefix(f"{package}-"), path / package)
        for path in folder.glob(f"{package}-*")
    ]
    return sorted(found, key=lambda pair: Version(pair[0]))


def top_names(source: Path) -> set[str]:
    """What `from package import ...` finds, as the package's own first file imports it."""
    tree = ast.parse((source / "__init__.py").read_text(encoding="utf-8"))
    return {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level
        for alias in node.names
    }


def constructors(source: Path, package: str, release: str) -> dict[str, list[str]]:
    """Trainer -> the arguments of its constructor, `**` where it takes any."""
    found: dict[str, list[str]] = {}
    for path in sorted(source.glob(PREFIX_OF_MODULES[package])):
        if "experimental" in path.parts:
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and node.name.endswith("Trainer"):
                for method in node.body:
                    if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                        found[node.name] = list(dict.fromkeys(_arguments(method, release)))
    return found


def _arguments(method: ast.FunctionDef, release: str) -> Iterator[str]:
    arguments = method.args
    yield from (
        one.arg
        for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        if one.arg != "self"
    )
    if arguments.kwarg is not None:
        yield "**"
    for decorator in method.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "deprecate_kwarg":
            words = {word.arg: ast.literal_eval(word.value) for word in decorator.keywords}
            old_name, *rest = map(ast.literal_eval, decorator.args)
            until = words["version"] if "version" in words else rest[0]
            if Version(release) < Version(until):
                yield str(old_name)


def new_homes(source: Path) -> dict[str, str]:
    """A class that a package of `experimental` exports -> that package."""
    homes: dict[str, str] = {}
    for path in sorted(source.glob("experimental/*/__init__.py")):
        home = f"{source.name}.experimental.{path.parent.name}"
        homes |= {name: home for name in top_names(path.parent) if name not in homes}
    return homes


def signatures(folder: Path, package: str) -> dict[str, Any]:
    """What the JSON file holds of a package."""
    releases = sources(folder, package)
    trainers: dict[str, list[tuple[str, list[str] | None]]] = {}
    exported: dict[str, list[int]] = {}
    for number, (release, source) in enumerate(releases):
        made = constructors(source, package, release)
        at_top = top_names(source)
        for name in at_top:
            exported.setdefault(name, []).append(number)
        for name in made.keys() | trainers.keys():
            takes = made.get(name) if name in at_top else None
            history = trainers.setdefault(name, [])
            if (history[-1][1] if history else None) != takes:
                history.append((release, takes))
    homes = new_homes(releases[-1][1])
    gone = {
        name: [releases[numbers[-1]][0], releases[numbers[-1] + 1][0], homes.get(name)]
        for name, numbers in sorted(exported.items())
        if numbers[-1] + 1 < len(releases) and package == "trl"
    }
    return {
        "releases": [release for release, _ in releases],
        "trainers": {name: history for name, history in sorted(trainers.items()) if history},
        "gone": gone,
    }


def as_text(recorded: dict[str, dict[str, Any]]) -> str:
    """JSON with a line for each release of a trainer, so that a change can be read."""

    def listed(items: list[str], brackets: str, indent: str) -> str:
        inner = f",\n{indent} ".join(items)
        return f"{brackets[0]}\n{indent} {inner}\n{indent}{brackets[1]}"

    packages = []
    for package, parts in recorded.items():
        trainers = [
            f"{json.dumps(name)}: " + listed([json.dumps(entry) for entry in history], "[]", "   ")
            for name, history in parts["trainers"].items()
        ]
        gone = [f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in parts["gone"].items()]
        members = [
            f'"releases": {json.dumps(parts["releases"])}',
            '"trainers": ' + listed(trainers, "{}", "  "),
            '"gone": ' + (listed(gone, "{}", "  ") if gone else "{}"),
        ]
        packages.append(f"{json.dumps(package)}: " + listed(members, "{}", " "))
    return listed(packages, "{}", "")


if __name__ == "__main__":
    print(as_text({package: signatures(Path(sys.argv[1]), package) for package in PACKAGES}))
