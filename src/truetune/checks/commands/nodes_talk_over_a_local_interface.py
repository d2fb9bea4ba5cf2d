"""Several nodes are set to communicate over a network interface that does not leave the machine.

## What it does
Reads NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME in shell scripts, job files and compose files that start processes on
several nodes (`--nnodes`, `--num_machines`, `#SBATCH --nodes`, `NNODES`). `lo` is the machine itself; `docker0`,
`virbr0` and `br-...` are bridges to its own containers. It does not fire if another interface is listed too, or for
`^lo`, which excludes one.

## Why it is bad
No packet leaves the machine through these interfaces: NCCL announces an address that each node takes for another
machine (127.0.0.1, 172.17.0.1). The start hangs in the first collective call until a timeout after 10 to 30 minutes, or
stops with "Connection refused".

## Example
```bash
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gres=gpu:4
export NCCL_SOCKET_IFNAME=lo
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun torchrun --nnodes=2 --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=$head:29500 train.py
```

## Use instead
```bash
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gres=gpu:4
export NCCL_SOCKET_IFNAME=^lo,docker0
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun torchrun --nnodes=2 --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=$head:29500 train.py
```

## Fix safety
Safe: only the network interface changes. `ip -br addr` lists the interfaces of a machine.

## References
- https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html (NCCL_SOCKET_IFNAME)
- pytorch/pytorch#65789
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.job_gpus_and_processes import lines_of_env_file
from truetune.checks.node_rendezvous import find_node_rendezvous, node_count_of_job
from truetune.checks.rule import CommandRule
from truetune.parsing.shell_commands import CommandFile

SETS_INTERFACE = re.compile(
    r"\b(NCCL_SOCKET_IFNAME|GLOO_SOCKET_IFNAME)=[\"']?([^\s\"';,]+(?:,[^\s\"';,]+)*)"
)
VARIABLE_FILES = ("--env-file", "source", ".")
"""Words before the name of a file of variables"""
LOCAL = re.compile(r"=?(?:lo\d*|docker\d*|virbr\d*|br-\w*)")
"""Interfaces from which no packet leaves the machine; `=` asks for the very name"""
NODES_VARIABLE = re.compile(r"\b(?:NNODES|NUM_NODES|PET_NNODES)=[\"']?(\d+)\b")
"""What LLaMA-Factory, ms-swift and torchrun take for the number of nodes"""


class LocalInterface(NamedTuple):
    """A line that binds the nodes to an interface of their own machine."""

    variable: str
    interface: str
    nodes: int
    line: int
    text: str


def _local_interface_settings(file: CommandFile) -> Iterator[LocalInterface]:
    """The lines of a launch on several nodes that choose an interface."""
    nodes = _node_count(file)
    if nodes < 2:
        return
    # A compose file is read as commands, whose text holds what its `environment` sets.
    lines = [(command.line, " ".join(command.words)) for command in file.commands]
    yield from _interface_settings_of_env_files(file, nodes)
    plain = list(enumerate(file.text.splitlines(), 1))
    for number, line in plain if _is_plain_script(file) else lines:
        for match in SETS_INTERFACE.finditer(line):
            if not line.lstrip().startswith("#"):
                yield LocalInterface(match[1], match[2], nodes, number, match[0])


def _interface_settings_of_env_files(file: CommandFile, nodes: int) -> Iterator[LocalInterface]:
    """Lines that choose an interface in the files of variables (`env_file`) that a command or a
    service of a compose file is given.
    """
    for command in file.commands:
        for option, name in itertools.pairwise(command.words):
            if option not in VARIABLE_FILES:
                continue
            path = Path(file.path).parent / name
            for line in lines_of_env_file(path):
                match = SETS_INTERFACE.match(line)
                if match is not None:
                    where = f"{match[0]} of {path.name}"
                    yield LocalInterface(match[1], match[2], nodes, command.line, where)


def _is_plain_script(file: CommandFile) -> bool:
    """Is the file a script, so that the lines of its text are those of the file?"""
    return not file.path.endswith((".yaml", ".yml"))


def _node_count(file: CommandFile) -> int:
    """On how many nodes a file starts processes; 0 where it says nothing of them."""
    counts = [meeting.nodes for meeting in find_node_rendezvous(file)]
    counts.append(node_count_of_job(file) or 0)
    counts += [int(match[1]) for match in NODES_VARIABLE.finditer(file.text)]
    return max(counts)


class NodesTalkOverALocalInterface(CommandRule):
    code = "CMD041"
    fault = Fault.NODES_CANNOT_REACH_EACH_OTHER
    symptoms = ("several-gpus",)
    severity = "error"
    what = "network interfaces that are chosen for several nodes"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[LocalInterface]:
        """The places that the rule looks at: the network interfaces that are chosen for several nodes."""
        yield from _local_interface_settings(file)

    def findings(self) -> Iterator[Finding]:
        told = set()
        for setting in self.examined_places(self.subject):
            names = setting.interface.split(",")
            # NCCL takes the first of several that is there; `^` leaves out what it names.
            if not all(LOCAL.fullmatch(name) for name in names) or setting.interface in told:
                continue
            told.add(setting.interface)
            yield self.finding(
                f"{setting.nodes} nodes are set to communicate over {setting.interface} ({setting.variable}), which"
                " does not leave the machine: the first collective call hangs until a timeout",
                f"remove {setting.variable}, or set it to the interface of the network between the nodes (`ip -br"
                " addr` lists them; `^lo,docker0` excludes these two)",
                cases=[self.case_at(setting.line, setting.text)],
            )
