"""Every Slurm or MPI task of a node starts a launcher that already starts all processes of the node.

## What it does
Searches the commands that srun or mpirun start (in the line itself, in `bash -c '...'`, in a variable, or in a script
next to the job) for torchrun, `accelerate launch` and DeepSpeed. It checks how often they run on a node
(`--ntasks-per-node`, `--ntasks` over `--nodes`, `-npernode`, `ppr:4:node`); once is right. It does not fire if the
tasks have separate GPUs (`--gpus-per-task`), if only one of them launches (`SLURM_LOCALID`), if each starts one
process, or if a number is not a plain number.

## Why it is bad
The launchers of one node all open the same rendezvous port: all but one end with "address already in use" (EADDRINUSE),
whatever the port. If each takes a free port, several times as many processes as GPUs train.

## Example
```bash
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:4
srun bash -c 'torchrun --nnodes=2 --nproc_per_node=4 --node_rank=$SLURM_NODEID --master_addr=$HEAD train.py'
```

## Use instead
```bash
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:4
srun bash -c 'torchrun --nnodes=2 --nproc_per_node=4 --node_rank=$SLURM_NODEID --master_addr=$HEAD train.py'
```

## Fix safety
Safe: the launcher starts the processes. Multiply `--cpus-per-task` by the same factor, or all processes share the CPUs
of one task.

## References
- pytorch.org/docs/stable/elastic/run.html: "Multi-node"; slurm.schedmd.com/srun.html: `--ntasks-per-node`
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.find_launchers_repeated_per_task import (
    TaskLaunch,
    does_hold_launcher_directly,
    find_launchers_repeated_on_one_node,
)
from truetune.checks.findings import Finding
from truetune.checks.job_gpus_and_processes import find_launches, gpus_requested_by_job
from truetune.checks.rule import CommandRule
from truetune.parsing.shell_commands import CommandFile


class LauncherStartedByEachTask(CommandRule):
    code = "CMD107"
    fault = Fault.LAUNCH_SETTINGS_CONTRADICT
    symptoms = ("several-gpus",)
    severity = "error"
    stability = "preview"
    what = "launchers that srun or mpirun starts more than once on a node"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[TaskLaunch]:
        """The places that the rule looks at: the launchers that srun or mpirun starts more than once on a node."""
        yield from find_launchers_repeated_on_one_node(file)

    def findings(self) -> Iterator[Finding]:
        for launch in self.examined_places(self.subject):
            if _is_judged_by_another_rule(launch, self.subject):
                continue
            port = f"the port {launch.port}" if launch.port.isdecimal() else "the same port"
            yield self.finding(
                f"{launch.starter} starts {launch.launcher} {launch.tasks} ({launch.setting}), and each launcher"
                f" starts {launch.processes}: all launchers of a node open {port}, and all but one fail with"
                ' "address already in use" (EADDRINUSE)',
                _advise_one_launcher_per_node(launch),
                cases=[
                    self.case_at(launch.line, launch.setting),
                    self.case_of_command(launch.command, launch.command.text[:300]),
                ],
            )


def _is_judged_by_another_rule(launch: TaskLaunch, file: CommandFile) -> bool:
    """Do job-gpus-differ-from-processes or nodes-train-apart say it: a plain command with more processes than GPUs, or
    one whose launches know nothing of each other?"""
    if launch.starter != "srun" or not does_hold_launcher_directly(launch.command):
        return False
    granted = gpus_requested_by_job(file)
    lines = [
        one.command.line
        for one in find_launches(file)
        if granted is not None and one.processes > granted.gpus
    ]
    is_apart = not any(
        word.startswith(("--nnodes", "--num", "deepspeed")) for word in launch.command.words
    )
    return launch.command.line in lines or is_apart


def _advise_one_launcher_per_node(launch: TaskLaunch) -> str:
    """The edit that leaves one launcher on each node."""
    if launch.setting.startswith("#SBATCH"):
        nodes = f" (and --ntasks={launch.nodes}, if set)" if launch.nodes else ""
        return f"set #SBATCH --ntasks-per-node=1{nodes}: the launcher starts the processes of its node itself"
    option = "--ntasks-per-node=1" if launch.starter == "srun" else "--map-by ppr:1:node"
    nodes = f" --ntasks={launch.nodes}" if launch.nodes and launch.starter == "srun" else ""
    return f"start it once per node: {launch.starter}{nodes} {option}"
