"""A job requests a different number of GPUs than the number of processes that it starts.

## What it does
Compares the GPUs that the `#SBATCH` lines request per node with the processes that `torchrun`, `accelerate launch`,
TRL's command (`trl sft`; both with accelerate's configuration, if named) or `deepspeed` start there. It also compares
the GPUs in CUDA_VISIBLE_DEVICES with the processes of the command: in the file, in the script that is started, or for a
container (`-e`, `environment:`, an `--env-file` or a sourced file; or `--gpus device=0`). `tune run` with a
single-device recipe, and ms-swift without NPROC_PER_NODE, start one process. A job whose programs are all kept on the
CPU (`accelerate launch --cpu`, `use_cpu: true` in the named settings) uses no GPU. The rule does not fire if either
number is a variable, if commands share the GPUs (CUDA_VISIBLE_DEVICES, a server next to the training), or if the script
spreads one model over several GPUs (`device_map`).

## Why it is bad
With too few processes, the other GPUs are reserved, paid for and idle, and the run takes that many times as long. With
too many, a process has no GPU of its own and fails with "invalid device ordinal", or two processes share one GPU and
run out of memory.

## Example
```bash
#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gres=gpu:4
accelerate launch --num_processes 1 train.py
```

## Use instead
```bash
#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gres=gpu:4
accelerate launch --multi_gpu --num_processes 4 train.py
```

## Fix safety
More processes make the effective batch larger, unless you lower the gradient accumulation. The learning rate was chosen
for a certain effective batch.

## References
- Slurm documentation, sbatch: `--gres`, `--gpus-per-node`; accelerate documentation, `accelerate launch`
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.identify_model_by_published_name import model_identity
from truetune.checks.job_gpus_and_processes import (
    GpuCount,
    ProcessLaunch,
    commands_if_all_kept_on_cpu,
    find_launches,
    gpus_requested_by_job,
    may_commands_split_gpus,
    visible_gpus_of_command,
    visible_gpus_set_in_script,
)
from truetune.checks.rule import CommandRule
from truetune.checks.vllm_server_commands import find_vllm_server_commands
from truetune.parsing.shell_commands import CommandFile, ShellCommand, last_option
from truetune.settings.run_spec import Severity

VISIBLE = "CUDA_VISIBLE_DEVICES="
MAX_BILLIONS_ON_ONE_GPU = 35
"""Parameters whose bfloat16 weights leave room for an adapter's training in the 80 GB of an A100 or H100"""
QUANTIZATION = ("--quant_bits", "--quantization_bit")


class JobGpusDifferFromProcesses(CommandRule):
    code = "CMD004"
    fault = Fault.LAUNCH_SETTINGS_CONTRADICT
    severity = "error"
    what = "launches with a known number of GPUs"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[ProcessLaunch | tuple[ShellCommand, str]]:
        """The places that the rule looks at: the launches with a known number of GPUs."""
        for launch in find_launches(file):
            visible = visible_gpus_of_command(file, launch.command) or visible_gpus_set_in_script(
                file, launch.command
            )
            if gpus_requested_by_job(file) is not None or visible is not None:
                yield launch
        if gpus_requested_by_job(file) is not None:
            yield from commands_if_all_kept_on_cpu(file)

    def findings(self) -> Iterator[Finding]:
        yield from self._findings_beyond_visible_gpus()
        granted = gpus_requested_by_job(self.subject)
        if granted is None:
            return
        on_cpu = commands_if_all_kept_on_cpu(self.subject)
        # Commands that see no GPU share none, although the file sets the variable.
        are_hidden = bool(on_cpu) and all(reason.startswith(VISIBLE) for _, reason in on_cpu)
        if may_commands_split_gpus(self.subject) and not are_hidden:
            return
        if on_cpu:
            yield from self._findings_on_cpu_commands(granted, on_cpu)
        else:
            yield from self._findings_on_process_counts_unlike_gpus(granted)

    def _findings_on_cpu_commands(
        self, granted: GpuCount, on_cpu: Sequence[tuple[ShellCommand, str]]
    ) -> Iterator[Finding]:
        """Findings on commands that leave the GPUs of the job unused."""
        for command, reason in on_cpu:
            gpus = f"{granted.gpus} GPU{'s' * (granted.gpus != 1)}"
            yield self.finding(
                f"the job requests {gpus} per node, but {reason} keeps the training on the CPU: they stay idle",
                f"remove {reason.partition(' in ')[0].removeprefix('accelerate launch ')}",
                cases=[
                    self.case_at(granted.line, granted.text),
                    self.case_of_command(command, reason),
                ],
            )

    def _findings_on_process_counts_unlike_gpus(self, granted: GpuCount) -> Iterator[Finding]:
        """Findings on launches of another number of processes than the job has GPUs."""
        for launch in find_launches(self.subject):
            wanted, here = granted.gpus, launch.processes
            # A script that spreads one model uses the GPUs that have no process of their own.
            if here == wanted or (here < wanted and launch.spreads_one_model):
                continue
            processes = f"{here} process{'es' * (here != 1)}"
            idle = _describe_mismatch_effect(launch, wanted)
            gpus = f"{wanted} GPU{'s' * (wanted != 1)}"
            yield self.finding(
                f"the job requests {gpus} per node, but starts {processes} there: {idle}",
                _gpu_advice(launch, wanted),
                severity="warning" if here < wanted else "error",
                cases=[
                    self.case_at(granted.line, granted.text),
                    self.case_of_command(launch.command, launch.said),
                ],
            )

    def _findings_beyond_visible_gpus(self) -> Iterator[Finding]:
        """Findings on launches of more processes than CUDA_VISIBLE_DEVICES leaves GPUs, or of one
        that spreads a model.
        """
        for launch in find_launches(self.subject):
            visible, place = (
                visible_gpus_of_command(self.subject, launch.command),
                self.subject.path,
            )
            # What the script sets itself wins: it runs after the shell.
            in_script = visible_gpus_set_in_script(self.subject, launch.command)
            if in_script is not None:
                visible, place = in_script
            mismatch = (
                None if visible is None else self._mismatch_advice_and_severity(launch, visible)
            )
            if visible is None or mismatch is None:
                continue
            message, advice, severity = mismatch
            yield self.finding(
                message,
                advice,
                severity=severity,
                cases=[
                    Case(visible.text, file=place, line=visible.line),
                    self.case_of_command(launch.command, launch.said),
                ],
            )

    def _mismatch_advice_and_severity(
        self, launch: ProcessLaunch, visible: GpuCount
    ) -> tuple[str, str, Severity] | None:
        """(what is wrong, advice, severity) of a launch and the GPUs that it sees; None where they fit."""
        gpus, processes = visible.gpus, launch.processes
        if processes > gpus:
            return (
                f"{processes} processes are started, but {_variable_or_option_name(visible.text)} lists {gpus}"
                f" GPU{'s' * (gpus != 1)}: a process fails (invalid device ordinal), or two share a GPU",
                f"start {gpus} ({launch.setting} {gpus * launch.machines}), or list {processes} GPUs",
                self.severity,
            )
        is_one_of_several = processes == 1 < gpus
        if (
            is_one_of_several
            and launch.shares_one_model
            and not _is_model_beyond_one_gpu(launch.command)
        ):
            return (
                f"one process sees {gpus} GPUs: {launch.shares_one_model}",
                f"if the model fits on one GPU, start {gpus} processes ({launch.setting}={gpus})",
                "warning",
            )
        if self._leaves_gpus_idle(launch, gpus):
            return (
                f"the launcher sees {gpus} GPUs but starts 1 process, which uses one: {gpus - 1} of {gpus} GPUs stay"
                " idle",
                f"start {gpus} processes ({launch.setting} {gpus}), or let it see only 1 GPU",
                "warning",
            )
        return None

    def _leaves_gpus_idle(self, launch: ProcessLaunch, visible: int) -> bool:
        """Does the file's only launch start one process on several GPUs, and spread no model over them?"""
        file = self.subject
        if gpus_requested_by_job(file) is not None or launch.processes != 1 or visible < 2:
            return False
        is_only = len(list(find_launches(file))) == 1 and not any(find_vllm_server_commands(file))
        is_spread = launch.spreads_one_model or bool(launch.shares_one_model)
        return is_only and not is_spread and launch.machines == 1 and "&\n" not in f"{file.text}\n"


def _variable_or_option_name(text: str) -> str:
    """What shows GPUs to a command: the variable without its value, or the option."""
    name, _, file = text.partition(" of ")
    named = name.partition("=")[0] if name.startswith(VISIBLE) else name
    return f"{named} of {file}" if file else named


def _is_model_beyond_one_gpu(command: ShellCommand) -> bool:
    """Is the model too large for one GPU, by its name? Then its layers have to be spread."""
    identity = model_identity(last_option(command.words, "--model") or "")
    size = identity.size if identity is not None else ""
    if "x" in size or not size.endswith("b") or last_option(command.words, *QUANTIZATION):
        return False
    return float(size[:-1]) > MAX_BILLIONS_ON_ONE_GPU


def _describe_mismatch_effect(launch: ProcessLaunch, wanted: int) -> str:
    """What becomes of a job's GPUs, where the processes are more or fewer."""
    if launch.tasks > 1 and launch.processes > wanted:
        return (
            f"srun starts the launcher {launch.tasks} times per node: all open the same port (EADDRINUSE), or a"
            " process has no GPU"
        )
    if launch.processes > wanted:
        return "a process has no GPU (invalid device ordinal), or two share one"
    if launch.processes == 1 and launch.shares_one_model:
        return launch.shares_one_model
    return f"{wanted - launch.processes} of {wanted} GPUs stay idle"


def _gpu_advice(launch: ProcessLaunch, wanted: int) -> str:
    """What to change so that each GPU has its process."""
    # Each task of srun started all processes of a node: the advice is then on the tasks, not on the processes.
    if launch.tasks > 1 and launch.processes == wanted * launch.tasks:
        return "set --ntasks-per-node=1: srun starts the launcher once per task, and the launcher starts all processes"
    processes = f"{wanted} process{'es' * (wanted != 1)}"
    return (
        f"start {processes} ({launch.setting} {wanted * launch.machines}), or request {launch.processes}"
        f" GPU{'s' * (launch.processes != 1)}"
    )
