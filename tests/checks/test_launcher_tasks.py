"""Launchers that each task of a job starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

JOB = "#!/bin/bash\n#SBATCH --nodes={}\n#SBATCH --ntasks-per-node={}\n#SBATCH --gres=gpu:4\n"
TORCHRUN = "torchrun --nnodes=$SLURM_NNODES --nproc_per_node=4 --rdzv_backend c10d --rdzv_endpoint $H:29517 a.py"
HF = (
    'export LAUNCHER="accelerate launch --num_processes 8 --num_machines 2 --machine_rank \\$SLURM_PROCID"\n'
    'srun bash -c "$LAUNCHER train.py"'
)


def findings(folder: Path, text: str) -> list[str]:
    """What the rule says of a job."""
    (folder / "job.sbatch").write_text(text, encoding="utf-8")
    return [one.message for one in lint([folder / "job.sbatch"], select=["CMD107"]).findings]


@pytest.mark.parametrize(
    ("nodes", "tasks", "command"),
    [
        (2, 4, f"srun --label bash -c '{TORCHRUN}'"),
        (2, 2, f"srun bash -c '\n  source env.sh\n  # all nodes\n  {TORCHRUN}\n'"),
        (2, 4, HF),
        (1, 4, "srun sh -c 'torchrun --standalone --nproc_per_node=gpu train.py'"),
        (2, 8, "srun bash -c 'deepspeed --num_nodes 2 --num_gpus 4 --master_port 6000 train.py'"),
        (2, 1, f"srun --nodes=2 --ntasks=8 bash -c '{TORCHRUN}'"),
        (2, 1, f"srun -N2 -n8 bash -c '{TORCHRUN}'"),
        (2, 4, "srun bash run.sh"),
        (2, 4, "srun --kill-on-bad-exit=1 ./run.sh train.py"),
        (2, 1, f"mpirun -np 8 -npernode 4 {TORCHRUN}"),
        (2, 1, f"mpirun --map-by ppr:4:node bash -c '{TORCHRUN}'"),
    ],
)
def test_launcher_of_each_task(tmp_path: Path, nodes: int, tasks: int, command: str) -> None:
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\nsource env.sh\n{TORCHRUN} $@\n")
    found = findings(tmp_path, JOB.format(nodes, tasks) + command + "\n")
    assert len(found) == 1
    assert "EADDRINUSE" in found[0]


def test_tasks_of_a_job_that_says_no_tasks_per_node(tmp_path: Path) -> None:
    job = "#SBATCH --nodes=2\n#SBATCH --ntasks=8\n#SBATCH --gpus-per-node=4\n"
    assert findings(tmp_path, f"{job}srun bash -c '{TORCHRUN}'\n")


@pytest.mark.parametrize(
    ("nodes", "tasks", "command"),
    [
        (2, 1, f"srun --label bash -c '{TORCHRUN}'"),
        (2, 4, f"srun --ntasks-per-node=1 bash -c '{TORCHRUN}'"),
        (2, 4, f"srun --nodes=2 --ntasks=2 bash -c '{TORCHRUN}'"),
        (2, 4, f"srun --ntasks=$SLURM_NNODES bash -c '{TORCHRUN}'"),
        (2, 4, TORCHRUN),
        (2, 4, "srun bash -c 'python train.py'"),
        (2, 4, f"srun bash -c 'if [ $SLURM_LOCALID -eq 0 ]; then {TORCHRUN}; fi'"),
        (1, 4, "srun bash -c 'CUDA_VISIBLE_DEVICES=$SLURM_LOCALID torchrun --standalone a.py'"),
        (
            2,
            2,
            "srun --gpus-per-task=2 bash -c 'torchrun --nnodes $SLURM_NTASKS --nproc_per_node 2 a.py'",
        ),
        (2, "$TASKS", f"srun bash -c '{TORCHRUN}'"),
        (2, 4, "srun bash run.sh"),
        (2, 4, f"pdsh -w $HOSTS '{TORCHRUN}'"),
        (2, 1, f"mpirun -np 2 --map-by ppr:1:node {TORCHRUN}"),
        (2, 4, f"mpirun -np 2 -H a:1,b:1 {TORCHRUN}"),
        (2, 4, "srun bash -c 'echo use torchrun --nproc_per_node 4 here'"),
    ],
)
def test_launcher_of_each_node(tmp_path: Path, nodes: int, tasks: int | str, command: str) -> None:
    guard = "if [[ $SLURM_LOCALID != 0 ]]; then exit 0; fi\n"
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\n{guard}{TORCHRUN} $@\n")
    assert findings(tmp_path, JOB.format(nodes, tasks) + command + "\n") == []


def test_plain_command_with_more_processes_than_gpus_is_said_once(tmp_path: Path) -> None:
    text = JOB.format(2, 4) + f"srun {TORCHRUN}\n"
    (tmp_path / "job.sbatch").write_text(text, encoding="utf-8")
    found = lint([tmp_path / "job.sbatch"]).findings
    assert len(found) == 1
    assert "ntasks-per-node=1" in found[0].remedy
