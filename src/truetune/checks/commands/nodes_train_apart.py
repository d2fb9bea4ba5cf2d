"""Each node of a job, or each task, starts a separate training.

## What it does
Looks in a Slurm job for `srun torchrun` whose launches do not connect: `--standalone`, or neither `--nnodes` nor a
rendezvous, in a job with several nodes or several tasks per node. It says how many runs that makes. It does not fire if
the number of nodes or tasks is not a plain number, for a job array, or if a node has more processes than GPUs.

## Why it is bad
Each torchrun then trains alone. Each run has all rows, the same seed and the same output folder: the job takes as long
as on one node, every log line appears once per run, and the runs overwrite each other's checkpoints. Several launches
on one node also put several processes on each GPU.

## Example
```bash
#!/bin/bash
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:8
srun torchrun --standalone --nproc-per-node 8 train.py
```

## Use instead
```bash
#!/bin/bash
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:8
HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun torchrun --nnodes 4 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint $HEAD:29500 train.py
```

## Fix safety
The effective batch grows by the number of runs: lower the gradient accumulation, or adapt the learning rate.

## References
- https://docs.pytorch.org/docs/stable/elastic/run.html (`--standalone`); Slurm documentation, srun
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.job_gpus_and_processes import TORCHRUN, gpus_requested_by_job
from truetune.checks.node_rendezvous import node_count_of_job
from truetune.checks.rule import CommandRule
from truetune.parsing.shell_commands import (
    CommandFile,
    ShellCommand,
    last_option,
    parse_digits,
)

MEETINGS = (
    "--rdzv-endpoint",
    "--rdzv-id",
    "--rdzv-backend",
    "--rdzv-conf",
    "--master-addr",
    "--node-rank",
)
"""Options that let launches find one another"""
TASKS_PER_NODE, TASKS, NODES = ("--ntasks-per-node",), ("--ntasks", "-n"), ("--nodes", "-N")


class _LaunchesApart(NamedTuple):
    """Launches of one command that know nothing of each other."""

    command: ShellCommand
    nodes: int
    tasks: int
    """On each node"""
    reason: str


class NodesTrainApart(CommandRule):
    code = "CMD058"
    fault = Fault.PROCESSES_TRAIN_SEPARATELY
    symptoms = ("several-gpus",)
    severity = "error"
    stability = "preview"
    what = "launches that srun starts on several nodes or in several tasks"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[ShellCommand]:
        """The places that the rule looks at: the launches that srun starts on several nodes or in several tasks."""
        for command in file.commands:
            if (
                _words_between_torchrun_and_script(command) is not None
                and command.words[0] == "srun"
            ):
                nodes, tasks = _nodes_and_tasks_per_node(file, command)
                if nodes and tasks and nodes * tasks > 1:
                    yield command

    def findings(self) -> Iterator[Finding]:
        if "--array" in self.subject.requests:
            return
        for command in self.examined_places(self.subject):
            apart = _launches_that_do_not_connect(self.subject, command)
            if apart is None or _has_more_processes_than_gpus(self.subject, apart):
                continue
            runs = apart.nodes * apart.tasks
            where = f"{apart.nodes} nodes" if apart.nodes > 1 else f"{apart.tasks} tasks of a node"
            if apart.nodes > 1 and apart.tasks > 1:
                where = f"{apart.nodes} nodes with {apart.tasks} tasks each"
            yield self.finding(
                f"srun starts torchrun {runs} times ({where}), but {apart.reason}: {runs} separate runs train on all"
                " rows and overwrite each other's checkpoints",
                _advise_how_to_join_launches(self.subject, apart),
                cases=[self.case_of_command(command, command.text[:300])],
            )


def _words_between_torchrun_and_script(command: ShellCommand) -> tuple[str, ...] | None:
    """The words of a command after torchrun, up to the script; None where it does not start
    torchrun.
    """
    behind = (command.words_following(*words) for words in TORCHRUN)
    options = next((words for words in behind if words is not None), None)
    if options is None:
        return None
    script = next((n for n, word in enumerate(options) if word.endswith(".py")), len(options))
    return options[:script]


def _nodes_and_tasks_per_node(
    file: CommandFile, command: ShellCommand
) -> tuple[int | None, int | None]:
    """The nodes that a command of srun runs on, and its tasks on each; None for what is not plain."""
    own = _words_before_torchrun(command)
    option = last_option(own, *NODES)
    nodes = parse_digits(option) if option is not None else node_count_of_job(file) or 1
    per_node, total = _tasks_per_node_and_total(file, own)
    if per_node is not None:
        return nodes, parse_digits(per_node)
    if total is None:
        return nodes, 1
    count = parse_digits(total)
    return nodes, count // nodes if count and nodes and count % nodes == 0 else None


def _words_before_torchrun(command: ShellCommand) -> tuple[str, ...]:
    """The words of a command before its torchrun, which are srun's own; all words where it has none."""
    for number, word in enumerate(command.words):
        if word.rpartition("/")[2] == "torchrun":
            return command.words[:number]
    return command.words


def _tasks_per_node_and_total(
    file: CommandFile, words: tuple[str, ...]
) -> tuple[str | None, str | None]:
    """The tasks on each node, and those on all nodes, that srun's options ask for, else the job.

    Args:
        file: with what the job asks its scheduler for.
        words: srun and its options.
    """
    per_node = last_option(words, *TASKS_PER_NODE)
    total = last_option(words, *TASKS)
    if per_node is not None or total is not None:
        return per_node, total
    per_node = _scheduler_request(file, *TASKS_PER_NODE)
    if per_node is not None:
        return per_node, None
    return None, _scheduler_request(file, *TASKS)


def _scheduler_request(file: CommandFile, *names: str) -> str | None:
    """The value of what the job asks its scheduler for by one of these names; None where it asks
    for none.
    """
    return next((file.requests[name][0] for name in names if name in file.requests), None)


def _launches_that_do_not_connect(
    file: CommandFile, command: ShellCommand
) -> _LaunchesApart | None:
    """The launches of a command that do not meet, and why; None where they meet, or may."""
    options = _words_between_torchrun_and_script(command)
    nodes, tasks = _nodes_and_tasks_per_node(file, command)
    if options is None or not nodes or not tasks:
        return None
    if "--standalone" in options:
        return _LaunchesApart(command, nodes, tasks, "--standalone makes each a separate run")
    if last_option(options, *MEETINGS) is not None or any("$" in word for word in options[:1]):
        return None
    count = last_option(options, "--nnodes")
    if count not in (None, "1", "1:1"):
        return None
    # The launcher takes its options from variables too (PET_NNODES).
    if "PET_" in file.text:
        return None
    said = "neither --nnodes nor a rendezvous is given" if count is None else "--nnodes is 1"
    return _LaunchesApart(command, nodes, tasks, said)


def _has_more_processes_than_gpus(file: CommandFile, apart: _LaunchesApart) -> bool:
    """Do the tasks of one node start more processes than it has GPUs? `job-gpus-differ-from-processes` says so then."""
    gpus = gpus_requested_by_job(file)
    options = _words_between_torchrun_and_script(apart.command) or ()
    each = parse_digits(last_option(options, "--nproc-per-node", "--nproc_per_node"))
    if apart.nodes > 1 or gpus is None or each is None:
        return False
    return apart.tasks * each > gpus.gpus


def _advise_how_to_join_launches(file: CommandFile, apart: _LaunchesApart) -> str:
    """The advice how the launches become one run."""
    parts = []
    if apart.tasks > 1:
        parts.append(
            "set --ntasks-per-node=1, since torchrun starts the processes of a node itself"
        )
    gpus = gpus_requested_by_job(file)
    if apart.nodes > 1:
        processes = f" --nproc-per-node {gpus.gpus}" if gpus is not None else ""
        parts.append(
            f"use torchrun --nnodes {apart.nodes}{processes} --rdzv-backend c10d --rdzv-endpoint FIRST_NODE:29500,"
            " without --standalone"
        )
    return "; ".join(parts)
