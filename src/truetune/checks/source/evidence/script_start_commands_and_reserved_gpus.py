"""Finds the commands in shell scripts and job files beside a script that start it, and whether they
reserve a GPU.

The trade-off: only the script's own folder and the one above it are searched, so a job that stands
elsewhere is not seen.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.cached_for_one_call import cached_for_one_call
from truetune.checks.job_gpus_and_processes import gpus_requested_by_job
from truetune.errors import DataError
from truetune.parsing.shell_commands import (
    CommandFile,
    is_command_file,
    last_option,
    read_command_file,
)

MAX_FILES_IN_FOLDER = 100
"""Files of a folder that are looked at, by name. Chosen, not measured: folders of scripts hold fewer"""
NEEDS_GPU = re.compile(r"^\s*(?:nvidia-smi\b|(?:export\s+)?CUDA_VISIBLE_DEVICES=\d)")
"""Lines of a job that mean nothing without a GPU"""


class JobStart(NamedTuple):
    """A command that starts a script."""

    file: str
    words: tuple[str, ...]
    """Behind the script"""
    gpu_line: int
    """Where the job reserves a GPU; 0 where it reserves none"""
    gpu_text: str


@cached_for_one_call
def starts_of_script(path: str) -> tuple[JobStart, ...]:
    """The commands of job files and shell scripts that start a script.

    Args:
        path: The script.
    """
    script = Path(path)
    return tuple(
        start
        for folder in (script.parent, script.parent.parent)
        for file in command_files_in(folder)
        for start in _starts_in_file(file, script.name)
    )


def gpu_start_of_script(path: str) -> JobStart | None:
    """The first job that starts a script and reserves a GPU; None where none is seen."""
    return next((start for start in starts_of_script(path) if start.gpu_line), None)


def is_option_given_by_starts(path: str, name: str) -> bool:
    """Does any command that starts a script give this option?"""
    return any(
        last_option(start.words, f"--{name}") is not None for start in starts_of_script(path)
    )


def command_files_in(folder: Path) -> Iterator[CommandFile]:
    """The files of commands in a folder."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)[:MAX_FILES_IN_FOLDER]
    except OSError:
        return
    for entry in entries:
        path = Path(entry.path)
        if not entry.is_file() or not is_command_file(path):
            continue
        try:
            yield read_command_file(path)
        except DataError:
            continue


def _starts_in_file(file: CommandFile, script: str) -> Iterator[JobStart]:
    """The commands of one file that start the script."""
    line, text = _gpu_reservation_line_number_and_text(file)
    for command in file.commands:
        names = [Path(word).name for word in command.words]
        if script in names:
            words = command.words[names.index(script) + 1 :]
            yield JobStart(file.path, words, line, text)


def _gpu_reservation_line_number_and_text(file: CommandFile) -> tuple[int, str]:
    """The line of a file that reserves or names a GPU, and its text; (0, "") without one."""
    requested = gpus_requested_by_job(file)
    if requested is not None:
        return requested.line, requested.text
    for number, line in enumerate(file.text.splitlines(), 1):
        if NEEDS_GPU.match(line):
            return number, line.strip()
    return 0, ""
