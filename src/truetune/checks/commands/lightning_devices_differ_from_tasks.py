"""Lightning expects another number of processes than Slurm starts.

## What it does
Takes the script that a Slurm job starts with `python`, with or without srun, and the number of devices that it passes
to Lightning's Trainer or Fabric (or that the command passes with `--trainer.devices`). It compares this number with the
tasks that Slurm starts per node. It does not fire if either number is not a plain number, if the job sets no tasks and
uses no srun (Lightning then starts its processes itself), or if the script uses another Lightning environment.

## Why it is bad
In a Slurm job, Lightning expects srun to start the processes, one per device. With fewer tasks than devices, the first
process waits for the others forever, at "GLOBAL_RANK: 0, MEMBER: 1/4"; newer releases stop with an error.

## Example
```bash
#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:4
srun python -m lightning_project.main fit --trainer.devices 4
```

## Use instead
```bash
#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:4
srun python -m lightning_project.main fit --trainer.devices 4
```

## Fix safety
Safe: it starts the processes that the script expects.

## References
- lightning/fabric/plugins/environments/slurm.py (detect, validate_settings)
- lightning.ai/docs/pytorch/stable/clouds/cluster_advanced.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.job_gpus_and_processes import srun_tasks_per_node
from truetune.checks.read_settings_in_launch_files import (
    find_in_folder_or_parents,
    first_set_value,
    parse_script,
    read_document_in_folder_or_parents,
)
from truetune.checks.rule import CommandRule
from truetune.parsing.shell_commands import (
    CommandFile,
    ShellCommand,
    last_option,
    parse_digits,
)
from truetune.source.call_with_resolved_names_and_arguments import last_name_of_called

PACKAGES = ("lightning", "pytorch_lightning", "lightning_fabric")
CLASSES = ("Trainer", "Fabric")
TASKS = frozenset(("--ntasks-per-node", "--ntasks", "-n"))
OTHER_ENVIRONMENTS = ("LightningEnvironment", "TorchElasticEnvironment", "ClusterEnvironment")


class _LightningDevices(NamedTuple):
    """The number of devices that Lightning is given on a node, and where it is given."""

    number: int
    text: str
    file: str
    line: int


class LightningDevicesDifferFromTasks(CommandRule):
    code = "CMD097"
    fault = Fault.LAUNCH_SETTINGS_CONTRADICT
    symptoms = ("several-gpus",)
    severity = "error"
    stability = "preview"
    what = "scripts of Lightning in Slurm jobs with a known number of tasks"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[tuple[ShellCommand, _LightningDevices]]:
        """The places that the rule looks at: the scripts of Lightning in Slurm jobs with a known number of tasks."""
        if not file.requests:
            return
        for command in file.commands:
            is_srun = command.words[0] == "srun"
            if not _starts_python(command) or not (is_srun or TASKS & file.requests.keys()):
                continue
            devices = (
                _devices_of_command(command, file)
                or _devices_of_settings(command, file)
                or _devices_of_script(command, file)
            )
            if devices is not None:
                yield command, devices

    def findings(self) -> Iterator[Finding]:
        for command, devices in self.examined_places(self.subject):
            tasks = srun_tasks_per_node(command, self.subject)
            if tasks is None or tasks == devices.number:
                continue
            started = f"{tasks} task{'s' * (tasks != 1)} per node"
            by = "Slurm starts" if command.words[0] == "srun" else "without srun, the job starts"
            yield self.finding(
                f"Lightning expects {devices.number} processes per node, but {by} {started}: in a Slurm job"
                " Lightning starts none itself, and waits for the missing ones",
                f"set #SBATCH --ntasks-per-node={devices.number}, and start the script with srun",
                cases=[
                    Case(devices.text, file=devices.file, line=devices.line),
                    self.case_of_command(command, command.text[:300]),
                ],
            )


def _starts_python(command: ShellCommand) -> bool:
    """Does a command start Python itself, with no launcher that starts processes?"""
    programs = [word.rpartition("/")[2] for word in command.words]
    launchers = {"torchrun", "accelerate", "deepspeed", "mpirun", "torch.distributed.run"}
    return any(one.startswith("python") for one in programs) and not launchers & set(programs)


def _devices_of_command(command: ShellCommand, file: CommandFile) -> _LightningDevices | None:
    """The devices that a command of Lightning's own command line names; None where it names none."""
    value = parse_digits(last_option(command.words, "--trainer.devices"))
    text = f"--trainer.devices {value}"
    return _LightningDevices(value, text, file.path, command.line) if value else None


def _devices_of_settings(command: ShellCommand, file: CommandFile) -> _LightningDevices | None:
    """The devices that the settings of Lightning's command line name: `trainer: devices: 4` in the
    file of `--config`.
    """
    name = last_option(command.words, "--config", "-c")
    document = read_document_in_folder_or_parents(Path(file.path).parent, name)
    devices = first_set_value(document, ("trainer", "devices"))
    if devices is None or type(devices.value) is not int or not devices.value:
        return None
    return _LightningDevices(devices.value, devices.text, devices.file, devices.line)


def _devices_of_script(command: ShellCommand, file: CommandFile) -> _LightningDevices | None:
    """The devices that the script gives Lightning's Trainer as a plain number; None where it gives
    several, or none.
    """
    name = next((word for word in command.words if word.endswith(".py")), None)
    script = find_in_folder_or_parents(Path(file.path).parent, name)
    tree = parse_script(script)
    if tree is None or script is None or not _uses_lightning(tree):
        return None
    devices = list(_devices_given_to_trainer_calls(tree))
    if len({value for value, _ in devices}) != 1:
        return None
    value, line = devices[0]
    return _LightningDevices(value, f"devices={value}", str(script), line)


def _uses_lightning(tree: ast.Module) -> bool:
    """Does a script import Lightning, and leave the environment to it?"""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {node.module or "", *(alias.name for alias in node.names)}
    is_imported = any(name.partition(".")[0] in PACKAGES for name in names)
    return is_imported and not names & set(OTHER_ENVIRONMENTS)


def _devices_given_to_trainer_calls(tree: ast.Module) -> Iterator[tuple[int, int]]:
    """The numbers that calls of the Trainer or of Fabric get as `devices`, with their lines."""
    constants = _constants_of_script(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or last_name_of_called(node) not in CLASSES:
            continue
        for keyword in node.keywords:
            value: object = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
            if isinstance(keyword.value, ast.Name):
                value = constants.get(keyword.value.id)
            # `type`, for True is an int, too
            if keyword.arg == "devices" and type(value) is int:
                yield value, keyword.value.lineno


def _constants_of_script(tree: ast.Module) -> dict[str, object]:
    """The names that a script sets once, at its top, to a plain value."""
    stored = [
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]
    constants: dict[str, object] = {}
    for node in tree.body:
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Constant):
            continue
        target = node.targets[0]
        if isinstance(target, ast.Name) and stored.count(target.id) == 1:
            constants[target.id] = node.value.value
    return constants
