"""Finds folders of merged weights, and the adapters that are in them: by scripts, settings and
commands around a file.

The trade-off: a merge whose adapter or output is known to the run alone says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.find_uses_of_weight_folders import is_same_folder, uses_of_files
from truetune.errors import TruetuneError
from truetune.parsing.input_limits import SETTINGS
from truetune.parsing.read_files_within_limits import read_bytes_within_limit
from truetune.parsing.shell_commands import ShellCommand, is_command_file, read_command_file

MOUNT = re.compile(r"(?<![\w:])([.~]{0,2}/?[\w./-]+):(/[\w./-]+)")
"""`./out:/models` of docker and compose"""
ADAPTER_OPTION = re.compile(r"--[\w-]*(?:adapter|lora|peft)[\w-]*")
OUTPUT_OPTION = re.compile(r"--[\w-]*(?:out|save|dest|export|target|merged)[\w-]*")
MERGING = b"merge_and_unload"
MAX_FILES = 100
"""Files of a folder that are read. Chosen by hand: a bound on time, for a folder may hold a data
set in thousands of files"""


class MergedWeights(NamedTuple):
    """A folder of weights with an adapter in them."""

    folder: str
    adapter: str
    file: str
    line: int


def find_merge_of_adapter(base: str, adapters: tuple[str, ...], file: Path) -> MergedWeights | None:
    """The merge that wrote the model `base`, where one of the adapters is in it already; else None.

    Args:
        base: The model that the adapters are put on, as `file` names it.
        adapters: Folders, as `file` names them.
        file: What puts them on; what lies beside it is read.
    """
    mounts = _container_mounts(file)
    names = tuple(_host_path(adapter, mounts) for adapter in adapters)
    model = _host_path(base, mounts)
    for merge in merges_in_folder(file.parent):
        is_base = is_same_folder(model, merge.folder)
        if is_base and any(is_same_folder(name, merge.adapter) for name in names):
            return merge
    return None


def merges_in_folder(folder: Path) -> Iterator[MergedWeights]:
    """The merges of adapters that the files of a folder make."""
    try:
        files = [one for one in sorted(folder.iterdir())[:MAX_FILES] if one.is_file()]
    except OSError:
        return
    for use in uses_of_files(files):
        if use.verb != "merges" and not use.is_merged:
            continue
        for written in use.writes:
            for adapter in use.folders:
                yield MergedWeights(written, adapter, use.file, use.line)
    for path in filter(is_command_file, files):
        try:
            commands = read_command_file(path).commands
        except (TruetuneError, OSError, ValueError):
            continue
        for command in commands:
            yield from _merge_of_script_command(path, command)


def _merge_of_script_command(path: Path, command: ShellCommand) -> Iterator[MergedWeights]:
    """The merge that a command makes by a script of the folder, by its options for the adapter and
    the output.
    """
    if MERGING not in read_script_of_command(path, command):
        return
    adapter = option_value(command, ADAPTER_OPTION)
    folder = option_value(command, OUTPUT_OPTION)
    if adapter and folder:
        yield MergedWeights(folder, adapter, str(path), command.line)


def read_script_of_command(path: Path, command: ShellCommand) -> bytes:
    """The script beside a file of commands that one of them runs; empty where it runs none, or it can't be read."""
    script = next((word for word in command.words if word.endswith(".py")), None)
    return b"" if script is None else _read_beginning(path.parent / script)


def option_value(command: ShellCommand, pattern: re.Pattern[str]) -> str | None:
    """The value of the first option of such a name; None where there is none, or the shell makes it."""
    words = command.words
    for number, word in enumerate(words):
        name, equals, value = word.partition("=")
        if not pattern.fullmatch(name):
            continue
        given = value if equals else words[number + 1] if number + 1 < len(words) else ""
        return given if given and not given.startswith("-") and "$" not in given else None
    return None


def _read_beginning(path: Path) -> bytes:
    """The beginning of a file as bytes; empty if it can't be read."""
    try:
        return read_bytes_within_limit(path, SETTINGS)
    except (OSError, TruetuneError, ValueError):
        return b""


def _container_mounts(file: Path) -> tuple[tuple[str, str], ...]:
    """Folders of the host and their places in a container, the longest place first."""
    if file.suffix == ".py":
        return ()
    mounts = MOUNT.findall(_read_beginning(file).decode("utf-8", "replace"))
    return tuple(sorted(mounts, key=lambda one: len(one[1]), reverse=True))


def _host_path(name: str, mounts: tuple[tuple[str, str], ...]) -> str:
    """A folder of a container by its name on the host."""
    for source, target in mounts:
        if name == target or name.startswith(f"{target.rstrip('/')}/"):
            return source + name.removeprefix(target.rstrip("/"))
    return name
