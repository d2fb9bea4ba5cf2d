"""Devices of Lightning beside the tasks that a Slurm job starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

JOB = "#!/bin/bash\n#SBATCH --nodes=1\n{}#SBATCH --gres=gpu:4\n{}\n"
ONE, FOUR = "#SBATCH --ntasks-per-node=1\n", "#SBATCH --ntasks-per-node=4\n"
TRAINER = 'import lightning as L\nL.Trainer(devices=4, strategy="ddp").fit(m, d)\n'
OLDER = "from pytorch_lightning import Trainer\nTrainer(gpus=4)\nTrainer(devices=4, num_nodes=1)\n"
FABRIC = "from lightning.fabric import Fabric\nfabric = Fabric(devices=4)\n"
OWN = (
    "import lightning as L\nfrom lightning.fabric.plugins.environments import LightningEnvironment\n"
    "L.Trainer(devices=4, plugins=[LightningEnvironment()])\n"
)
OTHER = "from transformers import Trainer\nTrainer(devices=4)\n"


def messages(folder: Path, job: str, script: str) -> list[str]:
    """What the rule says of a job and its script."""
    (folder / "job.sbatch").write_text(job)
    (folder / "train.py").write_text(script)
    return [one.message for one in lint([folder / "job.sbatch"], select=["CMD097"]).findings]


@pytest.mark.parametrize(
    ("tasks", "command", "script"),
    [
        (ONE, "srun python train.py", TRAINER),
        ("", "srun python train.py", TRAINER),
        (ONE, "python train.py", OLDER),
        (FOUR, "python -u train.py", FABRIC),
        ("#SBATCH --ntasks=2\n", "srun python3 train.py", TRAINER),
        (ONE, "srun python main.py fit --trainer.devices=4", "x = 1\n"),
        (FOUR, "srun --ntasks-per-node=1 python train.py", TRAINER),
    ],
)
def test_devices_that_have_no_task(tmp_path: Path, tasks: str, command: str, script: str) -> None:
    found = messages(tmp_path, JOB.format(tasks, command), script)
    assert len(found) == 1
    assert "Lightning expects 4 processes" in found[0]


@pytest.mark.parametrize(
    ("tasks", "command", "script"),
    [
        (FOUR, "srun python train.py", TRAINER),
        ("#SBATCH --ntasks=4\n", "srun python train.py", FABRIC),
        ("", "python train.py", TRAINER),
        (ONE, "srun torchrun --nproc_per_node 4 train.py", TRAINER),
        (ONE, "srun python train.py", OWN),
        (ONE, "srun python train.py", OTHER),
        (ONE, "srun python train.py", TRAINER.replace("devices=4", 'devices="auto"')),
        (ONE, "srun python train.py", TRAINER.replace("devices=4", "devices=1")),
        ("#SBATCH --ntasks-per-node=$N\n", "srun python train.py", TRAINER),
    ],
)
def test_devices_with_a_task_each(tmp_path: Path, tasks: str, command: str, script: str) -> None:
    assert messages(tmp_path, JOB.format(tasks, command), script) == []
