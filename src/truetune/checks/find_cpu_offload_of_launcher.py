"""Finds what the files of a launcher put on the CPU: accelerate's configuration, and the DeepSpeed
file of a command.

Settings and scripts say it themselves where they name a DeepSpeed file. A script that `accelerate launch` starts knows
nothing of it: then the job beside it says which configuration holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from truetune.checks.read_settings_in_launch_files import LaunchFiles, find_launches_with_files
from truetune.errors import TruetuneError
from truetune.memory.memory_settings import Offload, find_cpu_offload, flatten_stack_settings
from truetune.parsing.shell_commands import is_command_file, read_command_file
from truetune.settings.located_document import LocatedDocument
from truetune.settings.stacks.read_shared_stack_arguments import offloads_in_zero

MAX_FILES = 60
"""Files of a folder that are read. Chosen by hand: a bound on time, for a folder may hold a data
set in thousands of files"""


class LaunchOffload(NamedTuple):
    """What a launch puts on the CPU."""

    how: str
    """`ZeRO-3`, `FSDP`"""
    offload: frozenset[Offload]
    file: str


def find_launch_offload(path: str) -> LaunchOffload | None:
    """What the launch of a script puts on the CPU, by the commands in its folder; None where none does.

    Args:
        path: The script.
    """
    script = Path(path)
    for launch in _launches_of(script):
        for document in (launch.deepspeed, launch.accelerate):
            launch_offload = _offload_of_document(document) if document is not None else None
            if launch_offload is not None:
                return launch_offload
    return None


def _launches_of(script: Path) -> Iterator[LaunchFiles]:
    """The launches of a script by the command files in its folder."""
    try:
        files = sorted(script.parent.iterdir())[:MAX_FILES]
    except OSError:
        return
    for file in files:
        if not file.is_file() or not is_command_file(file):
            continue
        try:
            launches = list(find_launches_with_files(read_command_file(file)))
        except TruetuneError:
            continue
        yield from (
            one for one in launches if one.script is not None and one.script.name == script.name
        )


def _offload_of_document(document: LocatedDocument) -> LaunchOffload | None:
    """The parts that a file of DeepSpeed or accelerate puts on the CPU; None if it puts none there."""
    value: Any = document.value
    if not isinstance(value, dict):
        return None
    zero = value.get("zero_optimization")
    if isinstance(zero, dict):
        offload = find_cpu_offload(offloads_in_zero(zero))
        return _launch_offload_or_none(f"ZeRO-{zero.get('stage', 0)}", offload, document)
    for key in ("deepspeed_config", "fsdp_config"):
        inner = value.get(key)
        if not isinstance(inner, dict):
            continue
        how = "FSDP" if key == "fsdp_config" else f"ZeRO-{inner.get('zero_stage', 2)}"
        launch_offload = _launch_offload_or_none(
            how,
            find_cpu_offload(_without_disabled_settings(flatten_stack_settings(inner))),
            document,
        )
        if launch_offload is not None:
            return launch_offload
    return None


def _without_disabled_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings without those that are switched off by a word."""
    off = ("none", "false", "False", "no")
    return {name: value for name, value in settings.items() if value not in off}


def _launch_offload_or_none(
    how: str, offload: frozenset[Offload], document: LocatedDocument
) -> LaunchOffload | None:
    """The offload with the file that sets it; None if nothing is on the CPU."""
    return LaunchOffload(how, offload, str(document.path)) if offload else None
