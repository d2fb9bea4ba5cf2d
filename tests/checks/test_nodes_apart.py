"""Launches of one job that know nothing of each other, and those that meet."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

JOB = "#!/bin/bash\n#SBATCH --nodes={}\n#SBATCH --ntasks-per-node={}\n#SBATCH --gres=gpu:4\n"


def messages(folder: Path, text: str) -> list[str]:
    """What the rule says of a job."""
    (folder / "job.sbatch").write_text(text)
    return [one.message for one in lint([folder / "job.sbatch"], select=["CMD058"]).findings]


@pytest.mark.parametrize(
    ("nodes", "tasks", "command", "runs"),
    [
        (2, 1, "srun torchrun --standalone --nproc_per_node 4 train.py", 2),
        (4, 1, "srun torchrun --nproc_per_node=4 train.py", 4),
        (2, 1, "srun torchrun --nnodes=1 --nproc_per_node=4 train.py", 2),
        (1, 4, "srun torchrun --standalone --nproc_per_node 1 train.py", 4),
        (2, 4, "srun torchrun --nproc_per_node 4 train.py", 8),
        (2, 1, "srun python -m torch.distributed.run --standalone --nproc_per_node 4 train.py", 2),
    ],
)
def test_launches_that_do_not_meet(
    tmp_path: Path, nodes: int, tasks: int, command: str, runs: int
) -> None:
    found = messages(tmp_path, JOB.format(nodes, tasks) + command + "\n")
    assert len(found) == 1
    assert f"{runs} separate runs train on all rows" in found[0]


@pytest.mark.parametrize(
    ("nodes", "tasks", "command"),
    [
        (2, 1, "srun torchrun --nnodes 2 --rdzv-backend c10d --rdzv-endpoint $H:29500 train.py"),
        (2, 1, "srun torchrun --nnodes $SLURM_NNODES --nproc_per_node 4 train.py"),
        (2, 1, "srun torchrun --node_rank $SLURM_NODEID --master_addr $H train.py"),
        (1, 1, "srun torchrun --standalone --nproc_per_node 4 train.py"),
        (2, 1, "srun --nodes=1 torchrun --standalone --nproc_per_node 4 train.py"),
        (2, 1, "torchrun --standalone --nproc_per_node 4 train.py"),
        (2, 4, "srun python train.py"),
    ],
)
def test_launches_that_meet_or_are_one(
    tmp_path: Path, nodes: int, tasks: int, command: str
) -> None:
    assert messages(tmp_path, JOB.format(nodes, tasks) + command + "\n") == []
