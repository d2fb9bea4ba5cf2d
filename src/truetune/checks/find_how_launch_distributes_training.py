"""Finds how the launch beside a script distributes its training: processes, ZeRO stage or FSDP, and
CPU offload.

A script that `accelerate launch` or torchrun starts knows none of it. A plan of its memory that takes it for one
process would call a run too large that shares its weights among four.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from truetune.checks.accelerate_and_deepspeed_memory_settings import fsdp_policy_wrapping_no_layer
from truetune.checks.job_gpus_and_processes import find_launches
from truetune.checks.read_settings_in_launch_files import (
    LaunchFiles,
    find_launches_with_files,
    first_set_value,
)
from truetune.errors import TruetuneError
from truetune.memory.memory_settings import Offload, find_cpu_offload, flatten_stack_settings
from truetune.parsing.shell_commands import CommandFile, is_command_file, read_command_file
from truetune.settings.run_spec import RunSpec
from truetune.settings.stacks.read_shared_stack_arguments import offloads_in_zero

MAX_FILES = 60
"""Of a folder. Chosen, not measured: it bounds the time"""
OFF = ("none", "false", "False", "no", False, None)
"""Words by which settings switch something off"""
OFFLOAD_KEYS: dict[Offload, str] = {
    "optimizer": "offload_optimizer_device",
    "weights": "offload_param_device",
}
"""accelerate's names"""


class LaunchedTraining(NamedTuple):
    """What a launch decides of the memory of a training."""

    place: str
    """`job.sbatch:17`"""
    processes: int
    stage: int | None
    is_fsdp: bool
    offload: frozenset[Offload]
    is_recomputed: bool = False
    """Does accelerate checkpoint the activations?"""
    unit: str = ""
    """The setting that makes one unit of the whole model under FSDP; empty where none does"""

    @property
    def note(self) -> str:
        """A sentence for a memory plan: what was taken from the launch."""
        how = "FSDP" if self.is_fsdp else f"ZeRO-{self.stage}" if self.stage else ""
        parts = [
            f"{self.processes} process{'es' * (self.processes != 1)}",
            how,
            *(f"the {part} on the CPU" for part in sorted(self.offload)),
        ]
        text = f"as {self.place} starts it: {', '.join(part for part in parts if part)}"
        if self.unit:
            text += (
                f"; not in the table: {self.unit} makes one unit of the model, so that each GPU gathers all weights and"
                " makes their whole gradient"
            )
        return text

    def apply_to_run(self, spec: RunSpec) -> RunSpec:
        """The run with what the launch decides; what the script itself sets stays."""
        training = spec.training
        stage = training.deepspeed_stage if training.deepspeed_stage is not None else self.stage
        other: dict[str, Any] = {OFFLOAD_KEYS[part]: "cpu" for part in self.offload}
        changed = training.model_copy(
            update={
                "devices": self.processes,
                "deepspeed_stage": stage,
                "fsdp": training.fsdp or self.is_fsdp,
                "gradient_checkpointing": self.is_recomputed or training.gradient_checkpointing,
                "other": {**training.other, **other},
            }
        )
        return spec.model_copy(update={"training": changed})


def find_only_launched_training(script: Path) -> LaunchedTraining | None:
    """What the one launch of a script in its folder decides of its training; None if there is none,
    or if several differ.
    """
    launched_trainings = list(_launches_of(script))
    decided = {one[1:] for one in launched_trainings}
    return launched_trainings[0] if len(decided) == 1 else None


def _launches_of(script: Path) -> Iterator[LaunchedTraining]:
    """The launches of a script by the command files in its folder."""
    try:
        files = sorted(script.parent.iterdir())[:MAX_FILES]
    except OSError:
        return
    for path in files:
        if not path.is_file() or not is_command_file(path):
            continue
        try:
            file = read_command_file(path)
            yield from _launches_in(file, script.name)
        except TruetuneError:
            continue


def _launches_in(file: CommandFile, name: str) -> Iterator[LaunchedTraining]:
    """The launches of a script of that name in one file."""
    documents = {id(one.command): one for one in find_launches_with_files(file)}
    for launch in find_launches(file):
        if not any(Path(word).name == name for word in launch.command.words):
            continue
        place = f"{Path(file.path).name}:{launch.command.line}"
        processes = launch.processes * launch.machines
        files = documents.get(id(launch.command))
        launched = LaunchedTraining(place, processes, None, False, frozenset())
        yield _with_settings_of_files(launched, files) if files is not None else launched


def _with_settings_of_files(launched: LaunchedTraining, launch: LaunchFiles) -> LaunchedTraining:
    """The launch with the stage of ZeRO, with FSDP, and with what lies on the CPU, as its files say."""
    stage = (
        first_set_value(launch.deepspeed, ("zero_optimization", "stage"))
        or first_set_value(launch.accelerate, ("deepspeed_config", "zero_stage"))
        or launch.script_option_value("zero_stage")
    )
    kind = first_set_value(launch.accelerate, ("distributed_type",))
    is_fsdp = kind is not None and str(kind.value).upper() == "FSDP"
    is_fsdp = is_fsdp or "--use_fsdp" in launch.command.words
    number = stage.value if stage is not None and stage.value in (1, 2, 3) else None
    recomputed = first_set_value(
        launch.accelerate,
        ("fsdp_config", "fsdp_activation_checkpointing"),
        ("fsdp_config", "activation_checkpointing"),
    )
    unit = (
        fsdp_policy_wrapping_no_layer(launch.accelerate)
        if is_fsdp and launch.accelerate is not None
        else None
    )
    return launched._replace(
        stage=number,
        is_fsdp=is_fsdp,
        offload=_offload_of_launch(launch),
        is_recomputed=recomputed is not None and recomputed.value is True,
        unit=unit.text.rpartition(".")[2] if unit is not None else "",
    )


def _offload_of_launch(launch: LaunchFiles) -> frozenset[Offload]:
    """What the files of a launch put on the CPU."""
    zero = _table_of_launch_file(launch, "deepspeed", "zero_optimization")
    if zero:
        return find_cpu_offload(offloads_in_zero(zero))
    for key in ("deepspeed_config", "fsdp_config"):
        settings = flatten_stack_settings(_table_of_launch_file(launch, "accelerate", key))
        if settings:
            return find_cpu_offload(
                {name: value for name, value in settings.items() if value not in OFF}
            )
    return frozenset()


def _table_of_launch_file(launch: LaunchFiles, which: str, key: str) -> dict[str, Any]:
    """A part of the DeepSpeed file, or of accelerate's; empty where it has none."""
    document = launch.deepspeed if which == "deepspeed" else launch.accelerate
    value = document.value.get(key) if document is not None else None
    return value if isinstance(value, dict) else {}
