"""Finds the one GPU that a run's own files name: a job's request, or a comment about the machine.

Who checks a run mostly sits at another machine than the one that trains. Job files ask for a type of GPU
(`--gres=gpu:rtx4090:1`), and people note theirs beside the command (`# g5.2xlarge (1x A10G)`). The trade-off: only one
GPU is read, and only where all files agree; several may share a model in ways that no file says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.errors import TruetuneError
from truetune.parsing.shell_commands import CommandFile, is_command_file, read_command_file

GPU_SIZES = (
    (r"(?:rtx[ _-]?)?(?:pro[ _-]?)6000(?:[ _-]?blackwell)?", 96),
    (r"(?:rtx[ _-]?)?6000[ _-]?ada", 48),
    (r"(?:rtx[ _-]?)?a6000", 48),
    (r"(?:rtx[ _-]?)?a5000", 24),
    (r"(?:rtx[ _-]?)?5090", 32),
    (r"(?:rtx[ _-]?)?[34]090(?:[ _-]?ti)?", 24),
    (r"rtx[ _-]?(?:4080|3080|4070|3060)", 16),
    (r"l40s?", 48),
    (r"l4", 24),
    (r"a40", 48),
    (r"a10g?", 24),
    (r"a30", 24),
    (r"t4", 16),
    (r"p100", 16),
    (r"v100", 32),
    (r"a100", 80),
    (r"h100|h800", 94),
    (r"h200", 141),
    (r"b200", 192),
)
"""Name of a GPU -> GB of memory, of several variants the largest"""
NAMED = re.compile(
    rf"(?<![\w.])(?:(\d+|one|single|an?)\s*(?:[x×]|gpus?)?\s*)?(?:nvidia\s+)?(?:rtx\s+)?"
    rf"({'|'.join(pattern for pattern, _ in GPU_SIZES)})(?![\w])(?:\s*\(?\s*(\d+)\s*gi?b)?(\s*[x×:]\s*\d+)?",
    re.I,
)
"""`1x A10G`, `RTX A6000 (48 GB)`, `one 4090`, `A100 40GB`, `A100 x4`"""
GPU_WITHOUT_BFLOAT16 = re.compile(
    r"(?<![a-z0-9])(?:v100s?|volta|t4|turing|p100|p40|titan|gtx(?:[ _-]?\d{3,4})?|rtx[ _-]?20\d0|20[678]0[ _-]?ti"
    r"|(?<=gpu:)20[678]0|quadro[ _-]?rtx)(?![a-z0-9])",
    re.IGNORECASE,
)
"""Names of GPUs before Ampere, which have no bfloat16"""
ONE = frozenset(("1", "one", "single", "a", "an"))
TYPED_REQUEST = re.compile(r"(?:gpu:)?([\w.-]*[A-Za-z][\w.-]*):(\d+)(?:\(.*\))?")
"""`gpu:rtx4090:1`, `l40s:1`"""
REQUESTS = ("--gres", "--gpus-per-node", "--gpus", "-G", "--gpus-per-task")
# Chosen, not measured: the head of a script says what it is for; data in later lines names anything.
MAX_COMMENT_LINES = 400
MAX_FILES = 100


class NamedGpu(NamedTuple):
    """One GPU."""

    name: str
    gigabytes: float
    file: str
    line: int
    text: str
    """What names it"""


def find_only_named_gpu(path: str, text: str) -> NamedGpu | None:
    """The one GPU that the files of a run name; None where none is named, or several, or other ones.

    Args:
        path: The script or the settings.
        text: Its text.
    """
    named_gpus: list[NamedGpu | None] = list(_gpus_requested_by_jobs(Path(path)))
    named_gpus += _gpus_in_comments(path, text)
    named = [gpu for gpu in named_gpus if gpu is not None]
    if not named or len(named) < len(named_gpus) or len({gpu.gigabytes for gpu in named}) > 1:
        return None
    return named[0]


def _gpus_requested_by_jobs(path: Path) -> Iterator[NamedGpu | None]:
    """The GPU that each job file beside a run asks for; None for several, or a type that is not known."""
    try:
        files = sorted(path.parent.iterdir())[:MAX_FILES]
    except OSError:
        return
    for file in files:
        if not file.is_file() or not is_command_file(file):
            continue
        try:
            commands = read_command_file(file)
        except TruetuneError:
            continue
        if _does_file_start_run(commands, path):
            yield from _requested_gpu(commands)
            yield from _gpus_in_comments(str(file), commands.text)


def _does_file_start_run(file: CommandFile, path: Path) -> bool:
    """Does a command of the file name the script or the settings, or is the file that of the run itself?"""
    if Path(file.path).name == path.name:
        return True
    return any(Path(word).name == path.name for command in file.commands for word in command.words)


def _requested_gpu(file: CommandFile) -> Iterator[NamedGpu | None]:
    """The GPU that a job asks for; nothing where it asks for none by its type."""
    nodes = next(
        (file.requests[name][0] for name in ("--nodes", "-N") if name in file.requests), "1"
    )
    for name in REQUESTS:
        if name not in file.requests:
            continue
        value, line = file.requests[name]
        match = TYPED_REQUEST.fullmatch(value)
        size = gpu_memory_gb(match[1]) if match is not None else None
        if match is None or size is None or match[2] != "1" or nodes != "1":
            # A number alone says how many, and a comment may say which.
            if value not in ("1", "gpu:1") or nodes != "1":
                yield None
            continue
        yield NamedGpu(match[1], size, file.path, line, f"{name}={value}")


def _gpus_in_comments(path: str, text: str) -> Iterator[NamedGpu | None]:
    """The GPUs that comments name, or the cells of a notebook; None for several."""
    is_notebook = path.endswith(".ipynb")
    for number, line in enumerate(text.splitlines()[:MAX_COMMENT_LINES], 1):
        # Requests are read apart; text of a notebook stands in JSON, its code without any mark.
        comment = line if is_notebook else line.partition("#")[2]
        if comment.startswith("SBATCH"):
            continue
        for match in NAMED.finditer(comment):
            yield from _gpu_of_match(match, path, number)


def _gpu_of_match(match: re.Match[str], path: str, line: int) -> Iterator[NamedGpu | None]:
    """The GPU that words of a comment name; None for several, nothing for words that may mean anything."""
    count, name, gigabytes, behind = match.groups()
    size = gpu_memory_gb(name)
    if size is None or behind or (count and count.lower() not in ONE):
        yield None
        return
    # A short name without a count may be anything: `L4`, `T4`, `A10`.
    if not count and not gigabytes and len(name) < 4:
        return
    known = float(gigabytes) if gigabytes and float(gigabytes) <= size else size
    yield NamedGpu(name, known, path, line, match[0].strip())


def gpu_memory_gb(name: str) -> float | None:
    """GB of a GPU by its name, as people and job files write it; None where it is not known."""
    plain = re.sub(r"^(?:nvidia|geforce|tesla)[ _-]*", "", name.lower())
    # `a100_80gb`, `a100-sxm4-80gb`: what is behind the name says the variant.
    sizes = (size for pattern, size in GPU_SIZES if re.match(rf"(?:{pattern})(?![a-z0-9])", plain))
    size = next(sizes, None)
    variant = re.search(r"(\d+)gb", plain)
    return float(variant[1]) if size is not None and variant is not None else size
