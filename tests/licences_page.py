"""docs/licences.md: what an installation brings along, under which licence; `python -m tests.licences_page` writes it.

Read from the metadata of the packages that are installed, at the versions of constraints.txt.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "licences.md"
PARTS = ("core", "train", "fast", "ray")
"""Extras that the tests install"""
PREFIX = "License :: OSI Approved :: "
HEAD = """# Dependencies and their licences

truetune is under Apache-2.0 and holds no code of others. What `pip install` brings along, as the packages' own metadata
says; versions are those that the tests run with. `python -m tests.licences_page` writes this page.
"""


def requirements(part: str) -> list[str]:
    """Of the core, or of an extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return list(
        project["dependencies"] if part == "core" else project["optional-dependencies"][part]
    )


def reached(lines: Sequence[str]) -> dict[str, Distribution]:
    """Every distribution that the requirements bring along on this platform, by its name."""
    found: dict[str, Distribution] = {}
    left = [(Requirement(line), "") for line in lines]
    while left:
        wanted, extra = left.pop()
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": extra}):
            continue
        package = distribution(wanted.name)
        if found.setdefault(canonicalize_name(wanted.name), package) is package or wanted.extras:
            left += [
                (Requirement(line), extra)
                for extra in wanted.extras or {""}
                for line in package.requires or ()
            ]
    return found


def licence(package: Distribution) -> str:
    """The SPDX expression, else what the classifiers say, else the first line of the licence field."""
    about: Any = package.metadata
    of_classifiers = [
        c.removeprefix(PREFIX) for c in about.get_all("Classifier") or () if c.startswith(PREFIX)
    ]
    said = (
        about.get("License-Expression")
        or ", ".join(of_classifiers)
        or (about.get("License") or "").split("\n")[0]
    )
    return said.strip() or "not said"


def lines() -> Iterator[str]:
    """The page."""
    yield HEAD
    told: set[str] = set()
    for part in PARTS:
        direct = {canonicalize_name(Requirement(line).name) for line in requirements(part)}
        packages = {
            name: package
            for name, package in reached(requirements(part)).items()
            if name not in told
        }
        told |= packages.keys()
        yield f"## {'The core' if part == 'core' else f'The extra `{part}`'}\n"
        yield "| package | version | licence | |\n|---|---|---|---|"
        for name, package in sorted(packages.items()):
            yield (
                f"| {name} | {package.version} | {licence(package)} |"
                f" {'' if name in direct else 'indirect'} |"
            )
        yield ""


if __name__ == "__main__":
    PAGE.write_text("\n".join(lines()).rstrip() + "\n", encoding="utf-8")
