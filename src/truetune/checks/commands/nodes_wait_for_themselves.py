"""Each node of a job waits for the others at its own address.

## What it does
Reads the commands of a shell script or job that start processes on several nodes (`torchrun --nnodes`, `accelerate
launch --num_machines` with its configuration, `deepspeed`, and `srun python` with MASTER_ADDR), and the address at
which the nodes meet. localhost and 127.0.0.1 mean each node itself. So does `$(hostname)` if each node expands it: in
`srun bash -c '...'`, or in a script that is started on each node. In the body of a Slurm job it is the name of the
first node, which is right. Without an address, torchrun uses 127.0.0.1, whatever MASTER_ADDR is. The rule also reports
a multi-node launch in the body of a Slurm job without srun, because the body only runs on the first node. It does not
fire if the number of nodes or the address comes from outside the file, or for a command that only the first node runs.

## Why it is bad
Every node opens its own rendezvous and waits there, until RendezvousTimeoutError or a store timeout after 10 to 30
minutes. No process has started, so no message says which node is missing.

## Example
```bash
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gres=gpu:4
export MASTER_ADDR=localhost
srun torchrun --nnodes=2 --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=$MASTER_ADDR:29500 train.py
```

## Use instead
```bash
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gres=gpu:4
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun torchrun --nnodes=2 --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=$MASTER_ADDR:29500 train.py
```

## Fix safety
Safe: only the meeting point changes. Its port has to be open between the nodes.

## References
- pytorch/pytorch#116304, ymcui/Chinese-LLaMA-Alpaca-2#274, huggingface/accelerate#1719
- https://docs.pytorch.org/docs/stable/elastic/run.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.node_rendezvous import (
    LOOPBACK,
    OWN_NAME,
    STARTS_ELSEWHERE,
    NodeRendezvous,
    find_node_rendezvous,
    node_count_of_job,
)
from truetune.checks.rule import CommandRule
from truetune.parsing.shell_commands import ASSIGNMENT, CommandFile, last_option

ARGUMENT = re.compile(r"\$\{?[1-9@*]")
"""In a job that is given arguments: another file may start it on each node, with its number"""
FIRST_OF_SLURM = '$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'


class NodesWaitForThemselves(CommandRule):
    code = "CMD008"
    fault = Fault.NODES_CANNOT_REACH_EACH_OTHER
    severity = "error"
    what = "launches on several nodes"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[NodeRendezvous]:
        """The places that the rule looks at: the launches on several nodes."""
        yield from find_node_rendezvous(file)

    def findings(self) -> Iterator[Finding]:
        is_job = bool(self.subject.requests)
        for meeting in find_node_rendezvous(self.subject):
            if _starts_on_first_node_alone(self.subject, meeting):
                yield self._finding_on_first_node_launching_alone(meeting)
                continue
            where = _own_address_in_words(meeting, is_job=is_job)
            if not where:
                continue
            first = (
                FIRST_OF_SLURM
                if is_job
                else "the name of the first node, as the other nodes resolve it"
            )
            yield self.finding(
                (
                    f"{meeting.nodes} nodes are set to meet at {where}: each node waits for the others at its own"
                    " address"
                ),
                f"set {meeting.setting} to the first node: {first}",
                cases=[
                    *self._address_setting_cases(meeting),
                    self.case_of_command(meeting.command, meeting.command.text),
                ],
            )

    def _finding_on_first_node_launching_alone(self, meeting: NodeRendezvous) -> Finding:
        """The finding on a launch that only the first node of a job makes."""
        name = next(name for name in ("--nodes", "-N") if name in self.subject.requests)
        value, line = self.subject.requests[name]
        return self.finding(
            f"the job launches {meeting.nodes} nodes without srun: Slurm runs the body of a job only on the first"
            f" node, which waits for {meeting.nodes - 1} more",
            "put `srun --ntasks-per-node=1` before the launch, so that each node runs it",
            evidence=[
                "the other nodes are reserved and start nothing, until RendezvousTimeoutError"
            ],
            cases=[
                self.case_at(line, f"{name}={value}"),
                self.case_of_command(meeting.command, meeting.command.text[:300]),
            ],
        )

    def _address_setting_cases(self, meeting: NodeRendezvous) -> Iterator[Case]:
        """The lines that set a variable to the address, where there is one."""
        # Without the port: scripts set the address and add the port where it is used.
        host = meeting.address.rpartition(":")[0] or meeting.address
        for number, line in enumerate(self.subject.text.splitlines(), 1):
            match = ASSIGNMENT.fullmatch(line.strip())
            value = match[2].strip("\"'") if match is not None else ""
            if value and value in (host, meeting.address):
                yield self.case_at(number, line.strip())


def _starts_on_first_node_alone(file: CommandFile, meeting: NodeRendezvous) -> bool:
    """Does a Slurm job start a launch for several nodes in its body, so that only the first node
    runs it?
    """
    nodes = node_count_of_job(file)
    # A launch for more nodes than the job has may be one of several jobs that meet.
    if nodes is None or meeting.nodes > nodes or "--array" in file.requests:
        return False
    # Without an address nothing is known of how the nodes shall meet.
    if meeting.address in ("", "?"):
        return False
    words = meeting.command.words
    # DeepSpeed's launcher goes to the other nodes by itself; an elastic launch (1:4) need not wait for them.
    if "deepspeed" in words or ":" in (last_option(words, "--nnodes") or ""):
        return False
    code = [line for line in file.text.splitlines() if not line.lstrip().startswith("#")]
    return not any(STARTS_ELSEWHERE.search(line) or ARGUMENT.search(line) for line in code)


def _own_address_in_words(meeting: NodeRendezvous, *, is_job: bool) -> str:
    """The address by which each node means itself, in words; empty where it is another, or can't be
    known.
    """
    if LOOPBACK.fullmatch(meeting.address):
        return meeting.address
    if meeting.on_each_node and OWN_NAME.fullmatch(meeting.address):
        return "their own names (hostname, evaluated on each node)"
    # Outside of a job the launch may be that of one machine, where 127.0.0.1 is right.
    if is_job and not meeting.address and meeting.setting == "--rdzv-endpoint":
        return "127.0.0.1, torchrun's default address"
    return ""
