"""Finds which releases of its packages a run asks for, in the files around it.

What a stack knows differs from release to release, so a finding on a name or a default holds for some releases only.
The release that is installed beside truetune excuses nothing, for a notebook or a project may bring its own; but where
no file asks for a release, and the one installed is past a change, a call stops here (see `run_signs`).
Read are the install commands of a notebook's cells, those that a script runs or that an exported notebook keeps as
comments, the header of a script (PEP 723), and the requirements, Dockerfiles and lock files in the folders from the
file up to the root of its project.
Only the packages of `PACKAGES` are looked for, by their names in the text: that reads every form of file alike
(requirements.txt, pyproject.toml, setup.py, environment.yml) and runs none of them. A release of unsloth bounds those
of transformers and TRL, because it rewrites their source.
"""

from __future__ import annotations

import importlib.metadata
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

from truetune.parsing.input_limits import LOCK, SETTINGS, InputLimitError
from truetune.parsing.read_files_within_limits import read_bytes_within_limit
from truetune.settings.releases_printed_by_notebook import releases_in_outputs

ReleaseAge = Literal["older", "current", "unknown"]
"""Is the release that runs one before a change, or one after it?"""
STACK_OF_PACKAGE = {
    "trl": "trl",
    "transformers": "transformers",
    "peft": "peft",
    "axolotl": "axolotl",
    "llamafactory": "llama-factory",
    "unsloth": "unsloth",
    "lightning": "lightning",
    "pytorch-lightning": "lightning",
}
"""Name in the package registry -> name of the stack"""
ROOT_SIGNS = (".git", "pyproject.toml", "setup.py", "setup.cfg")
"""What lies in the root of a project"""
REQUIREMENT_FILES = (
    "requirements*.txt",
    "requirements*.in",
    "constraints*.txt",
    "pyproject.toml",
    "setup.py",
    "setup.cfg",
    "environment*.y*ml",
    "conda*.y*ml",
    "Pipfile",
    "Dockerfile*",
    "*.[Dd]ockerfile",
)
REQUIREMENTS_FOLDER = "requirements"
"""A folder of files that say `base.txt`, `train.txt`"""
LOCKED_IN_TOML = re.compile(r'name = "(?P<name>[\w-]+)"\nversion = "(?P<version>[^"\n]+)"')
"""A package in uv.lock, poetry.lock and pdm.lock"""
LOCKED_IN_JSON = re.compile(r'"(?P<name>[\w-]+)": \{[^{}]*"version": "==(?P<version>[^"\n]+)"')
"""A package in Pipfile.lock"""
LOCK_FILES = {
    "uv.lock": LOCKED_IN_TOML,
    "poetry.lock": LOCKED_IN_TOML,
    "pdm.lock": LOCKED_IN_TOML,
    "Pipfile.lock": LOCKED_IN_JSON,
}
HIGHEST_WITH_UNSLOTH: Mapping[str, Mapping[str, str]] = {
    "trl": {"2025.3.19": "0.15.2", "2025.10.1": "0.23.0", "2026.8.1": "0.24.0", "2026.10.9": "1.15.0"},
    "transformers": {"2025.10.1": "4.56.2", "2025.12.1": "4.57.3", "2026.2.1": "4.57.6", "2026.8.1": "5.5.0",
                     "2026.10.9": "5.17.0"},
}  # fmt: skip
"""Package -> a release of unsloth -> the highest release that it takes (`Requires-Dist` of its wheels, ascending). A
release in between takes none that is newer than what the next one here takes."""
# Chosen, not measured: it ends the way up where a file belongs to no project, before the home folder of most users.
MAX_FOLDERS = 6
_NAMES = r"trl|transformers|peft|axolotl|llama-?factory|unsloth|(?:pytorch-)?lightning"
_NAME = rf"(?<![\w./-])(?P<name>{_NAMES})(?:\[[^\]\n]*\])?(?![\w./-])"
_BOUND = r"(?:===?|~=|>=|<=|!=|[<>=^])\s*v?\d[\w.*+]*"
REQUIREMENT = re.compile(
    rf"{_NAME}[\"']?\s*(?:=\s*[\"'](?={_BOUND}))?(?P<bounds>{_BOUND}(?:\s*,\s*{_BOUND})*)?", re.I
)
"""`trl[vllm]==0.18.0`, `transformers>=4.36,<5`, `trl = "^0.9"`, or the name alone"""
GIT_REQUIREMENT = re.compile(
    rf"git\+\S*?/(?P<name>{_NAMES})(?:\.git)?(?:@(?P<ref>[^\s\"'#]+))?", re.I
)
INSTALL_COMMAND = re.compile(
    r"^(?P<before>.*?)\b(?:(?:pip[\d.]{0,4}|conda|mamba|micromamba)(?:\s+-[\w-]+(?:=\S+)?)*\s+install"
    r"|(?:uv|poetry|pdm|pixi)\s+add)\b(?P<what>.*)$"
)
"""What installs; `pip list | grep trl`, `pip show trl` and `pip freeze` install nothing"""
COMMAND_END = re.compile(r"\s*(?:&&|\|\|?|;(?!\s*(?:python_version|sys_platform|platform_)))\s*")
"""Between two commands of one line; a marker behind a requirement is none"""
RUNS_INSTALL = re.compile(r"get_ipython\(\)\.|\bos\.system\(|\bsubprocess\.|^\s*#?\s*[!%]")
"""A line of a script that installs: an exported notebook keeps `!pip install` as the first of these, or as a comment"""
LIST_OF_WORDS = re.compile(r"""["']\s*,\s*["']""")
"""`[sys.executable, "-m", "pip", "install", "trl==0.9"]`"""
RELEASE_TAG = re.compile(r"v?(\d+(?:\.\d+)+\S*)")
COMMENTS_AT_TOP = re.compile(
    r'''\A(?:[ \t]*(?:#[^\n]*)?\n)*(?:[rR]?(?:"""(?:[^\\]|\\.)*?"""|\'\'\'(?:[^\\]|\\.)*?\'\'\'))?''',
    re.S,
)
"""The comments and the docstring that a script begins with"""
MAX_TOP_CHARS = 20_000
"""Characters of them that are read; the runs of blanks in the next pattern are bounded too, as a broken file may hold a
megabyte of them"""
RELEASE_IN_WORDS = re.compile(
    rf"(?:^[ \t#]{{0,20}}|[.,;:(][ \t]{{0,4}}|\b(?:with|under)[ ])(?P<name>{_NAMES})[ ]"
    r"v?(?P<release>\d+\.\d+(?:\.\d+)?)"
    r"(?=\s*(?:$|[,;)]|\.(?!\w)))",
    re.I | re.M,
)
"""`SFT with weights. transformers 4.57.`; not `since transformers 4.57`, `transformers 4.57 or newer`, `4.57+`"""
PEP723_HEADER = re.compile(r"^# /// script\s*$(?P<header>.*?)^# ///\s*$", re.M | re.S)


@dataclass(frozen=True, slots=True)
class Pin:
    """What one place asks of one package."""

    wanted: str
    """`==0.18.0`; empty: whatever is newest"""
    file: str
    line: int
    known: bool = True
    """False: a branch, a commit or a variable, of which no release is told"""
    is_printed: bool = False
    """An output of the notebook prints it: no file asks for it"""

    def compare_with_removal_window(self, last: str, gone: str) -> ReleaseAge:
        """The age of the releases asked for: `older` if all come before `gone`, `current` if all from it on, else
        `unknown`, also where the lowest lies between `last` and `gone`.
        """
        if not self.known:
            return "unknown"
        lowest, highest = _release_bounds(self.wanted)
        if lowest is not None and Version(last) < lowest < Version(gone):
            return "unknown"
        if highest is not None and (
            highest < Version(gone)
            or (highest == Version(gone) and self._excludes_highest_release())
        ):
            return "older"
        if not self.wanted or (lowest is not None and lowest >= Version(gone)):
            return "current"
        return "unknown"

    def _excludes_highest_release(self) -> bool:
        """Is the highest release itself left out (`<5`)?"""
        return re.search(r"<(?!=)", self.wanted) is not None

    def __str__(self) -> str:
        return self.wanted or "the newest"


@dataclass(frozen=True, slots=True)
class Pins:
    """By the name of the stack."""

    by_stack: Mapping[str, Pin] = field(default_factory=dict)

    def of(self, stack: str) -> Pin | None:
        """The pin of a package; None if nothing asks for it."""
        return self.by_stack.get(stack)

    def age_of_asked_releases(self, stack: str, last: str, gone: str) -> ReleaseAge:
        """Are only releases up to `last`, or only from `gone` on, asked for? Unknown if nothing
        asks for the package.
        """
        pin = self.by_stack.get(stack)
        return "unknown" if pin is None else pin.compare_with_removal_window(last, gone)

    def asks_for_commit(self, stack: str) -> bool:
        """Is a branch or commit asked for, whose release is not known?"""
        pin = self.by_stack.get(stack)
        return pin is not None and not pin.known

    def describe_asked_release(self, stack: str) -> str:
        """A phrase on which release is asked for and where; or that no file says it, and which is
        installed here.
        """
        pin = self.by_stack.get(stack)
        if pin is None:
            release = installed_release(stack)
            here = f"; {stack} {release} is installed here" if release is not None else ""
            return f"no file here says which release of {stack} runs{here}"
        if not pin.known:
            return f"a commit or branch of {stack} is asked for in {pin.file}, line {pin.line}"
        if pin.is_printed:
            printed = pin.wanted.removeprefix("==")
            return f"an output in {pin.file}, line {pin.line}, prints {stack} {printed}"
        return f"{stack} {pin} is asked for in {pin.file}, line {pin.line}"

    def is_release_surely_before(self, stack: str, release: str) -> bool:
        """Is it sure that a release before this one runs?"""
        return self.age_of_asked_releases(stack, release, release) == "older"


@lru_cache(maxsize=8)
def installed_release(package: str) -> Version | None:
    """The release of a package in truetune's own environment; None if it has none."""
    try:
        return Version(importlib.metadata.version(package))
    except (importlib.metadata.PackageNotFoundError, InvalidVersion):
        return None


def pins_of_notebook(cells: Iterable[tuple[str, int]], path: str, text: str = "") -> Pins:
    """The releases that a notebook asks for: by the install commands in its cells, otherwise by the
    files around it.

    An install without a version leaves a release that already exists, unless it upgrades. A release that outputs
    print is the one that ran, unless a command asks for another: then the command is newer than the outputs.

    Args:
        text: of the whole file, with its outputs.
    """
    pins: dict[str, Pin] = {}
    for cell, first_line in cells:
        for offset, line in enumerate(cell.replace("\\\n", "  ").split("\n")):
            for what in _install_arguments_of_line(line):
                upgrades = re.search(r"(?:^|\s)(?:-[a-zA-Z]*U|--upgrade)", what) is not None
                for stack, pin in _parse_requirements_in_line(
                    what, path, first_line + offset, bare=True
                ):
                    if pin.wanted or not pin.known or upgrades or stack not in pins:
                        pins[stack] = pin
    around = pins_of_project_files(path).by_stack
    printed = {
        stack: pin
        for stack, pin in _pins_of_printed_releases(text, path)
        if stack not in pins or _can_printed_release_satisfy_pin(pins[stack], pin)
    }
    return Pins(_newest_releases_that_unsloth_takes({**around, **pins, **printed}))


def _install_arguments_of_line(line: str) -> Iterator[str]:
    """What the install commands of one line install; a comment installs nothing."""
    for part in COMMAND_END.split(line):
        command = INSTALL_COMMAND.match(part)
        if "#" in (part if command is None else command["before"]):
            return
        if command is not None:
            yield command["what"]


def _pins_of_printed_releases(text: str, path: str) -> Iterator[tuple[str, Pin]]:
    """The releases that outputs print."""
    for name, (release, line) in releases_in_outputs(text).items():
        yield _stack_of_package(name), Pin(f"=={release}", path, line, is_printed=True)


def _can_printed_release_satisfy_pin(asked: Pin, printed: Pin) -> bool:
    """May the release that is printed be what a command asks for?"""
    if not asked.known or not asked.wanted:
        return True
    try:
        return SpecifierSet(asked.wanted).contains(printed.wanted[2:], prereleases=True)
    except InvalidSpecifier:
        return True


def pins_of_script(text: str, path: str) -> Pins:
    """The releases that a script asks for: in its own header (PEP 723), otherwise by what it
    installs; otherwise by the files around it, otherwise by the comments at its top.
    """
    header = PEP723_HEADER.search(text)
    pins = dict(_pins_in_script_lines(text, path))
    if header is not None:
        first = text.count("\n", 0, header.start("header")) + 1
        for offset, line in enumerate(header["header"].split("\n")):
            pins.update(
                _parse_requirements_in_line(
                    line.lstrip("# "), path, first + offset, bare='"' in line
                )
            )
    around = pins_of_project_files(path).by_stack
    return Pins(
        _newest_releases_that_unsloth_takes(
            {**dict(_releases_in_top_comment_or_docstring(text, path)), **around, **pins}
        )
    )


def _releases_in_top_comment_or_docstring(text: str, path: str) -> Iterator[tuple[str, Pin]]:
    """The releases that the comments and the docstring at the top of a script name. They count only
    if no file asks for a release.

    They count only where no file asks for a release: a comment may be older than the requirements.
    """
    top = COMMENTS_AT_TOP.match(text)
    words = top[0][:MAX_TOP_CHARS] if top is not None else ""
    for match in RELEASE_IN_WORDS.finditer(words):
        release = match["release"] if match["release"].count(".") == 2 else f"{match['release']}.*"
        line = text.count("\n", 0, match.start("name")) + 1
        yield _stack_of_package(match["name"]), Pin(f"=={release}", path, line)


def _pins_in_script_lines(text: str, path: str) -> Iterator[tuple[str, Pin]]:
    """The pins in a script's lines: installs that it runs or notes in comments, and
    `require_version(...)`.

    Only names with a release, so that a later line without one does not undo it, and nothing that is only said in a
    comment stands for the newest release.
    """
    if "pip" not in text and "require_version(" not in text:
        return
    for number, line in enumerate(text.split("\n"), 1):
        is_comment = line.lstrip().startswith("#")
        if "require_version(" in line and not is_comment:
            yield from _pins_that_name_release(
                _parse_requirements_in_line(
                    line.partition("require_version(")[2], path, number, bare=False
                )
            )
        elif is_comment or RUNS_INSTALL.search(line):
            for what in _install_arguments_of_line(LIST_OF_WORDS.sub(" ", line).lstrip("# \t")):
                yield from _pins_that_name_release(
                    _parse_requirements_in_line(what, path, number, bare=False)
                )


def _pins_that_name_release(pins: Iterable[tuple[str, Pin]]) -> Iterator[tuple[str, Pin]]:
    """The pins that name a release."""
    return ((stack, pin) for stack, pin in pins if pin.wanted)


def _newest_releases_that_unsloth_takes(found: Mapping[str, Pin]) -> dict[str, Pin]:
    """The newest release of other packages that the asked unsloth takes, for those without a
    release of their own.
    """
    unsloth = found.get("unsloth")
    bounded = dict(found)
    for stack in HIGHEST_WITH_UNSLOTH if unsloth is not None and unsloth.known else ():
        given = found.get(stack)
        if given is None or (given.known and not given.wanted):
            assert unsloth is not None
            bounded[stack] = Pin(
                f"<={_newest_release_beside_unsloth(unsloth, stack)}", unsloth.file, unsloth.line
            )
    return bounded


def _newest_release_beside_unsloth(unsloth: Pin, stack: str) -> str:
    """The newest release of a package that can be installed beside these releases of unsloth."""
    _, highest = _release_bounds(unsloth.wanted)
    releases = HIGHEST_WITH_UNSLOTH[stack]
    later = (
        bound
        for release, bound in releases.items()
        if highest is not None and Version(release) >= highest
    )
    return next(later, list(releases.values())[-1])


def pins_of_project_files(path: str) -> Pins:
    """The pins in requirements and lock files, in the file's folder and those above it up to the
    root of its project.
    """
    pins: dict[str, Pin] = {}
    for folder in folders_up_to_project_root(Path(path)):
        here: dict[str, Pin] = {}
        for file in _requirement_files(folder):
            for stack, pin in _pins_of_requirement_file_cached(str(file), file.stat().st_mtime_ns):
                here.setdefault(stack, pin)
        pins = {**here, **_pins_of_lock_file(folder), **pins}
    return Pins(_newest_releases_that_unsloth_takes(pins))


def _pins_of_lock_file(folder: Path) -> dict[str, Pin]:
    """The pins of the lock file in a folder, which names the release itself."""
    files = [folder / name for name in LOCK_FILES if (folder / name).is_file()]
    return {
        stack: pin
        for file in files
        for stack, pin in _pins_of_one_lock_file_cached(str(file), file.stat().st_mtime_ns)
    }


@lru_cache(maxsize=64)
def _pins_of_one_lock_file_cached(path: str, _changed: int) -> tuple[tuple[str, Pin], ...]:
    """The pins of one lock file; cached. A package that is locked to several releases is left out."""
    try:
        text = read_bytes_within_limit(Path(path), LOCK).decode("utf-8", "replace")
    except (OSError, InputLimitError):
        return ()
    pins_by_package: dict[str, list[Pin]] = {}
    for match in LOCK_FILES[Path(path).name].finditer(text):
        if match["name"].lower().replace("-", "") in STACK_OF_PACKAGE:
            line = text.count("\n", 0, match.start()) + 1
            pins_by_package.setdefault(_stack_of_package(match["name"]), []).append(
                Pin(f"=={match['version']}", path, line)
            )
    return tuple((stack, pins[0]) for stack, pins in pins_by_package.items() if len(pins) == 1)


def folders_up_to_project_root(path: Path) -> list[Path]:
    """The file's folder, and those above it up to the root of the project.

    Where no folder has the signs of a root, it is the one that the command runs in, if the file lies below it: people
    stand at the top of what they work on. A home folder holds many projects, so it is no root.
    """
    above = list(path.absolute().parents)[:MAX_FOLDERS]
    root = next((number for number, folder in enumerate(above) if _is_project_root(folder)), None)
    current = Path.cwd()
    if root is None and current in above and current not in (Path.home(), Path(current.anchor)):
        root = above.index(current)
    return above[: (root or 0) + 1]


def _is_project_root(folder: Path) -> bool:
    """Is a folder the root of a project, by its entries?"""
    return any((folder / sign).exists() for sign in ROOT_SIGNS)


def _requirement_files(folder: Path) -> list[Path]:
    """The requirement files in a folder, and in its subfolder for requirements."""
    names = [
        name
        for name in _file_names_in_folder(folder)
        if any(fnmatchcase(name, pattern) for pattern in REQUIREMENT_FILES)
    ]
    inner = folder / REQUIREMENTS_FOLDER
    in_folder = [
        inner / name for name in _file_names_in_folder(inner) if name.endswith((".txt", ".in"))
    ]
    return [*(folder / name for name in names), *in_folder]


def _file_names_in_folder(folder: Path) -> list[str]:
    """The names of the files in a folder; empty if it can't be read."""
    try:
        return sorted(entry.name for entry in os.scandir(folder) if entry.is_file())
    except OSError:
        return []


@lru_cache(maxsize=256)
def _pins_of_requirement_file_cached(path: str, _changed: int) -> tuple[tuple[str, Pin], ...]:
    """The pins of one requirement file; cached, because every file of a project asks for the same."""
    try:
        text = read_bytes_within_limit(Path(path), SETTINGS).decode("utf-8", "replace")
    except (OSError, InputLimitError):
        return ()
    found: list[tuple[str, Pin]] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.lstrip().startswith(("#", "-r", "-c")):
            found += _parse_requirements_in_line(
                line, path, number, bare=path.endswith((".txt", ".in"))
            )
    return tuple(found)


def _parse_requirements_in_line(
    line: str, file: str, number: int, *, bare: bool
) -> Iterator[tuple[str, Pin]]:
    """The pins in one line of a file. `bare`: a name without a version asks for the newest."""
    for match in GIT_REQUIREMENT.finditer(line):
        tag = RELEASE_TAG.fullmatch(match["ref"] or "")
        newest = match["ref"] is None or match["ref"] in ("main", "master")
        yield (
            _stack_of_package(match["name"]),
            Pin(f"=={tag[1]}" if tag else "", file, number, bool(tag) or newest),
        )
    rest = re.sub(r"\S*(?:git\+|https?:)\S*", " ", line).partition(" #")[0]
    for match in REQUIREMENT.finditer(rest):
        bounds = match["bounds"]
        if bounds:
            yield _stack_of_package(match["name"]), Pin(_pep440_specifiers(bounds), file, number)
        elif bare:
            computed = (
                rest[match.end() :].lstrip()[:2] in ("==", ">=", "<=", "~=")
                or rest[match.end() :][:1] in "{$"
            )
            yield (
                _stack_of_package(match["name"]),
                Pin("", file, number, not (computed and rest[match.end() :])),
            )


def _stack_of_package(name: str) -> str:
    """The stack that a package of this name belongs to."""
    return STACK_OF_PACKAGE[name.lower().replace("-", "")]


def _pep440_specifiers(bounds: str) -> str:
    """Version bounds in PEP 440's form: conda's `=4.36` is `==4.36.*`, poetry's `^0.9.1` is
    `>=0.9.1,<0.10`.
    """
    made = []
    for bound in re.split(r"\s*,\s*", bounds.strip()):
        operator, version = re.fullmatch(r"([=~<>!^]+)\s*v?(.*)", bound).groups()  # type: ignore[union-attr]
        if operator == "=":
            made.append(f"=={version.rstrip('.*')}.*")
        elif operator == "^":
            major, _, rest = version.partition(".")
            minor = rest.partition(".")[0] or "0"
            above = (
                f"{int(major) + 1}"
                if major != "0"
                else f"0.{int(minor) + 1 if minor.isdigit() else 1}"
            )
            made += [f">={version}", f"<{above}"]
        else:
            made.append(f"{operator}{version}")
    return ",".join(made)


def _release_bounds(wanted: str) -> tuple[Version | None, Version | None]:
    """The lowest and the highest release that version specifiers allow, None where they set no
    bound.
    """
    lows, highs = [], []
    try:
        for one in SpecifierSet(wanted):
            text = one.version.removesuffix(".*")
            version = Version(text)
            if one.operator in ("==", "===", "~=", ">=", ">"):
                lows.append(version)
            if (
                one.operator in ("==", "===") and not one.version.endswith(".*")
            ) or one.operator in ("<", "<="):
                highs.append(version)
            elif one.operator == "~=" or one.version.endswith(".*"):
                fixed = version.release[:-1] if one.operator == "~=" else version.release
                highs.append(Version(".".join(map(str, (*fixed, 9999)))))
    except (InvalidSpecifier, InvalidVersion):
        return None, None
    return max(lows, default=None), min(highs, default=None)
