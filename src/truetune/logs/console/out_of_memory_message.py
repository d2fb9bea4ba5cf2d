"""Parses the numbers in a CUDA out-of-memory message, and says what they show.

Two forms: up to PyTorch 2.0 `(GPU 0; 23.65 GiB total capacity; 21.90 GiB already allocated; ...)`, since then sentences
(`GPU 0 has a total capacity of 23.65 GiB of which 1.06 GiB is free. ...`; `capacty` in 2.1). Source: c10/cuda/
CUDACachingAllocator.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

SIZE_GROUP = r"(?P<{}>[\d.]{{1,12}} (?:bytes|[KMGT]i?B))"
FIGURE_PATTERNS = tuple(
    re.compile(pattern.format(SIZE_GROUP.format(name)), re.DOTALL)
    for name, pattern in (
        ("asked", r"Tried to allocate {}"),
        ("capacity", r"total capac\w* of {}"),
        ("capacity", r"; {} total capacity"),
        ("free", r"of which {} is free"),
        ("free", r"; {} free"),
        ("own", r"this process has {} memory in use"),
        ("allocated", r"Of the allocated memory {} is allocated"),
        ("allocated", r"; {} already allocated"),
        ("allocated", r"MPS allocated: {}"),
        ("capacity", r"max allowed: {}"),
        ("idle", r"and {} is reserved by PyTorch but unallocated"),
        ("reserved", r"; {} reserved in total"),
        ("reserved", r"; {} cached"),
    )
)
OTHER_PROCESS = re.compile(
    r"Process (\d+) has ([\d.]{1,12} (?:bytes|KiB|MiB|GiB|TiB)) memory in use"
)
BYTES_OF_UNIT = {"bytes": 1, "KB": 1 << 10, "KiB": 1 << 10, "MB": 1 << 20, "MiB": 1 << 20}
BYTES_OF_UNIT |= {"GB": 1 << 30, "GiB": 1 << 30, "TiB": 1 << 40}
"""MPS divides by 1,024 as CUDA does, and writes GB"""
GIB = float(1 << 30)
GPU_SIZES_GB = (8, 10, 11, 12, 16, 20, 22, 24, 32, 40, 45, 48, 64, 80, 94, 96, 141, 180, 192, 288)
"""Memory of GPUs as they are sold, in GB: the driver takes up to a tenth of it"""
MAX_CONTEXT_GIB = 3.0
"""GiB that a process holds beside what PyTorch counts: CUDA's context and kernels (0.3 to 1), buffers of NCCL and
cuBLAS"""
ROUNDING_GIB = 0.1
"""GiB by which the figures of one message may disagree: each is rounded, and they are read one after another"""
MIN_PIECES_SHARE = 0.01
"""Of the capacity, held in pieces: less is rounding of blocks, which no allocator gives back"""
GPU_NUMBER = re.compile(r"\bGPU (\d{1,3})\b")
SHARED_BY_RANKS = "several processes of this run are on one GPU"
"""What the message means where `has_several_ranks`"""
HELD_BY_OTHERS = "other processes hold most of what is in use on this GPU"
"""What the message means where `others_hold_most`"""
MIN_OTHERS_GIB = 0.5
"""GiB that other processes hold: a display and an idle CUDA context take less"""
LARGE_REQUEST_SHARE = 0.2
"""Of the capacity, in one tensor: weights come in smaller ones, logits and attention scores do not"""


@dataclass(frozen=True, slots=True)
class MemoryFigures:
    """What the message says, in GiB; None where it does not."""

    asked: float | None
    capacity: float | None
    free: float | None
    allocated: float | None
    idle: float | None
    """Held by PyTorch and in no use"""
    others: float | None
    """In use by other processes on this GPU; None where the figures do not prove it"""
    processes: tuple[str, ...] = ()
    """Numbers of these processes, as far as the message names them"""
    gpu_number: str = ""
    """Of the GPU that is full, as this process counts them"""
    listed: tuple[str, ...] = ()
    """Numbers of all processes that the message names, be it this one or another"""
    on_gpu: int = 1
    """Processes on this GPU that the message names, this one with them"""
    ranks: int = 1
    """Processes of the run itself that are proved to be on this GPU; see `add_count_of_own_processes_on_gpu`"""

    @property
    def has_several_ranks(self) -> bool:
        """Are two or more processes of the same run on this GPU?"""
        return self.is_gpu_shared_with_others and self.ranks > 1

    @property
    def is_gpu_shared_with_others(self) -> bool:
        """Do other processes hold a considerable part of this GPU?"""
        return self.others is not None and self.others > MIN_OTHERS_GIB

    @property
    def others_hold_most(self) -> bool:
        """Do other processes hold more than this one, and more than it asked for?"""
        own = (self.allocated or 0.0) + (self.idle or 0.0)
        return self.is_gpu_shared_with_others and (self.others or 0.0) > max(own, self.asked or 0.0)

    @property
    def does_process_hold_all_memory_in_use(self) -> bool:
        """Does this process hold what is in use, so that no other one could be ended for it?"""
        if self.is_gpu_shared_with_others or None in (self.allocated, self.capacity, self.free):
            return False
        in_use = (self.capacity or 0.0) - (self.free or 0.0)
        return in_use - (self.allocated or 0.0) - (self.idle or 0.0) <= MAX_CONTEXT_GIB

    @property
    def fragments_would_suffice(self) -> bool:
        """Does PyTorch hold more memory in unused fragments than the tensor needs that failed?"""
        if self.idle is None or self.asked is None or self.is_gpu_shared_with_others:
            return False
        return self.idle > self.asked and self.idle > MIN_PIECES_SHARE * (self.capacity or 0.0)

    @property
    def gpu_memory_as_plan_argument(self) -> str:
        """The GPU's memory as `truetune plan --gpu` takes it."""
        if self.capacity is None:
            return "SIZE"
        # The driver takes a part, so a card of 24 GB shows 23.65 GiB: the next size above is the one that was bought.
        at_least = self.capacity - 0.5
        size = next((size for size in GPU_SIZES_GB if size >= at_least), round(self.capacity))
        return f"{size}GB"

    def advice_to_regain_memory_of_others(self, *, loads_checkpoint: bool = False) -> str:
        """Advice on how to get back what other processes hold; empty if none do.

        Args:
            loads_checkpoint: a file of tensors was being read, which lie on the GPU that they were saved from.
        """
        if not self.is_gpu_shared_with_others or self.others is None:
            return ""
        if self.has_several_ranks and loads_checkpoint:
            return (
                'load it to the CPU (torch.load(..., map_location="cpu")): without it each process reads the'
                " tensors back to the GPU that they were saved from, which is GPU 0 for all, whatever"
                " torch.cuda.set_device says"
            )
        if self.has_several_ranks:
            return (
                'give each process a GPU of its own: torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) before'
                ' the first tensor on a GPU, or .to(f"cuda:{local_rank}") instead of "cuda"; `truetune lint'
                " SCRIPT` names the line"
            )
        many = len(self.processes) > 1
        named = f"process{'es' if many else ''} {', '.join(self.processes)}"
        what = f"{named}, which hold{'' if many else 's'}" if self.processes else "what else holds"
        return (
            f"end {what} {_format_gib(self.others)} of this GPU (nvidia-smi shows what it is; restart the"
            " kernel of a notebook), take another GPU with CUDA_VISIBLE_DEVICES, or give each rank"
            " a GPU of its own (torch.cuda.set_device); only if it does not fit then"
        )

    def line_on_memory_of_other_processes(self) -> str:
        """One line on what other processes hold; empty if they hold nothing."""
        if self.has_several_ranks:
            where = f"on GPU {self.gpu_number or '0'} together"
            are = f"{self.ranks} processes of this run are {where}"
            if self.on_gpu > self.ranks:
                are = f"{self.on_gpu} processes are {where}, at least {self.ranks} of them of this run"
            return f"{are}; beside the one that failed they hold {_format_gib(self.others or 0.0)} of it"
        return (
            f"other processes hold {_format_gib(self.others or 0.0)} of this GPU: an earlier run that has"
            " not ended, a notebook, or another rank on the same GPU (nvidia-smi lists them)"
        )

    def evidence(self, *, asks_on: bool = False, is_explained: bool = False) -> list[str]:
        """The numbers and what they show, one line each. `asks_on`: more tensors would follow the
        one that failed.

        Args:
            is_explained: what the tensor that failed is, is known.
        """
        lines = []
        parts = (
            ("asked for", self.asked),
            ("in all", self.capacity),
            ("free", self.free),
            ("in PyTorch's tensors", self.allocated),
            ("held by PyTorch, not in use", self.idle),
        )
        figures = [f"{_format_gib(value)} {what}" for what, value in parts if value is not None]
        if figures:
            lines.append(", ".join(figures))
        if self.is_gpu_shared_with_others:
            lines.append(self.line_on_memory_of_other_processes())
        if self.fragments_would_suffice and not asks_on:
            lines.append(
                "what PyTorch holds in pieces is more than this tensor needs: try"
                " PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
            )
        if (
            self.asked is not None
            and self.capacity
            and not is_explained
            and self.asked > LARGE_REQUEST_SHARE * self.capacity
        ):
            lines.append(
                f"one tensor of {_format_gib(self.asked)}: logits (rows x length x vocabulary) or"
                " attention scores (without SDPA or FlashAttention), which fewer or shorter rows"
                " make smaller; or, where FSDP wraps no layers, the whole model"
            )
        return lines


def add_count_of_own_processes_on_gpu(
    figures: MemoryFigures, started: frozenset[str], beside: Iterable[str]
) -> MemoryFigures:
    """The figures with the number of processes of the run itself that are on the GPU.

    Two proofs: the launcher prints the numbers of the processes that it started, and the message lists them (newer
    messages leave the process itself out of the list, so that one more is there); or other ranks fail with the same GPU
    and the same list of processes. Ranks that each see one GPU alone all call it GPU 0, and then their lists differ.

    Args:
        figures: of the message of one process.
        started: numbers of processes that the launcher names as its own.
        beside: texts of the exceptions of the other processes, one each.
    """
    same = 1
    for text in beside:
        other = parse_memory_error(text)
        is_same_gpu = other.gpu_number == figures.gpu_number != ""
        same += is_same_gpu and other.is_gpu_shared_with_others and other.listed == figures.listed
    beside_this = len(started.intersection(figures.processes))
    named = max(len(started.intersection(figures.listed)), beside_this + 1 if beside_this else 0)
    return replace(figures, ranks=max(same, named))


def parse_memory_error(text: str) -> MemoryFigures:
    """The numbers in an out-of-memory message, in either of its two forms; None for those that it
    does not say.
    """
    figures: dict[str, float] = {}
    for pattern in FIGURE_PATTERNS:
        match = pattern.search(text)
        if match is None:
            continue
        # patterns of one name are forms of different releases: the first that fits holds
        for name, size in match.groupdict().items():
            figures.setdefault(name, _parse_gib(size))
    idle = figures.get("idle")
    if idle is None and "reserved" in figures and "allocated" in figures:
        # the older form says only what is reserved in total
        idle = max(0.0, figures["reserved"] - figures["allocated"])
    listed = {number: _parse_gib(size) for number, size in OTHER_PROCESS.findall(text)}
    others, processes = _gib_and_ids_of_other_processes(listed, figures, idle)
    number = GPU_NUMBER.search(text)
    return MemoryFigures(
        asked=figures.get("asked"),
        capacity=figures.get("capacity"),
        free=figures.get("free"),
        allocated=figures.get("allocated"),
        idle=idle,
        others=others,
        processes=processes,
        gpu_number=number[1] if number else "",
        listed=tuple(sorted(listed)),
        # Newer messages leave the process itself out of the list.
        on_gpu=len(listed) + (set(processes) == set(listed)),
    )


def _gib_and_ids_of_other_processes(
    listed: dict[str, float], figures: dict[str, float], idle: float | None
) -> tuple[float | None, tuple[str, ...]]:
    """The GiB that other processes hold, and their process ids; None if the figures do not prove
    that there are any.

    PyTorch asks the driver for the processes of a GPU and knows its own by the process id. In a container the ids
    differ, so that its own memory is printed as that of `Process N`, and no line says `this process has`.

    Args:
        listed: GiB of each process that the message names.
        figures: the other numbers, by the names of FIGURE_PATTERNS.
        idle: GiB that PyTorch holds and does not use.
    """
    in_use = _memory_in_use(figures)
    if "own" in figures:
        if listed:
            return sum(listed.values()), tuple(listed)
        return (None if in_use is None else in_use - figures["own"]), ()
    if "allocated" not in figures:
        return None, ()
    own = figures["allocated"] + (idle or 0.0)
    if in_use is None:
        return _gib_and_ids_of_other_listed_processes(listed, own)
    if not listed:
        # Only the form up to PyTorch 2.0 (`reserved`) leaves others out of its list. It counts PyTorch's own memory
        # alone, without the context of CUDA.
        unlisted = in_use - own
        return (unlisted if "reserved" in figures and unlisted > MAX_CONTEXT_GIB else None), ()
    if own + sum(listed.values()) <= in_use + ROUNDING_GIB:
        # both have room: none of those listed is this one
        return sum(listed.values()), tuple(listed)
    return _gib_and_ids_of_other_listed_processes(listed, own)


def _memory_in_use(figures: dict[str, float]) -> float | None:
    """GiB that all processes hold on the GPU; None if the message does not say what is free."""
    if "capacity" in figures and "free" in figures:
        return figures["capacity"] - figures["free"]
    return None


def _gib_and_ids_of_other_listed_processes(
    listed: dict[str, float], own: float
) -> tuple[float | None, tuple[str, ...]]:
    """What the listed processes hold except this process, which is the one as large as PyTorch's
    part, and their numbers. None if no one is: then nothing tells which of them is another process.
    """
    surplus = {number: size - own for number, size in listed.items()}
    fitting = {n: gib for n, gib in surplus.items() if -ROUNDING_GIB <= gib <= MAX_CONTEXT_GIB}
    if not fitting:
        return None, ()
    itself = min(fitting, key=lambda number: fitting[number])
    others = tuple(number for number in listed if number != itself)
    return sum(listed.values()) - listed[itself], others


def _parse_gib(size: str) -> float:
    """GiB of a size as printed, `23.65 GiB`; 0 for something that is no number, such as `1.2.3`."""
    number, _, unit = size.partition(" ")
    try:
        return float(number) * BYTES_OF_UNIT[unit] / GIB
    except ValueError:
        return 0.0


def _format_gib(gib: float) -> str:
    """GiB as text: `23.7 GiB`, or `512 MiB` below one."""
    return f"{gib:.1f} GiB" if gib >= 1 else f"{gib * 1024:.0f} MiB"
