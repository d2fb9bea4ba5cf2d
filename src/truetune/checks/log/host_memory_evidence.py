"""What filled the machine's memory when a process was killed, by the files beside the log and the kernel's own line."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from truetune.checks.host_memory_needs import (
    BYTES_OF_STATES,
    GIB,
    memory_to_ask_for,
    parameters_of_model,
)
from truetune.logs.files_beside import (
    ADAPTED_BASE,
    HOST_GIB,
    LOADED_IN_FLOAT32,
    NODES,
    OPTIMIZER_ON_CPU,
    STATES_GIB,
    FilesBeside,
    SettingBeside,
)

HELD = re.compile(r"\banon-rss:(\d{1,15})kB")
"""What the kernel says of the process that it killed"""
BYTES_OF_FLOAT32 = 4
MORE_THAN_HALF = 0.55
"""Of the weights in float32: the same weights in 16 bits, and what a process needs besides, stay below. Chosen"""


class HostMemoryCause(NamedTuple):
    """What filled the machine's memory."""

    lines: tuple[str, ...]
    advice: str
    """Empty where the message's own advice holds"""
    is_proved: bool


def held_by_killed_process(text: str) -> float | None:
    """GiB that a process held when the kernel killed it; None where the line does not say it."""
    match = HELD.search(text)
    return int(match[1]) / (1 << 20) if match is not None else None


def find_host_memory_cause(text: str, beside: FilesBeside) -> HostMemoryCause | None:
    """What filled the memory before a step was made; None where nothing beside the log says so.

    Args:
        text: of the line that says that the process was killed.
    """
    finders: tuple[Callable[[str, FilesBeside], HostMemoryCause | None], ...] = (
        _of_optimizer_states,
        _of_float32_load,
    )
    found = (find(text, beside) for find in finders)
    return next((one for one in found if one is not None), None)


def _of_optimizer_states(text: str, beside: FilesBeside) -> HostMemoryCause | None:
    """States of the optimizer that are put on the CPU, of a model that is trained whole."""
    place, states = beside.setting(OPTIMIZER_ON_CPU), beside.setting(STATES_GIB)
    if place is None or states is None or any(beside.all_named(NODES)):
        return None
    needed, limit = float(states.value), beside.setting(HOST_GIB)
    line = (
        f"{place.text} ({place.place}) puts the optimizer's states into the machine's memory: {needed:,.0f} GiB for"
        f" {states.text} ({BYTES_OF_STATES} bytes a weight, gradients not counted)"
    )
    if limit is None or needed <= float(limit.value):
        return HostMemoryCause((line,), "", is_proved=False)
    return HostMemoryCause(
        (f"{line}, more than {limit.text} ({limit.place})",),
        f"ask for {memory_to_ask_for(needed):,.0f}G in place of {limit.text} ({limit.place}), or keep the"
        f" states on the GPUs (leave out {place.text}, {place.place}), if they fit there",
        is_proved=True,
    )


def _of_float32_load(text: str, beside: FilesBeside) -> HostMemoryCause | None:
    """A load without a type, which old releases of transformers make in float32."""
    load = beside.setting(LOADED_IN_FLOAT32)
    name = _name_of_loaded(load, beside)
    parameters = parameters_of_model(name) if name else None
    if load is None or parameters is None:
        return None
    needed = parameters * BYTES_OF_FLOAT32 / GIB
    held, limit = held_by_killed_process(text), beside.setting(HOST_GIB)
    is_float32 = held is not None and MORE_THAN_HALF * needed < held
    is_beyond = limit is not None and float(limit.value) < needed
    lines = [
        f"{load.place} loads {name} by {load.text}: transformers before 5 then loads float32, {needed:,.0f} GiB, twice"
        " what the checkpoint has in 16 bits"
    ]
    if limit is not None and is_beyond:
        lines.append(f"{limit.text} ({limit.place}) allows {float(limit.value):,.0f} GiB")
    return HostMemoryCause(
        tuple(lines),
        f"load it in the checkpoint's type, {needed / 2:,.0f} GiB: dtype=torch.bfloat16 in from_pretrained"
        f" ({load.place}), torch_dtype= before transformers 4.56",
        is_proved=is_float32 or is_beyond,
    )


def _name_of_loaded(load: SettingBeside | None, beside: FilesBeside) -> str:
    """The model that is loaded: as the script names it, else the base of the adapter beside it."""
    if load is None:
        return ""
    base = beside.setting(ADAPTED_BASE)
    return str(load.value) or (str(base.value) if base is not None else "")
