"""Finds the commands of a project that start a script as one process, and how many GPUs they show
it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.settings.stacks.find_who_reads_config_or_starts_script import (
    LAUNCHERS,
    is_word_path_of_script,
    read_project_text_cached,
    scripts_commands_and_readmes_around,
)

VISIBLE = re.compile(r"CUDA_VISIBLE_DEVICES=[\"']?(\d+(?:,\d+)*)")
GRANTED = re.compile(
    r"--gres[= ]gpu:(?:[\w.-]+:)?(\d+)|--gpus(?:-per-node|-per-task)?[= ](?:[\w.-]+:)?(\d+)\b"
    r"|\bngpus=(\d+)|-gpu\s+[\"']?num=(\d+)"
    r"|^\s*(?:-\s*)?accelerators:\s*\{?\s*[\"']?[\w.-]+[\"']?\s*:\s*(\d+)"
    r"|^\s*[\"']?nvidia\.com/gpu[\"']?:\s*[\"']?(\d+)"
)
"""What Slurm, PBS, LSF, SkyPilot and Kubernetes are asked for"""
GPU_SIGNS = ("gpu", "accelerators:", "CUDA_VISIBLE_DEVICES=")
"""Each line that says how many GPUs there are holds one of these"""
OF_TASK = re.compile(r"^\s*(?:-\s*)?(?:accelerators|[\"']?nvidia\.com/gpu[\"']?):")
"""A line of a task's YAML file that counts for all commands of the file, before and after it"""
TASKS = re.compile(r"(?:--ntasks(?:-per-node)?[= ]|-n )(?!1\b)\d+")
"""Slurm starts the command several times"""
# Options of python itself stand before the script; `-m` starts a module and no file.
PYTHON = re.compile(
    r"(?:^|[\s;&|`$/\"'])python[\d.]*\s+(?:-[uOBW]\S*\s+)*(?P<script>[^\s-]\S*\.py)\b"
)
MODULE = re.compile(
    r"(?:^|[\s;&|`$/\"'])python[\d.]*\s+(?:-[uOBW]\S*\s+)*-m\s+(?P<module>[A-Za-z_]\w*(?:\.\w+)*)"
)
"""`python -m package.module`"""
COMPOSE_COUNT = re.compile(r"^\s*(?:-\s*)?count:\s*[\"']?(\d+)\b")
"""The GPUs that a service of a compose file reserves, beside `capabilities: [gpu]`"""
RESERVES_GPUS = re.compile(r"capabilities:\s*(?:\[[^\]]*\bgpu\b|\n\s*-\s*[\"']?gpu\b)")
ONE_PROCESS = re.compile(r"--(?:nproc[-_]per[-_]node|num[-_]processes|num[-_]gpus)[ =]+1\b")
"""What in the command of a launcher says that it starts a single process"""
BETWEEN_WORDS = re.compile(r"[\"'],\s*[\"']")
"""Of the command of a container, which is a list: `["python", "train.py"]`"""
IS_SETTING = re.compile(r"^\s*(?:export\s|#SBATCH|#PBS|#BSUB|\w+=\S+\s*$)")
"""A line that counts for all that follow it"""


class SingleProcessStart(NamedTuple):
    """One command."""

    gpus: int
    where: str
    """The command, with its file and line"""
    text: str
    """The whole file of the command"""
    launcher: bool = False
    """Does a launcher start the one process, and not `python`?"""


def find_single_process_multi_gpu_starts(script: Path) -> Iterator[SingleProcessStart]:
    """The commands of the project that start this script as one process, and show it several GPUs;
    a script may name its own command in its text."""
    if not script.is_file():
        return
    wanted = script.resolve()
    for file in scripts_commands_and_readmes_around(script):
        is_read = file.suffix != ".py" or file.resolve() == wanted
        text = read_project_text_cached(str(file)) if is_read else ""
        # Any count of tasks but 1: srun starts the command that often.
        is_named = wanted.name in text or f"-m {wanted.stem}" in text or f".{wanted.stem}" in text
        if is_named and not TASKS.search(text):
            yield from _multi_gpu_starts_in_file(file, text, wanted)


def _multi_gpu_starts_in_file(file: Path, text: str, wanted: Path) -> Iterator[SingleProcessStart]:
    """The commands of one file that start the script as one process with several GPUs."""
    if not _may_name_gpus(text):
        return
    standing = _gpu_count_of_yaml_task(file, text)
    for number, line in _lines_with_continuations(text):
        gpus = _gpu_count_of_line(line)
        if gpus and IS_SETTING.match(line):
            standing = gpus
        count = gpus or standing
        if count < 2:
            continue
        line = BETWEEN_WORDS.sub(" ", line)
        by_launcher = LAUNCHERS.search(line) is not None or "-m torch" in line
        if by_launcher:
            is_start = ONE_PROCESS.search(line) is not None and any(
                is_word_path_of_script(word, file, wanted) for word in line.split()
            )
        else:
            is_start = _line_starts_script(line, file, wanted)
        if is_start:
            where = f"{' '.join(line.split())} ({file.name}, line {number})"
            yield SingleProcessStart(count, where, text, by_launcher)


def _line_starts_script(line: str, file: Path, wanted: Path) -> bool:
    """Does `python` start the script in this line, as a file or as a module?"""
    started = PYTHON.search(line)
    if started is not None:
        return is_word_path_of_script(started["script"], file, wanted)
    module = MODULE.search(line)
    return module is not None and is_word_path_of_script(
        module["module"].replace(".", "/") + ".py", file, wanted
    )


def _gpu_count_of_yaml_task(file: Path, text: str) -> int:
    """How many GPUs the task of a YAML file gets; 0 where none are named, or tasks of different
    sizes are.
    """
    lines = text.splitlines() if file.suffix in (".yaml", ".yml") else []
    counts = {_gpu_count_of_line(line) for line in lines if OF_TASK.match(line)}
    if RESERVES_GPUS.search(text):
        reserved = (COMPOSE_COUNT.match(line) for line in lines)
        counts |= {int(count[1]) for count in reserved if count is not None}
    return counts.pop() if len(counts) == 1 else 0


def _lines_with_continuations(text: str) -> Iterator[tuple[int, str]]:
    """The lines; one that continues over several is one."""
    continued = ""
    for number, line in enumerate(text.splitlines(), 1):
        whole = continued + line
        if whole.endswith("\\"):
            continued = whole[:-1] + " "
            continue
        continued = ""
        yield number, whole


def _may_name_gpus(text: str) -> bool:
    """May a line or file say how many GPUs there are? Tried first: changelogs have thousands of lines that do not."""
    return any(sign in text for sign in GPU_SIGNS)


def _gpu_count_of_line(line: str) -> int:
    """How many GPUs a line shows, or asks for; 0 where it says nothing of them."""
    if not _may_name_gpus(line):
        return 0
    visible = VISIBLE.search(line)
    if visible is not None:
        return len(visible[1].split(","))
    granted = GRANTED.search(line)
    counts = granted.groups() if granted is not None else ()
    return next((int(count) for count in counts if count), 0)
