"""Finds what filled the machine's memory when a process was killed, by the files beside the log and the kernel's own
line.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from truetune.checks.minimum_host_memory_of_run import (
    BYTES_OF_STATES,
    GIB,
    host_memory_gib_to_request,
    parameters_of_published_model,
)
from truetune.logs.facts_in_files_beside_log import (
    ADAPTED_BASE,
    HOST_GIB,
    KEEPS_ALL_LOGITS,
    KEPT_BY_EVALUATION,
    LOADED_IN_FLOAT32,
    LOGITS_ON_HOST,
    MEMORY_NOT_ASKED,
    NODES,
    OPTIMIZER_ON_CPU,
    ROWS_IN_A_LIST,
    STATES_GIB,
    FilesBeside,
    SettingBeside,
)

HELD = re.compile(r"\banon-rss:(\d{1,15})kB")
"""What the kernel says of the process that it killed"""
OF_SLURM = re.compile(r"slurmstepd|srun:|StepId=|oom[-_ ]kill event")
"""Lines of Slurm, which ends a job that uses more than it got"""
BYTES_OF_FLOAT32 = 4
MORE_THAN_HALF = 0.55
"""Of the weights in float32: the same weights in 16 bits, and what a process needs besides, stay below. Chosen"""


class HostMemoryCause(NamedTuple):
    """What filled the machine's memory."""

    lines: tuple[str, ...]
    advice: str
    """Empty where the message's own advice holds"""
    is_proved: bool


def gib_held_by_killed_process(text: str) -> float | None:
    """GiB that a process held when the kernel killed it; None where the line does not say it."""
    match = HELD.search(text)
    return int(match[1]) / (1 << 20) if match is not None else None


def find_memory_cause_before_first_step(text: str, beside: FilesBeside) -> HostMemoryCause | None:
    """Find what filled the machine's memory before a step was made; None where nothing beside the
    log says so.

    Args:
        text: of the line that says that the process was killed.
    """
    finders: tuple[Callable[[str, FilesBeside], HostMemoryCause | None], ...] = (
        _cause_of_optimizer_states,
        _cause_of_float32_load,
    )
    causes = (find(text, beside) for find in finders)
    return next((one for one in causes if one is not None), None)


def find_memory_cause_at_any_time(
    text: str, beside: FilesBeside, *, has_trained: bool
) -> HostMemoryCause | None:
    """What filled the memory at any time of a run; None where nothing beside the log says so.

    Args:
        text: of the line that says that the process was killed.
        beside: what the files beside the log say.
        has_trained: the log has steps, so that an evaluation may have run.
    """
    finders: list[Callable[[str, FilesBeside], HostMemoryCause | None]] = [
        _cause_of_no_memory_request,
        _cause_of_rows_in_a_list,
    ]
    if has_trained:
        finders.insert(0, _cause_of_logits_on_host)
        # Last: nothing says that they are moved to the machine's memory.
        finders.append(_cause_of_kept_logits)
    causes = (find(text, beside) for find in finders)
    return next((one for one in causes if one is not None), None)


def describe_rows_in_a_list(beside: FilesBeside, *, of_worker: bool) -> str:
    """All rows of a file that a script holds as Python objects, and who copies them; empty where none does.

    Args:
        of_worker: a worker of a DataLoader was ended.
    """
    held = next(beside.settings_named(ROWS_IN_A_LIST), None)
    if held is None:
        return ""
    copied = (
        "; each worker of the DataLoader copies what it reads of them, since reading an object changes its reference"
        " count: use fewer workers, and byte offsets or numpy arrays instead of dictionaries"
        if of_worker or held.value
        else ""
    )
    return (
        f"{held.place} keeps {held.text} as Python objects, which take 3 to 10 times the bytes of the file{copied};"
        ' load_dataset("json", data_files=...) and Dataset.from_generator read rows from the disk instead'
    )


def _cause_of_rows_in_a_list(_text: str, beside: FilesBeside) -> HostMemoryCause | None:
    """All rows of a file that a script holds as Python objects, as the cause for a process that was
    killed.
    """
    line = describe_rows_in_a_list(beside, of_worker=False)
    return HostMemoryCause((line,), "", is_proved=False) if line else None


def _cause_of_logits_on_host(_text: str, beside: FilesBeside) -> HostMemoryCause | None:
    """Logits of an evaluation that are moved to the machine's memory, row after row."""
    moved = beside.setting(LOGITS_ON_HOST)
    if moved is None:
        return None
    return HostMemoryCause(
        (f"{moved.place}: {moved.text} (see {moved.value})",),
        "pass preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1) to the Trainer, so that only one"
        " number per token is kept; or set prediction_loss_only=True if the loss is enough",
        is_proved=False,
    )


def _cause_of_kept_logits(_text: str, beside: FilesBeside) -> HostMemoryCause | None:
    """Logits that an evaluation keeps, where a setting that is not in the script (a command's) may
    move them.
    """
    kept = beside.setting(KEPT_BY_EVALUATION)
    if kept is None or kept.value != KEEPS_ALL_LOGITS:
        return None
    return HostMemoryCause(
        (
            f"{kept.place}: {kept.text} ({kept.value}); --eval_accumulation_steps moves them to host memory",
        ),
        "if it ends in an evaluation, pass preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1) to"
        " the Trainer, so that only one number per token is kept; or set prediction_loss_only=True if the loss is"
        " enough",
        is_proved=False,
    )


def _cause_of_no_memory_request(text: str, beside: FilesBeside) -> HostMemoryCause | None:
    """A job that asks for no memory, and that Slurm ended for the memory it used."""
    job = beside.setting(MEMORY_NOT_ASKED)
    if job is None or not OF_SLURM.search(text):
        return None
    return HostMemoryCause(
        (
            f"{Path(job.file).name} requests no memory (--mem): Slurm then gives the cluster's default for each"
            f" processor (DefMemPerCPU, often 1 to 4 GB), here for {job.value} ({job.text})",
        ),
        f"add #SBATCH --mem=64G, or --mem=0 for the whole node, to {Path(job.file).name}",
        is_proved=False,
    )


def _cause_of_optimizer_states(text: str, beside: FilesBeside) -> HostMemoryCause | None:
    """States of the optimizer that are put on the CPU, of a model that is trained whole."""
    place, states = beside.setting(OPTIMIZER_ON_CPU), beside.setting(STATES_GIB)
    if place is None or states is None or any(beside.settings_named(NODES)):
        return None
    needed, limit = float(states.value), beside.setting(HOST_GIB)
    line = (
        f"{place.text} ({place.place}) puts the optimizer's states into host memory: {needed:,.0f} GiB for"
        f" {states.text} ({BYTES_OF_STATES} bytes per weight, gradients not counted)"
    )
    if limit is None or needed <= float(limit.value):
        return HostMemoryCause((line,), "", is_proved=False)
    return HostMemoryCause(
        (f"{line}, more than {limit.text} ({limit.place})",),
        f"request {host_memory_gib_to_request(needed):,.0f}G instead of {limit.text} ({limit.place}), or keep the"
        f" states on the GPUs (remove {place.text}, {place.place}) if they fit there",
        is_proved=True,
    )


def _cause_of_float32_load(text: str, beside: FilesBeside) -> HostMemoryCause | None:
    """A load without a type, which old releases of transformers make in float32."""
    load = beside.setting(LOADED_IN_FLOAT32)
    name = _loaded_model_name(load, beside)
    parameters = parameters_of_published_model(name) if name else None
    if load is None or parameters is None:
        return None
    needed = parameters * BYTES_OF_FLOAT32 / GIB
    held, limit = gib_held_by_killed_process(text), beside.setting(HOST_GIB)
    is_float32 = held is not None and MORE_THAN_HALF * needed < held
    is_beyond = limit is not None and float(limit.value) < needed
    lines = [
        f"{load.place} loads {name} by {load.text}: transformers before 5 loads it as float32, {needed:,.0f} GiB, twice"
        " the size of the checkpoint in 16 bits"
    ]
    if limit is not None and is_beyond:
        lines.append(f"{limit.text} ({limit.place}) allows {float(limit.value):,.0f} GiB")
    return HostMemoryCause(
        tuple(lines),
        f"load it in the checkpoint's dtype, {needed / 2:,.0f} GiB: dtype=torch.bfloat16 in from_pretrained"
        f" ({load.place}), or torch_dtype= before transformers 4.56",
        is_proved=is_float32 or is_beyond,
    )


def _loaded_model_name(load: SettingBeside | None, beside: FilesBeside) -> str:
    """The model that is loaded: as the script names it, else the base of the adapter beside it."""
    if load is None:
        return ""
    base = beside.setting(ADAPTED_BASE)
    return str(load.value) or (str(base.value) if base is not None else "")
