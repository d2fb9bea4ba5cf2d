"""The record types of an environment, as `truetune.doctor.gather_environment` fills them.

Rules on environments read these and ask nothing themselves, so that each can be tried on an environment that is made
up. The trade-off: what is not gathered here, no rule can judge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from truetune.memory.read_machine import Machine

# Those that take part in a fine-tune, and whose versions are known to disagree.
PACKAGES = (
    "torch",
    "torchvision",
    "transformers",
    "tokenizers",
    "trl",
    "peft",
    "accelerate",
    "datasets",
    "bitsandbytes",
    "flash-attn",
    "xformers",
    "triton",
    "liger-kernel",
    "unsloth",
    "unsloth-zoo",
    "axolotl",
    "llamafactory",
    "deepspeed",
    "vllm",
    "safetensors",
    "huggingface-hub",
    "numpy",
    "pyarrow",
    "fsspec",
    "pydantic",
)
"""Distributions whose versions are told"""


@dataclass(frozen=True, slots=True)
class Requirement:
    """What an installed package requires."""

    package: str
    of: str
    """The distribution that is needed"""
    specifier: str
    """`>=4.56.2,<6`"""


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU as torch sees it."""

    name: str
    capability: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Torch:
    """What torch says of itself and its devices."""

    cuda: str | None
    """The CUDA version that it was built for; None for a build that can't use GPUs of NVIDIA"""
    hip: str | None
    available: bool
    """It can use a GPU"""
    devices: tuple[Device, ...]
    architectures: tuple[str, ...]
    """`sm_80`, `compute_90`, ...: what its kernels were compiled for"""
    # The CUDA driver that is too old is told there, and nowhere else.
    said: str
    """Warnings of its start"""
    # Tried and not asked for: torch says that it can on GPUs which only emulate it.
    bf16: bool | None
    """A product of bf16 matrices on the first GPU came out right; None without a GPU"""


@dataclass(frozen=True, slots=True)
class Environment:
    """An interpreter with its packages, on a machine."""

    python: str
    """Path of the interpreter"""
    version: str
    system: str
    encoding: str
    """Of text files that are opened without one"""
    packages: Mapping[str, str]
    """Versions by name of distribution, of PACKAGES and what they require"""
    requirements: tuple[Requirement, ...] = ()
    loads: Mapping[str, str] = field(default_factory=dict)
    """Modules that were imported, each with what went wrong; empty where nothing did"""
    torch: Torch | None = None
    machine: Machine = field(default_factory=Machine)
    variables: Mapping[str, str] = field(default_factory=dict)
    """The environment's variables"""
    cache: str = ""
    """Where models and data sets from the hub are kept"""
    # A read-only cache fails in the middle of a run, with the first file that is not there yet.
    cache_writable: bool = True
    cache_free: int | None = None
    """Bytes"""
    # Workers of a DataLoader pass batches through it: 64 MB, the default of Docker, is too little.
    shared: int | None = None
    """Bytes of /dev/shm; None where there is none"""
    files: int | None = None
    """Files that a process may have open; None where it is not limited, or not known"""
    extras: Mapping[str, bool] = field(default_factory=dict)
    """Extras of truetune: is all that each asks for installed?"""
