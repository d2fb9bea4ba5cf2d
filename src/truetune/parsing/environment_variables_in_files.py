"""Finds environment variables that files set for the programs they start: shell, job and compose
files, Dockerfiles, files of variables.

A job often sources its variables from another file, or hands them to a container by `--env-file`. Those files are read
with the job, since the job is what they act on. Only the names that are asked for are looked at: such files hold keys
and passwords, which nobody needs to see.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.parsing.input_limits import SETTINGS, InputLimitError
from truetune.parsing.read_files_within_limits import read_bytes_within_limit
from truetune.parsing.shell_commands import CommandFile, is_compose_file_or_manifest, last_option

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


def find_environment_settings(
    file: CommandFile, names: frozenset[str]
) -> Iterator[EnvironmentSetting]:
    """The values of these variables that a file of commands, or a file that it sources, leaves set
    at its end.
    """
    settings_by_name: dict[str, EnvironmentSetting] = {}
    for sourced in _files_sourced_by_commands(file):
        settings_by_name |= _find_settings_in_text(
            _read_text_or_empty(sourced), str(sourced), names
        )
    lines = enumerate(file.text.splitlines(), 1)
    if is_compose_file_or_manifest(Path(file.path)):
        lines_of_commands = [(one.line, one.text) for one in file.commands]
        settings_by_name |= _find_settings_in_lines(iter(lines_of_commands), file.path, names)
    else:
        settings_by_name |= _find_settings_in_lines(lines, file.path, names)
    unset = {name for match in UNSETS.finditer(file.text) for name in match["names"].split()}
    yield from (one for one in settings_by_name.values() if one.name not in unset)


def _find_settings_in_text(
    text: str, path: str, names: frozenset[str]
) -> dict[str, EnvironmentSetting]:
    """The variables of these names that a text sets; the last value counts."""
    return _find_settings_in_lines(iter(enumerate(text.splitlines(), 1)), path, names)


def _find_settings_in_lines(
    lines: Iterator[tuple[int, str]], path: str, names: frozenset[str]
) -> dict[str, EnvironmentSetting]:
    """The variables of these names that numbered lines set; the last value counts."""
    settings_by_name: dict[str, EnvironmentSetting] = {}
    for number, line in lines:
        code = line.partition("#")[0] if not line.lstrip().startswith("#") else ""
        if not code or PRINTS.match(code):
            continue
        for name, value in (*SETS_VARIABLE.findall(code), *DOCKER_VARIABLE.findall(code)):
            if name in names:
                settings_by_name[name] = EnvironmentSetting(name, value, path, number)
    return settings_by_name


def _files_sourced_by_commands(file: CommandFile) -> Iterator[Path]:
    """The files that a file of commands takes variables from: by `source`, `.`, or `--env-file`."""
    folder = Path(file.path).parent
    named: list[str] = []
    for command in file.commands:
        for words in SOURCES:
            behind = command.words_following(*words) if command.words[0] == words[0] else None
            named += behind[:1] if behind else ()
        env_file_option = last_option(command.words, "--env-file", "--export-file")
        named += [env_file_option] if env_file_option else ()
    # A path with a variable in front of it (`$SLURM_SUBMIT_DIR/env.sh`) is looked for by its last part.
    for name in dict.fromkeys(named[:MAX_SOURCED]):
        path = folder / (name.rpartition("/")[2] if "$" in name else name)
        if "$" not in path.name and path.is_file():
            yield path


def _read_text_or_empty(path: Path) -> str:
    """The text of a small file; empty where it can't be read."""
    try:
        return read_bytes_within_limit(path, SETTINGS).decode("utf-8-sig", "replace")
    except (OSError, InputLimitError):
        return ""
