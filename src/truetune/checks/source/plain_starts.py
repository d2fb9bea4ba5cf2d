"""Commands that start a script as one process, and how many GPUs they show it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.spec.stacks.readers import LAUNCHERS, files_around, leads_to, text_at

VISIBLE = re.compile(r"CUDA_VISIBLE_DEVICES=[\"']?(\d+(?:,\d+)*)")
GRANTED = re.compile(
    r"--gres[= ]gpu:(?:\w+:)?(\d+)|--gpus(?:-per-node|-per-task)?[= ](?:\w+:)?(\d+)\b"
)
"""What Slurm is asked for"""
TASKS = re.compile(r"(?:--ntasks(?:-per-node)?[= ]|-n )(?!1\b)\d+")
"""Slurm starts the command several times"""
PYTHON = re.compile(r"(?:^|[\s;&|`$/])python[\d.]*\s+(?:-[uOBW]\S*\s+)*(?P<script>[^\s-]\S*\.py)\b")
IS_SETTING = re.compile(r"^\s*(?:export\s|#SBATCH|#PBS|\w+=\S+\s*$)")
"""A line that counts for all that follow it"""


class PlainStart(NamedTuple):
    """One command."""

    gpus: int
    where: str
    """The command, with its file and line"""


def plain_starts(script: Path) -> Iterator[PlainStart]:
    """The commands of the project that start this script with `python`, and show it several GPUs."""
    if not script.is_file():
        return
    wanted = script.resolve()
    for file in files_around(script):
        text = text_at(str(file)) if file.suffix != ".py" else ""
        if wanted.name in text and not TASKS.search(text):
            yield from _in_file(file, text, wanted)


def _in_file(file: Path, text: str, wanted: Path) -> Iterator[PlainStart]:
    standing = 0
    for number, line in _lines(text):
        gpus = _gpus(line)
        if gpus and IS_SETTING.match(line):
            standing = gpus
        started = PYTHON.search(line)
        if started is None or LAUNCHERS.search(line) or "-m torch" in line:
            continue
        count = gpus or standing
        if count > 1 and leads_to(started["script"], file, wanted):
            yield PlainStart(count, f"{' '.join(line.split())} ({file.name}, line {number})")


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines; one that continues over several is one."""
    continued = ""
    for number, line in enumerate(text.splitlines(), 1):
        whole = continued + line
        if whole.endswith("\\"):
            continued = whole[:-1] + " "
            continue
        continued = ""
        yield number, whole


def _gpus(line: str) -> int:
    """How many GPUs a line shows, or asks for; 0 where it says nothing of them."""
    visible = VISIBLE.search(line)
    if visible is not None:
        return len(visible[1].split(","))
    granted = GRANTED.search(line)
    return int(granted[1] or granted[2]) if granted is not None else 0
