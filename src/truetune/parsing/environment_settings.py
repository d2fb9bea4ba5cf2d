"""Variables that files set for the programs they start: shell, job and compose files, Dockerfiles, files of variables.

A job often sources its variables from another file, or hands them to a container by `--env-file`. Those files are read
with the job, since the job is what they act on. Only the names that are asked for are looked at: such files hold keys
and passwords, which nobody needs to see.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.parsing.bounded_files import read_bounded
from truetune.parsing.input_limits import SETTINGS, InputLimitError
from truetune.parsing.shell_commands import CommandFile, describes_containers, last_option

SETS_VARIABLE = re.compile(r"(?<![\w$\-.])([A-Z][A-Z0-9_]{2,60})=[\"']?([\w.:+-]*)")
DOCKER_VARIABLE = re.compile(r"ENV\s+([A-Z][A-Z0-9_]{2,60})\s+[\"']?([\w.:+-]+)", re.I)
UNSETS = re.compile(r"\bunset\s+(?P<names>[\w ]+)")
PRINTS = re.compile(r"\s*(?:echo|printf)\b(?![^\n]*>)")
"""A line that only shows a variable; one that writes it into a file sets it for whoever reads the file"""
SOURCES = (("source",), (".",))
MAX_SOURCED = 8
"""Files that one job sources, at most"""


class EnvironmentSetting(NamedTuple):
    """A variable that a file sets."""

    name: str
    value: str
    file: str
    line: int
    """1-based"""


def environment_of(file: CommandFile, names: frozenset[str]) -> Iterator[EnvironmentSetting]:
    """The variables of these names that a file of commands sets, or a file that it sources, as they are at its end."""
    found: dict[str, EnvironmentSetting] = {}
    for sourced in _sourced_files(file):
        found |= _settings_of_text(_read_text(sourced), str(sourced), names)
    lines = enumerate(file.text.splitlines(), 1)
    if describes_containers(Path(file.path)):
        lines_of_commands = [(one.line, one.text) for one in file.commands]
        found |= _settings_of_lines(iter(lines_of_commands), file.path, names)
    else:
        found |= _settings_of_lines(lines, file.path, names)
    unset = {name for match in UNSETS.finditer(file.text) for name in match["names"].split()}
    yield from (one for one in found.values() if one.name not in unset)


def _settings_of_text(text: str, path: str, names: frozenset[str]) -> dict[str, EnvironmentSetting]:
    """The variables of these names that a text sets; the last value holds."""
    return _settings_of_lines(iter(enumerate(text.splitlines(), 1)), path, names)


def _settings_of_lines(
    lines: Iterator[tuple[int, str]], path: str, names: frozenset[str]
) -> dict[str, EnvironmentSetting]:
    """The same of numbered lines."""
    found: dict[str, EnvironmentSetting] = {}
    for number, line in lines:
        code = line.partition("#")[0] if not line.lstrip().startswith("#") else ""
        if not code or PRINTS.match(code):
            continue
        for name, value in (*SETS_VARIABLE.findall(code), *DOCKER_VARIABLE.findall(code)):
            if name in names:
                found[name] = EnvironmentSetting(name, value, path, number)
    return found


def _sourced_files(file: CommandFile) -> Iterator[Path]:
    """Files beside a file of commands from which it takes variables."""
    folder = Path(file.path).parent
    named: list[str] = []
    for command in file.commands:
        for words in SOURCES:
            behind = command.behind(*words) if command.words[0] == words[0] else None
            named += behind[:1] if behind else ()
        given = last_option(command.words, "--env-file", "--export-file")
        named += [given] if given else ()
    # A path with a variable in front of it (`$SLURM_SUBMIT_DIR/env.sh`) is looked for by its last part.
    for name in dict.fromkeys(named[:MAX_SOURCED]):
        path = folder / (name.rpartition("/")[2] if "$" in name else name)
        if "$" not in path.name and path.is_file():
            yield path


def _read_text(path: Path) -> str:
    """The text of a small file; empty where it can't be read."""
    try:
        return read_bounded(path, SETTINGS).decode("utf-8-sig", "replace")
    except (OSError, InputLimitError):
        return ""
