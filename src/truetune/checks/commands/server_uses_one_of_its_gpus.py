"""A vLLM server has several GPUs but uses only one.

## What it does
Reads the commands that start vLLM (`vllm serve`, its container, compose services, jobs) with the GPUs that they get:
the container's devices, CUDA_VISIBLE_DEVICES, the job's request. It fires if there are several GPUs and neither tensor,
pipeline nor data parallelism is set. It does not fire if the file starts anything else that may use the other GPUs (a
program, another script), if several tasks start the server, or if options come from a variable or a file.

## Why it is bad
vLLM uses one GPU by default. The others are reserved but idle, and the server is as fast as with one GPU and has the KV
cache of one GPU.

## Example
```bash
#!/bin/bash
#SBATCH --gres=gpu:4
vllm serve out/merged --max-model-len 8192
```

## Use instead
```bash
#!/bin/bash
#SBATCH --gres=gpu:4
vllm serve out/merged --max-model-len 8192 --data-parallel-size 4
```

## Fix safety
There is no automatic fix. Data parallelism keeps the whole model on each GPU and serves more requests at once. Tensor
parallelism splits a model that does not fit on one GPU, and needs a number of attention heads that is divisible by the
number of GPUs.

## References
- https://docs.vllm.ai/en/stable/serving/parallelism_scaling.html
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.job_gpus_and_processes import (
    PROGRAM_STARTERS,
    GpuCount,
    gpus_given_to_container,
    gpus_requested_by_job,
    srun_tasks_per_node,
    visible_gpus_of_command,
)
from truetune.checks.rule import CommandRule
from truetune.checks.vllm_server_commands import VllmServerCommand, find_vllm_server_commands
from truetune.parsing.shell_commands import (
    CommandFile,
    ShellCommand,
    last_option,
    parse_digits,
)

PARALLEL = (
    ("--tensor-parallel-size", "-tp"),
    ("--pipeline-parallel-size", "-pp"),
    ("--data-parallel-size", "-dp"),
)
SETTINGS_OPTION = "--config"
STARTS_OTHERS = frozenset(
    (
        "bash",
        "sh",
        "make",
        "just",
        "apptainer",
        "singularity",
        "enroot",
        "ray",
        "mpirun",
        "ollama",
        "sglang",
    )
    + ("llama-server", "text-generation-launcher", "lm_eval", "jupyter")
)
"""First words of commands whose program may use GPUs, though none of `PROGRAM_STARTERS` stands in them"""
GPUS_OF_STEP = ("--gpus", "--gpus-per-task", "--gpus-per-node", "--gres", "-G")
"""Options of srun by which a task gets fewer GPUs than the job has"""


class ServerGpus(NamedTuple):
    """A server, and the GPUs that it is shown."""

    server: VllmServerCommand
    gpus: int
    line: int
    text: str


class ServerUsesOneOfItsGpus(CommandRule):
    code = "CMD162"
    fault = Fault.GPUS_LEFT_UNUSED
    severity = "warning"
    what = "vLLM servers with a known number of GPUs"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[ServerGpus]:
        """The places that the rule looks at: the vLLM servers with a known number of GPUs."""
        yield from _servers_with_gpus(file)

    def findings(self) -> Iterator[Finding]:
        servers = list(_servers_with_gpus(self.subject))
        if len(servers) != 1 or _other_programs_may_use_gpus(self.subject, servers[0].server):
            return
        shown = servers[0]
        if shown.gpus < 2 or not _asks_for_no_parallelism(shown.server):
            return
        yield self.finding(
            f"vLLM has {shown.gpus} GPUs but uses only one: {shown.gpus - 1} stay idle",
            f"add --data-parallel-size {shown.gpus} if the model fits on one GPU (more requests at once), or"
            f" --tensor-parallel-size {shown.gpus} if it does not; or request only one GPU",
            cases=[
                self.case_at(shown.line, shown.text),
                self.case_of_command(shown.server.command, shown.server.command.text.strip()[:300]),
            ],
        )


def _servers_with_gpus(file: CommandFile) -> Iterator[ServerGpus]:
    """The servers of a file, each with the GPUs that it is shown, where their number is plain."""
    for server in find_vllm_server_commands(file):
        command = server.command
        in_container = gpus_given_to_container(command)
        if in_container is not None:
            yield ServerGpus(server, in_container, command.line, f"{in_container} GPUs")
            continue
        gpu_count = visible_gpus_of_command(file, command) or _gpus_of_lone_task(file, server)
        if gpu_count is not None:
            yield ServerGpus(server, gpu_count.gpus, gpu_count.line, gpu_count.text)


def _gpus_of_lone_task(file: CommandFile, server: VllmServerCommand) -> GpuCount | None:
    """The GPUs that a job asks for, where its one task on a node starts the server and sees them all."""
    command = server.command
    before = command.words[: len(command.words) - len(server.options)]
    has_own = any(last_option(before, option) is not None for option in GPUS_OF_STEP)
    # A variable that is set for the command, and not to plain numbers: `CUDA_VISIBLE_DEVICES=$i`.
    if (
        has_own
        or "CUDA_VISIBLE_DEVICES" in command.variables
        or srun_tasks_per_node(command, file) != 1
    ):
        return None
    return gpus_requested_by_job(file)


def _other_programs_may_use_gpus(file: CommandFile, server: VllmServerCommand) -> bool:
    """Does the file start another program that may use the GPUs which the server leaves?"""
    return any(_may_use_gpus(command) for command in file.commands if command is not server.command)


def _may_use_gpus(command: ShellCommand) -> bool:
    """Does a command start a program that may use a GPU, or a script that may start one?"""
    names = [word.rpartition("/")[2] for word in command.words]
    is_script = command.words[0].endswith(".sh") or command.words[0].startswith("./")
    return (
        is_script
        or names[0] in STARTS_OTHERS
        or not PROGRAM_STARTERS.isdisjoint(names)
        or gpus_given_to_container(command) is not None
        or last_option(command.words, "--gpus") is not None
    )


def _asks_for_no_parallelism(server: VllmServerCommand) -> bool:
    """Is no parallelism asked for, by options that are all seen?"""
    words = server.options
    if any("$" in word for word in words) or last_option(words, SETTINGS_OPTION) is not None:
        return False
    counts = [last_option(words, *names) for names in PARALLEL]
    return all(count is None or parse_digits(count) == 1 for count in counts)
