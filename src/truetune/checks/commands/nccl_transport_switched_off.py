"""A job switches off a fast NCCL transport.

## What it does
Looks for NCCL_IB_DISABLE=1, NCCL_NET=Socket, NCCL_P2P_DISABLE=1 and NCCL_SHM_DISABLE=1 in shell scripts, job files,
Dockerfiles, compose files and variable files (`*.env`), and in the files that a job sources. It is a warning if the job
has several nodes (or several GPUs, for shared memory), and info if their number is unknown. It does not fire if the
transport would not be used, such as NCCL_IB_DISABLE in a job of one node.

## Why it is bad
These variables are often set once, to find out why a run hangs, and then forgotten. Without InfiniBand, each multi-node
step waits for TCP, ten to forty times as long. Without P2P or shared memory, the GPUs of one node communicate through
the host.

## Example
```bash
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
export NCCL_IB_DISABLE=1
srun torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint $HEAD:29500 train.py
```

## Use instead
```bash
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
export NCCL_DEBUG=INFO
srun torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint $HEAD:29500 train.py
```

## Fix safety
Results stay the same. If the run hangs without the variable, NCCL_DEBUG=INFO shows where.

## References
- docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html; huggingface/accelerate#1510
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from truetune.checks.describe_cost_of_nccl_variables import (
    NCCL_VARIABLES,
    cost_of_switched_off_transport,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.job_gpus_and_processes import find_launches, gpus_requested_by_job
from truetune.checks.node_rendezvous import find_node_rendezvous, node_count_of_job
from truetune.checks.rule import CommandRule
from truetune.errors import DataError
from truetune.parsing.environment_variables_in_files import (
    EnvironmentSetting,
    find_environment_settings,
)
from truetune.parsing.shell_commands import (
    CommandFile,
    is_command_file,
    last_option,
    parse_digits,
    read_command_file,
)

MAX_NEIGHBOURS = 60
"""Files beside a file of variables that are searched for a job which sources it"""


class NcclTransportSwitchedOff(CommandRule):
    code = "CMD045"
    fault = Fault.GPUS_COMMUNICATE_SLOWLY
    symptoms = ("several-gpus",)
    severity = "warning"
    what = "variables that switch a transport of NCCL off"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[object]:
        """The places that the rule looks at: the variables that switch a transport of NCCL off."""
        yield from find_environment_settings(file, NCCL_VARIABLES)

    def findings(self) -> Iterator[Finding]:
        settings = list(find_environment_settings(self.subject, NCCL_VARIABLES))
        # What only a job sources is judged with the job, which knows its nodes.
        if not settings or (
            _only_sets_variables(self.subject) and _is_sourced_by_file_nearby(self.subject)
        ):
            return
        nodes, gpus = number_of_nodes(self.subject), gpus_per_node(self.subject)
        for setting in settings:
            lost = cost_of_switched_off_transport(setting.name, setting.value, nodes, gpus)
            if lost is not None:
                yield self.finding(
                    lost.why,
                    lost.instead,
                    severity=lost.severity,
                    cases=[_case_of_setting(setting)],
                )


def _case_of_setting(setting: EnvironmentSetting) -> Case:
    """The case of a variable: the line that sets it."""
    return Case(f"{setting.name}={setting.value}", file=setting.file, line=setting.line)


def number_of_nodes(file: CommandFile) -> int | None:
    """The nodes of a file's runs, by its scheduler's lines or by its launches; None where that is not known."""
    of_job = node_count_of_job(file)
    options = [_number_of_nodes_option(command.words) for command in file.commands]
    named = [parse_digits(option) for option in options if option is not None]
    launched = [launch.machines for launch in find_launches(file)]
    launched += [_count_mpirun_hosts(command.words) for command in file.commands]
    launched += [meeting.nodes for meeting in find_node_rendezvous(file)]
    known = [count for count in (of_job, *named, *launched) if count]
    nodes = max(known, default=None)
    # `--nnodes $NODES`: a launch that would count as one of one node has a number that is not known.
    return None if nodes == 1 and of_job is None and None in named else nodes


def _count_mpirun_hosts(words: tuple[str, ...]) -> int:
    """The hosts that `mpirun -H a:8,b:8` names; 0 for all other commands."""
    if words[0].rpartition("/")[2] not in ("mpirun", "mpiexec", "horovodrun"):
        return 0
    named = last_option(words, "-H", "--host", "-host") or ""
    return len({host.partition(":")[0] for host in named.split(",") if host})


def _number_of_nodes_option(words: tuple[str, ...]) -> str | None:
    """The number of nodes that a command names, as it spells it; None where it names none."""
    return last_option(words, "--nnodes", "--num_nodes", "--num_machines", "--nodes")


def gpus_per_node(file: CommandFile) -> int | None:
    """The GPUs of each node that a file's runs use; None where that is not known."""
    gpu_count = gpus_requested_by_job(file)
    counts = [launch.processes for launch in find_launches(file)]
    return max([*counts, *([gpu_count.gpus] if gpu_count is not None else [])], default=None)


def _only_sets_variables(file: CommandFile) -> bool:
    """Does a file only set variables?"""
    return all(
        command.words[0] in ("export", "set", "unset", "source", ".") for command in file.commands
    )


def _is_sourced_by_file_nearby(file: CommandFile) -> bool:
    """Does a file beside it, or one folder above, source this file's variables?"""
    path = Path(file.path)
    for folder in (path.parent, path.parent.parent):
        try:
            near = [
                one for one in islice(sorted(folder.iterdir()), MAX_NEIGHBOURS) if one.is_file()
            ]
        except OSError:
            continue
        if any(
            _sources_variables_of(one, path) for one in near if one != path and is_command_file(one)
        ):
            return True
    return False


def _sources_variables_of(job: Path, path: Path) -> bool:
    """Does a file of commands set the same variables by sourcing this file?"""
    try:
        settings = find_environment_settings(read_command_file(job), NCCL_VARIABLES)
    except DataError:
        return False
    return any(Path(one.file).resolve() == path.resolve() for one in settings)
