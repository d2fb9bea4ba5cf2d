"""Every node of a job, or every task, gets the same rank.

## What it does
Looks at what `srun` starts in a Slurm job: torchrun's `--node_rank`, accelerate's `--machine_rank`, DeepSpeed's
`--node_rank` with `--no_ssh`, and RANK for a script that srun starts in several tasks. It fires if the rank is
`$SLURM_NODEID`, `$SLURM_PROCID` or `$SLURM_LOCALID` as expanded by the batch script (directly, in double quotes, or
through a variable), or a plain number. It does not fire in single quotes, after a backslash, in a script that each node
runs, or if a rendezvous (`--rdzv_backend=c10d`) numbers the nodes itself.

## Why it is bad
The batch script runs on the first node, so its SLURM_NODEID is 0 for all nodes. Two nodes with 4 GPUs each start ranks
0 to 3 twice, and ranks 4 to 7 never start: all processes wait until a timeout, or the job's time limit.

## Example
```bash
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:4
srun torchrun --nnodes=2 --nproc_per_node=4 --node_rank=$SLURM_NODEID --master_addr=$HEAD train.py
```

## Use instead
```bash
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:4
export HEAD
srun bash -c 'torchrun --nnodes=2 --nproc_per_node=4 --node_rank=$SLURM_NODEID --master_addr=$HEAD train.py'
```

## Fix safety
Safe: each node gets its own rank. In single quotes, variables of the job must be exported.

## References
- slurm.schedmd.com/srun.html (output environment variables); pytorch.org/docs/stable/elastic/run.html
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.node_rendezvous import find_node_rendezvous
from truetune.checks.rank_variables_expanded_on_first_node_only import (
    RankReadOnce,
    find_launches_sharing_one_rank,
)
from truetune.checks.rule import CommandRule
from truetune.parsing.shell_commands import CommandFile


class NodeRankReadOnce(CommandRule):
    code = "CMD190"
    fault = Fault.PROCESSES_TRAIN_SEPARATELY
    symptoms = ("several-gpus",)
    severity = "error"
    stability = "preview"
    what = "launches on several nodes"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[object]:
        """The places that the rule looks at: the launches on several nodes."""
        yield from find_node_rendezvous(file)
        yield from find_launches_sharing_one_rank(file)

    def findings(self) -> Iterator[Finding]:
        for rank_read_once in find_launches_sharing_one_rank(self.subject):
            is_of_nodes = rank_read_once.setting.startswith("--")
            copies = f"{rank_read_once.copies} {'nodes' if is_of_nodes else 'tasks'}"
            lines = self.subject.text.splitlines()
            places = dict.fromkeys((rank_read_once.line, rank_read_once.command.line))
            yield self.finding(
                f"{_describe_why_copies_share_rank(rank_read_once)}, so all {copies} get the same rank: the other"
                " ranks never start, and all processes wait for them",
                _advise_own_rank_for_each_copy(rank_read_once),
                # As the file has them: quotes are what it is about.
                cases=[self.case_at(line, lines[line - 1].strip()[:300]) for line in places],
            )


def _describe_why_copies_share_rank(found: RankReadOnce) -> str:
    """What gives all copies the same number, as the beginning of a sentence."""
    if not found.variable:
        return f"srun starts the launch on every node with {found.setting} {found.value}"
    return f"${found.variable} ({found.setting}) is expanded by the batch script on the first node, where it is 0"


def _advise_own_rank_for_each_copy(found: RankReadOnce) -> str:
    """The edit that gives each copy its own number."""
    if not found.setting.startswith("--"):
        return (
            "set it in each task, in single quotes: srun bash -c 'export RANK=$SLURM_PROCID"
            " LOCAL_RANK=$SLURM_LOCALID; python SCRIPT'"
        )
    return (
        f"expand it on each node, in single quotes: srun bash -c '... {found.setting} $SLURM_NODEID ...' (export the"
        " job's variables); or with torchrun, use --rdzv_backend=c10d --rdzv_endpoint=FIRST_NODE:PORT instead"
    )
