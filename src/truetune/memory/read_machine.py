"""Reads the machine where a run starts (its GPUs, memory and environment), without torch.

nvidia-smi tells the GPUs, /proc the memory, and variables how a launcher has started this process; `Launch` is a run's
settings on such a machine. The trade-off: GPUs of other makers are not seen, and a rule that needs them is not judged.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from truetune.settings.config import Config

LAUNCH_VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "WORLD_SIZE",
    "RANK",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "SLURM_NTASKS",
    "SLURM_PROCID",
    "ACCELERATE_USE_FSDP",
    "ACCELERATE_USE_DEEPSPEED",
    "CI",
    "PYTORCH_CUDA_ALLOC_CONF",
)
"""What a launch depends on"""
NVIDIA_SMI_QUERY = ("--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
# Chosen, not measured: a second is usual; a driver that hangs would hold every check for as long.
NVIDIA_SMI_TIMEOUT_S = 10
"""Seconds that nvidia-smi may take"""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, as nvidia-smi lists it."""

    name: str
    memory: float
    """Bytes"""


@dataclass(frozen=True, slots=True)
class Machine:
    """What a run finds on its machine: GPUs, memory and environment variables."""

    gpus: tuple[Gpu, ...] = ()
    """All that the driver has, whether a process may see them or not; empty where there is none, or no driver."""
    memory: float | None = None
    """Bytes of RAM"""
    cpus: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of VARIABLES that are set"""

    def environment_variable_as_int(self, name: str) -> int | None:
        """An environment variable as a whole number; None where it is not set, or something else."""
        text = self.environment.get(name, "").strip()
        return int(text) if re.fullmatch(r"\d{1,9}", text) else None

    @property
    def is_started_by_launcher(self) -> bool:
        """Has a launcher (torchrun, accelerate) started this process?"""
        return "LOCAL_RANK" in self.environment and "WORLD_SIZE" in self.environment

    @property
    def visible_gpu_indices(self) -> tuple[int, ...]:
        """Indices of the GPUs that torch would use, as CUDA and torch read CUDA_VISIBLE_DEVICES.

        A repeated index leaves none; a negative one, or one that there is not, ends the list.
        """
        listed = self.environment.get("CUDA_VISIBLE_DEVICES")
        if listed is None:
            return tuple(range(len(self.gpus)))
        if listed.startswith(("GPU-", "MIG-")):
            # Identifiers can't be told apart here: only their number is known. Several MIG parts may be of one GPU.
            count = len(listed.split(","))
            return tuple(range(min(count, len(self.gpus)) if listed.startswith("GPU-") else count))
        indices: list[int] = []
        for item in listed.split(","):
            index = re.match(r"\s*[+]?(\d+)", item)
            if index is None or int(index[1]) >= len(self.gpus):
                break
            if int(index[1]) in indices:
                return ()
            indices.append(int(index[1]))
        return tuple(indices)


@dataclass(frozen=True, slots=True)
class Launch:
    """A run's settings on the machine that starts it."""

    config: Config
    machine: Machine

    @property
    def world_size(self) -> int:
        """How many processes run: what the launcher says, else what the settings say."""
        return (
            self.machine.environment_variable_as_int("WORLD_SIZE")
            or self.config.spec.training.devices
        )


def read_machine(environment: Mapping[str, str] | None = None) -> Machine:
    """Read this machine: nvidia-smi where there is one, /proc, and the environment."""
    known = os.environ if environment is None else environment
    variables = {name: known[name] for name in LAUNCH_VARIABLES if name in known}
    return Machine(_query_gpus(), _read_ram_bytes(Path("/proc/meminfo")), os.cpu_count(), variables)


def _query_gpus() -> tuple[Gpu, ...]:
    """What nvidia-smi lists; nothing where there is no driver, or it does not answer."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    try:
        done = subprocess.run(
            [program, *NVIDIA_SMI_QUERY],
            capture_output=True,
            text=True,
            timeout=NVIDIA_SMI_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(parse_nvidia_smi(done.stdout))


def parse_nvidia_smi(text: str) -> list[Gpu]:
    """The GPUs in the output of `nvidia-smi` for NVIDIA_SMI_QUERY; its memory is in MiB."""
    # The name may hold commas; the memory of some parts is "[N/A]", which is no GPU to train on.
    lines = re.findall(r"^(.+?), *(\d+)\s*$", text, re.M)
    return [Gpu(name, float(size) * 2**20) for name, size in lines]


def _read_ram_bytes(file: Path) -> float | None:
    """Bytes of RAM by /proc/meminfo; None on other systems."""
    try:
        match = re.search(r"^MemTotal:\s+(\d+) kB", file.read_text(encoding="ascii"), re.M)
    except (OSError, UnicodeDecodeError):
        return None
    return float(match[1]) * 1024 if match else None
