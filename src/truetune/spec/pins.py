"""Pins: which releases of its packages a run asks for, as far as the files around it say.

What a stack knows differs from release to release, so a finding on a name or a default holds for some releases only.
The release that is installed here is not asked: a notebook or a project brings its own. Read are the install commands
of a notebook's cells, the header of a script (PEP 723), and the requirements in the folders from the file up to the
root of its project. Only the packages of `PACKAGES` are looked for, by their names in the text: that reads every form
of file alike (requirements.txt, pyproject.toml, setup.py, environment.yml) and runs none of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from truetune.parsing.files import read_bounded
from truetune.parsing.limits import SETTINGS, InputLimitError

Age = Literal["older", "current", "unknown"]
"""Is the release that runs one before a change, or one after it?"""
PACKAGES = {"trl": "trl", "transformers": "transformers", "peft": "peft", "axolotl": "axolotl",
            "llamafactory": "llama-factory"}  # fmt: skip
"""Name in the package registry -> name of the stack"""
ROOT_SIGNS = (".git", "pyproject.toml", "setup.py", "setup.cfg")
"""What lies in the root of a project"""
REQUIREMENT_FILES = ("requirements*.txt", "pyproject.toml", "setup.py", "setup.cfg", "environment*.y*ml", "Pipfile")
MOST_FOLDERS = 6
_NAME = r"(?<![\w./-])(?P<name>trl|transformers|peft|axolotl|llama-?factory)(?:\[[^\]\n]*\])?(?![\w./-])"
_BOUND = r"(?:===?|~=|>=|<=|!=|[<>=^])\s*v?\d[\w.*+]*"
REQUIREMENT = re.compile(rf"{_NAME}[\"']?\s*(?:=\s*[\"'](?={_BOUND}))?(?P<bounds>{_BOUND}(?:\s*,\s*{_BOUND})*)?", re.I)
"""`trl[vllm]==0.18.0`, `transformers>=4.36,<5`, `trl = "^0.9"`, or the name alone"""
FROM_GIT = re.compile(
    r"git\+\S*?/(?P<name>trl|transformers|peft|axolotl|llama-?factory)(?:\.git)?(?:@(?P<ref>[^\s\"'#]+))?", re.I
)
INSTALL = re.compile(r"^(?P<before>.*?)\b(?:pip3?|uv\s+add)\s+(?:install\s+)?(?P<what>.*)$")
TAG = re.compile(r"v?(\d+(?:\.\d+)+\S*)")
HEADER = re.compile(r"^# /// script\s*$(?P<header>.*?)^# ///\s*$", re.M | re.S)


@dataclass(frozen=True, slots=True)
class Pin:
    """What one place asks of one package."""

    wanted: str
    """`==0.18.0`; empty: whatever is newest"""
    file: str
    line: int
    known: bool = True
    """False: a branch, a commit or a variable, of which no release is told"""

    def age(self, last: str, gone: str) -> Age:
        """Does it ask for releases up to `last` alone, or from `gone` on alone?"""
        if not self.known:
            return "unknown"
        lowest, highest = _bounds(self.wanted)
        if lowest is not None and Version(last) < lowest < Version(gone):
            return "unknown"
        if highest is not None and (highest < Version(gone) or ("<" in self.wanted and highest == Version(gone))):
            return "older"
        if not self.wanted or (lowest is not None and lowest >= Version(gone)):
            return "current"
        return "unknown"

    def __str__(self) -> str:
        return self.wanted or "the newest"


@dataclass(frozen=True, slots=True)
class Pins:
    """By the name of the stack."""

    by_stack: Mapping[str, Pin] = field(default_factory=dict)

    def of(self, stack: str) -> Pin | None:
        return self.by_stack.get(stack)

    def age(self, stack: str, last: str, gone: str) -> Age:
        """See `Pin.age`; unknown where nothing asks for the package."""
        pin = self.by_stack.get(stack)
        return "unknown" if pin is None else pin.age(last, gone)

    def before(self, stack: str, release: str) -> bool:
        """Is it sure that a release before this one runs?"""
        return self.age(stack, release, release) == "older"


def pins_of_notebook(cells: Iterable[tuple[str, int]], path: str) -> Pins:
    """Of the install commands in cells, each with the line where it begins; else of the files around the notebook.

    An install without a version leaves a release that is there already, unless it upgrades.
    """
    found: dict[str, Pin] = {}
    for text, first_line in cells:
        for offset, line in enumerate(text.replace("\\\n", "  ").split("\n")):
            command = INSTALL.match(line)
            if command is None or "#" in command["before"]:
                continue
            upgrades = re.search(r"(?:^|\s)(?:-[a-zA-Z]*U|--upgrade)", command["what"]) is not None
            for stack, pin in _in_line(command["what"], path, first_line + offset, bare=True):
                if pin.wanted or not pin.known or upgrades or stack not in found:
                    found[stack] = pin
    return Pins({**pins_around(path).by_stack, **found})


def pins_of_script(text: str, path: str) -> Pins:
    """Of the script's own header (PEP 723); else of the files around it."""
    header = HEADER.search(text)
    found: dict[str, Pin] = {}
    if header is not None:
        first = text.count("\n", 0, header.start("header")) + 1
        for offset, line in enumerate(header["header"].split("\n")):
            found.update(_in_line(line.lstrip("# "), path, first + offset, bare='"' in line))
    return Pins({**pins_around(path).by_stack, **found})


def pins_around(path: str) -> Pins:
    """Of the requirements in the file's folder, and in those above it up to the root of its project."""
    found: dict[str, Pin] = {}
    for folder in _project_folders(Path(path)):
        here: dict[str, Pin] = {}
        for file in _requirement_files(folder):
            for stack, pin in _in_file(str(file), file.stat().st_mtime_ns):
                here.setdefault(stack, pin)
        found = {**here, **found}
    return Pins(found)


def _project_folders(path: Path) -> list[Path]:
    """The file's folder, and those above it where one of them is the root of a project."""
    above = list(path.absolute().parents)[:MOST_FOLDERS]
    root = next((number for number, folder in enumerate(above) if _is_root(folder)), 0)
    return above[: root + 1]


def _is_root(folder: Path) -> bool:
    return any((folder / sign).exists() for sign in ROOT_SIGNS)


def _requirement_files(folder: Path) -> list[Path]:
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.is_file())
    except OSError:
        return []
    return [folder / name for name in names if any(fnmatchcase(name, pattern) for pattern in REQUIREMENT_FILES)]


@lru_cache(maxsize=256)
def _in_file(path: str, _changed: int) -> tuple[tuple[str, Pin], ...]:
    """Kept, because every file of a project asks for the same."""
    try:
        text = read_bounded(Path(path), SETTINGS).decode("utf-8", "replace")
    except (OSError, InputLimitError):
        return ()
    found: list[tuple[str, Pin]] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.lstrip().startswith(("#", "-r", "-c")):
            found += _in_line(line, path, number, bare=path.endswith(".txt"))
    return tuple(found)


def _in_line(line: str, file: str, number: int, *, bare: bool) -> Iterator[tuple[str, Pin]]:
    """`bare`: a name without a version asks for the newest."""
    for match in FROM_GIT.finditer(line):
        tag = TAG.fullmatch(match["ref"] or "")
        newest = match["ref"] is None or match["ref"] in ("main", "master")
        yield _stack(match["name"]), Pin(f"=={tag[1]}" if tag else "", file, number, bool(tag) or newest)
    rest = re.sub(r"\S*(?:git\+|https?:)\S*", " ", line).partition(" #")[0]
    for match in REQUIREMENT.finditer(rest):
        bounds = match["bounds"]
        if bounds:
            yield _stack(match["name"]), Pin(_specifiers(bounds), file, number)
        elif bare:
            computed = rest[match.end() :].lstrip()[:2] in ("==", ">=", "<=", "~=") or rest[match.end() :][:1] in "{$"
            yield _stack(match["name"]), Pin("", file, number, not (computed and rest[match.end() :]))


def _stack(name: str) -> str:
    return PACKAGES[name.lower().replace("-", "")]


def _specifiers(bounds: str) -> str:
    """As PEP 440 writes it: conda's `=4.36` is `==4.36.*`, poetry's `^0.9.1` is `>=0.9.1,<0.10`."""
    made = []
    for bound in re.split(r"\s*,\s*", bounds.strip()):
        operator, version = re.fullmatch(r"([=~<>!^]+)\s*v?(.*)", bound).groups()  # type: ignore[union-attr]
        if operator == "=":
            made.append(f"=={version.rstrip('.*')}.*")
        elif operator == "^":
            major, _, rest = version.partition(".")
            minor = rest.partition(".")[0] or "0"
            above = f"{int(major) + 1}" if major != "0" else f"0.{int(minor) + 1 if minor.isdigit() else 1}"
            made += [f">={version}", f"<{above}"]
        else:
            made.append(f"{operator}{version}")
    return ",".join(made)


def _bounds(wanted: str) -> tuple[Version | None, Version | None]:
    """The lowest and the highest release that specifiers let through, as far as they bound it."""
    lows, highs = [], []
    try:
        for one in SpecifierSet(wanted):
            text = one.version.removesuffix(".*")
            version = Version(text)
            if one.operator in ("==", "===", "~=", ">=", ">"):
                lows.append(version)
            if (one.operator in ("==", "===") and not one.version.endswith(".*")) or one.operator in ("<", "<="):
                highs.append(version)
            elif one.operator == "~=" or one.version.endswith(".*"):
                fixed = version.release[:-1] if one.operator == "~=" else version.release
                highs.append(Version(".".join(map(str, (*fixed, 9999)))))
    except (InvalidSpecifier, InvalidVersion):
        return None, None
    return max(lows, default=None), min(highs, default=None)
