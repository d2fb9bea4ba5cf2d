"""Finds the GPUs of a run by the files beside it: what nvidia-smi printed, what a job asks for,
what its log names.

Who asks why a run is slow mostly sits at another machine than the one that trains, and keeps `nvidia-smi`, the job and
the log beside its settings. The trade-off: a name without its memory (`a100`) counts as the smallest variant there is,
for what fits that one fits the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from truetune.checks.find_only_gpu_named_in_files import (
    REQUESTS,
    TYPED_REQUEST,
    find_only_named_gpu,
    gpu_memory_gb,
)
from truetune.errors import TruetuneError
from truetune.parsing.input_limits import SETTINGS
from truetune.parsing.read_files_within_limits import read_bytes_within_limit
from truetune.parsing.read_nvidia_smi_output import GpuReading, read_nvidia_smi
from truetune.parsing.shell_commands import is_command_file, read_command_file

TEXT_SUFFIXES = (".txt", ".log", ".out", ".csv", ".err")
PRINTED_NAME = re.compile(
    r"\bNVIDIA (?P<name>(?:GeForce |RTX |Tesla |Quadro )*[A-Z]{0,3}\d{1,4}\w*(?:[- ][\w]+){0,4})(?![\w])"
)
"""`NVIDIA A100-SXM4-80GB`, as programs print the name that the driver gives"""
GB, GIB = 1e9, float(1 << 30)
SMALLEST_VARIANTS = {"a100": 40.0, "v100": 16.0, "h100": 80.0, "h800": 80.0}
"""GB of GPUs that there are with several sizes"""
MAX_FILES = 60
"""Files of a folder that are read. Chosen by hand: a bound on time, for a folder may hold a data
set in thousands of files"""
MAX_NAMED = 64
"""Names of GPUs that are kept. Chosen by hand: eight nodes of eight GPUs"""


class GpuBeside(NamedTuple):
    """A GPU of a run."""

    name: str
    memory: float
    """Bytes"""
    file: str
    line: int
    text: str
    reading: GpuReading | None = None
    """What nvidia-smi measured, where that names it"""


def find_gpus_beside(path: str, text: str) -> tuple[GpuBeside, ...]:
    """The GPUs that the files in a run's folder name, by the surest of them; none where they name none.

    Args:
        path: The script or the settings.
        text: Its text.
    """
    files = _first_files_of(Path(path).parent)
    for source in (
        _gpus_with_measured_memory,
        _gpus_printed_by_nvidia_smi,
        _gpus_requested_by_jobs,
        _gpus_of_logs,
    ):
        gpus = tuple(source(files))
        if gpus:
            return gpus
    named = find_only_named_gpu(path, text)
    if named is None:
        return ()
    gigabytes = min(named.gigabytes, smallest_memory_of_gpu_gb(named.text) or named.gigabytes)
    return (GpuBeside(named.name, gigabytes * GB, named.file, named.line, named.text),)


def read_nvidia_smi_file(file: Path) -> tuple[GpuReading, ...]:
    """What nvidia-smi printed into a file; nothing where it is another file, or can't be read."""
    if file.suffix not in TEXT_SUFFIXES:
        return ()
    try:
        text = read_bytes_within_limit(file, SETTINGS).decode("utf-8", "replace")
    except (OSError, TruetuneError):
        return ()
    return read_nvidia_smi(text)


def _first_files_of(folder: Path) -> list[Path]:
    """The files of a folder, at most so many."""
    try:
        return [path for path in sorted(folder.iterdir()) if path.is_file()][:MAX_FILES]
    except OSError:
        return []


def _gpus_with_measured_memory(files: Sequence[Path]) -> Iterator[GpuBeside]:
    """GPUs whose memory nvidia-smi measured."""
    return (
        gpu
        for gpu in _gpus_printed_by_nvidia_smi(files)
        if gpu.reading is not None and gpu.reading.total
    )


def _gpus_printed_by_nvidia_smi(files: Sequence[Path]) -> Iterator[GpuBeside]:
    """GPUs whose memory nvidia-smi printed, or names with it."""
    for file in files:
        for reading in read_nvidia_smi_file(file):
            size = smallest_memory_of_gpu_gb(reading.name)
            memory = reading.total or (size * GB if size is not None else None)
            if memory is not None:
                yield GpuBeside(
                    reading.name, memory, str(file), reading.line, reading.name, reading
                )


def _gpus_requested_by_jobs(files: Sequence[Path]) -> Iterator[GpuBeside]:
    """GPUs of the type that a job asks for: `--gres=gpu:a100:4`."""
    for file in files:
        if not is_command_file(file):
            continue
        try:
            requests = read_command_file(file).requests
        except TruetuneError:
            continue
        for name in REQUESTS:
            value, line = requests.get(name, ("", 0))
            match = TYPED_REQUEST.fullmatch(value)
            size = smallest_memory_of_gpu_gb(match[1]) if match is not None else None
            if match is not None and size is not None:
                yield GpuBeside(match[1], size * GB, str(file), line, f"{name}={value}")


def _gpus_of_logs(files: Sequence[Path]) -> Iterator[GpuBeside]:
    """GPUs whose names a program printed into a log."""
    for file in files:
        if file.suffix not in TEXT_SUFFIXES:
            continue
        try:
            text = read_bytes_within_limit(file, SETTINGS).decode("utf-8", "replace")
        except (OSError, TruetuneError):
            continue
        names: dict[str, int] = {}
        for number, line in enumerate(text.splitlines(), 1):
            match = PRINTED_NAME.search(line[:400])
            if match is not None and len(names) < MAX_NAMED:
                names.setdefault(match["name"].strip(), number)
        for name, number in names.items():
            size = smallest_memory_of_gpu_gb(name)
            if size is not None:
                yield GpuBeside(name, size * GB, str(file), number, f"NVIDIA {name}")


def smallest_memory_of_gpu_gb(name: str) -> float | None:
    """GB of a GPU by its name; if the name leaves its memory open, that of the smallest variant.

    None for an unknown name.
    """
    size = gpu_memory_gb(name)
    if size is None or re.search(r"\d+ ?gb", name, re.I):
        return size
    plain = name.lower()
    smallest = next((gb for part, gb in SMALLEST_VARIANTS.items() if part in plain), size)
    return min(size, smallest)
