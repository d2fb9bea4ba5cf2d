"""A multi-GPU container only has Docker's default of 64 MB of shared memory.

## What it does
Reads `docker run` (and podman's) in shell scripts, and services of compose files, that start PyTorch training or
serving on more than one GPU: by the GPUs of the container, or by the processes that its command starts. It fires if
neither `shm_size` nor `ipc: host` is set and nothing is mounted on /dev/shm. It is info for a `DataLoader` with workers
on a single GPU, or if the number of GPUs is unknown (`--gpus all`). It does not fire with NCCL_SHM_DISABLE=1.

## Why it is bad
Docker limits /dev/shm to 64 MB. NCCL keeps buffers of 6 to 33 MB there for each pair of GPUs, and `DataLoader` workers
pass every batch through it. The run ends with "Error while creating shared memory segment", "No space left on device"
or a bus error, often only with more GPUs or longer batches.

## Example
```bash
docker run --gpus 4 pytorch/pytorch torchrun --nproc-per-node 4 train.py
```

## Use instead
```bash
docker run --gpus 4 --ipc=host pytorch/pytorch torchrun --nproc-per-node 4 train.py
```

## Fix safety
Safe: shared memory is only used as needed. A Docker daemon with `default-shm-size` gives every container more.

## References
- docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html (Docker); NVIDIA/nccl#290, pytorch/pytorch#5040
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.job_gpus_and_processes import find_launches, gpus_given_to_container
from truetune.checks.rule import CommandRule
from truetune.parsing.input_limits import SETTINGS, InputLimitError
from truetune.parsing.read_files_within_limits import read_bytes_within_limit
from truetune.parsing.shell_commands import (
    CommandFile,
    ShellCommand,
    last_option,
    parse_command_file,
    parse_digits,
)

ENGINES = frozenset(("docker", "podman", "nerdctl", "nvidia-docker"))
USES_TORCH = re.compile(
    r"\b(?:torch(?:run)?|pytorch|accelerate|deepspeed|axolotl|llama-?factory(?:-cli)?|swift|trl|unsloth|tune run|vllm"
    r"|sglang|text-generation-inference|python[\d.]*)\b",
    re.IGNORECASE,
)
"""Programs and images whose processes talk over NCCL; Ollama and llama.cpp do not"""
ROOM = re.compile(r"--ipc[= ](?:host|shareable|container:|service:)|/dev/shm\b|NCCL_SHM_DISABLE=1")
"""What gives a container the memory of the host, or room of its own, or makes NCCL do without it"""
SIZE = re.compile(r"(\d{1,15})(?:\.\d+)?\s*([kmgt]?)i?b?", re.IGNORECASE)
BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
MIN_BYTES = 256 << 20
"""Smaller is too small for several GPUs. Chosen, not measured: NCCL's buffers of two pairs, twice over"""
SHARES = ("--tensor-parallel-size", "--data-parallel-size", "-tp", "--tp", "--num-shard", "--dp")
WORKERS = ("--dataloader-num-workers", "--num-workers", "--workers")
WORKERS_SETTING = re.compile(r"^[ \t]*dataloader_num_workers\s*:\s*([1-9]\d{0,3})\b", re.MULTILINE)
SETTINGS_SUFFIXES = (".yaml", ".yml")


class _SharedMemoryUse(NamedTuple):
    """What of a container needs shared memory."""

    text: str
    is_sure: bool
    """Are there several GPUs, for sure?"""


class ContainerSharedMemoryTooSmall(CommandRule):
    code = "CMD057"
    fault = Fault.HOST_MEMORY_TOO_SMALL
    symptoms = ("several-gpus",)
    severity = "warning"
    stability = "preview"
    what = "containers on several GPUs or with workers"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[ShellCommand]:
        """The places that the rule looks at: the containers on several GPUs or with workers."""
        for command in file.commands:
            if _starts_pytorch_container(command) and _shared_memory_use(file, command) is not None:
                yield command

    def findings(self) -> Iterator[Finding]:
        for command in self.examined_places(self.subject):
            need = _shared_memory_use(self.subject, command)
            if need is None or ROOM.search(command.text):
                continue
            size = _shm_size_in_bytes(command)
            if size is not None and size >= MIN_BYTES:
                continue
            room = "64 MB (Docker's default)" if size is None else f"{size / (1 << 20):,.0f} MB"
            yield self.finding(
                f"/dev/shm of the container only has {room} for {need.text}: NCCL and DataLoader workers keep their"
                " buffers there, and the run can crash",
                "add --ipc=host or --shm-size=16g (in a compose file: `ipc: host` or `shm_size: 16gb`)",
                severity="warning" if need.is_sure else "info",
                cases=[self.case_of_command(command, command.text[:300])],
            )


def _starts_pytorch_container(command: ShellCommand) -> bool:
    """Does a command start a container with a program of PyTorch?"""
    words = command.words[1:] if command.words[0] == "sudo" else command.words
    is_run = words[0].rpartition("/")[2] in ENGINES and "run" in words[1:3]
    return is_run and words[1] != "compose" and USES_TORCH.search(command.text) is not None


def _shared_memory_use(file: CommandFile, command: ShellCommand) -> _SharedMemoryUse | None:
    """What in a container needs shared memory: several processes or workers; None where nothing in
    sight does.
    """
    processes = _number_of_processes(file, command)
    if processes > 1:
        return _SharedMemoryUse(f"{processes} processes", is_sure=True)
    gpus = gpus_given_to_container(command)
    if gpus is not None and gpus > 1:
        return _SharedMemoryUse(f"{gpus} GPUs", is_sure=True)
    if (
        _starts_program_on_every_gpu(command)
        and gpus is None
        and last_option(command.words, "--gpus") == "all"
    ):
        return _SharedMemoryUse("all GPUs of the machine", is_sure=False)
    workers = _number_of_loader_workers(file, command)
    return (
        _SharedMemoryUse(f"{workers} workers of a DataLoader", is_sure=False) if workers else None
    )


def _number_of_processes(file: CommandFile, command: ShellCommand) -> int:
    """The processes that a container's command starts; 0 where their number is not plain."""
    counts = [parse_digits(last_option(command.words, name)) or 0 for name in SHARES]
    # `bash -c "torchrun ..."` is one word of the command, and several commands.
    texts = [word for word in command.words if " " in word]
    inner = [one for text in texts for one in parse_command_file(text, file.path).commands]
    for one in (command, *inner):
        started = CommandFile(file.path, one.text, (one,), file.requests)
        counts += [launch.processes for launch in find_launches(started)]
    return max(counts, default=0)


def _starts_program_on_every_gpu(command: ShellCommand) -> bool:
    """Does a container start a program that uses every GPU that it sees?"""
    return (
        re.search(r"\b(?:torchrun|accelerate|deepspeed|axolotl|llamafactory-cli)\b", command.text)
        is not None
    )


def _number_of_loader_workers(file: CommandFile, command: ShellCommand) -> int:
    """The number of workers of a DataLoader, by the command or by the settings that it names; 0
    without any.
    """
    for name in WORKERS:
        count = parse_digits(last_option(command.words, name))
        if count:
            return count
    folder = Path(file.path).parent
    for word in " ".join(command.words).split():
        # The folder is mounted somewhere into the container, so the file's name counts.
        path = folder / word.rpartition("/")[2]
        if path.suffix in SETTINGS_SUFFIXES and path.is_file():
            try:
                match = WORKERS_SETTING.search(
                    read_bytes_within_limit(path, SETTINGS).decode("utf-8", "replace")
                )
            except (OSError, InputLimitError):
                continue
            if match is not None:
                return int(match[1])
    return 0


def _shm_size_in_bytes(command: ShellCommand) -> int | None:
    """The size that a container is given for /dev/shm, in bytes; None where it is left to Docker."""
    shm_size_option = last_option(command.words, "--shm-size")
    match = SIZE.fullmatch(shm_size_option.strip("\"'")) if shm_size_option else None
    if match is None:
        # A variable may be any size.
        return None if not shm_size_option else MIN_BYTES
    return int(match[1]) * BYTES[match[2].lower()]
