"""Trainings that a job starts several times, none of which knows of the others; and their near misses."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

HEAD = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gpus-per-node=4\n"
FOUR = HEAD + "#SBATCH --ntasks-per-node=4\n"
TRAINER = "from transformers import Trainer\ntrainer = Trainer(model=m, train_dataset=d)\ntrainer.train()\n"
OWN = (
    "import torch\nfor batch in loader:\n    model(**batch).loss.backward()\n    opt.step()\n"
    "    opt.zero_grad()\n"
)
DDP = (
    "import os\nimport torch.distributed as dist\nworld = int(os.environ.get('WORLD_SIZE', 1))\n"
    "if world > 1:\n    dist.init_process_group('nccl')\n" + OWN
)
LOOP = (
    "for i in 0 1 2 3; do\n  CUDA_VISIBLE_DEVICES=$i python train.py --out runs/a{} > log$i.txt 2>&1 {}\n"
    "done\nwait\n"
)


def told(folder: Path, job: str, script: str, name: str = "job.sbatch") -> list[str]:
    """What the rule says of a job and its script."""
    (folder / name).write_text(job, encoding="utf-8")
    (folder / "train.py").write_text(script, encoding="utf-8")
    findings = lint([folder / name], select=["CMD135"]).findings
    return [f"{one.severity}: {one.message}" for one in findings]


@pytest.mark.parametrize(
    ("job", "script", "words"),
    [
        (FOUR + "srun python train.py\n", TRAINER, "4 times (#SBATCH --ntasks-per-node=4)"),
        (FOUR + "srun --cpu-bind=none python -u train.py --lr 1e-4\n", DDP, "4 times"),
        (HEAD + "srun --ntasks=4 --gpus-per-task=1 python3 train.py\n", TRAINER, "(--ntasks=4)"),
        (
            HEAD + "srun -n 2 bash -c 'cd /work && python train.py'\n",
            TRAINER,
            "2 times (--ntasks=2)",
        ),
        ("#!/bin/bash\n#SBATCH --ntasks=8\nsrun uv run train.py\n", TRAINER, "8 times"),
        ("#!/bin/bash\n#SBATCH -N 2\nsrun python train.py\n", DDP, "2 times (#SBATCH -N=2)"),
        (
            "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\nsrun python $SLURM_SUBMIT_DIR/train.py\n",
            TRAINER,
            "8 times",
        ),
        ("mpirun -np 4 python train.py\n", DDP, "mpirun starts train.py 4 times"),
        (LOOP.format("", "&"), TRAINER, "a loop starts train.py 4 times"),
        (
            "for g in {0..3}; do CUDA_VISIBLE_DEVICES=$g nohup python train.py > $g.log 2>&1 & done\n",
            TRAINER,
            "a loop starts train.py 4 times",
        ),
        (
            "#!/bin/bash\n#SBATCH --gpus=a100:4\n#SBATCH --gpus-per-task=1\nrun='python train.py'\nsrun $run\n",
            TRAINER,
            "4 times (#SBATCH --gpus=a100:4 --gpus-per-task=1)",
        ),
        (FOUR + "srun python train.py\n", OWN, "warning: srun starts"),
        (FOUR + 'echo "tasks $SLURM_NTASKS"\nsrun python train.py\n', TRAINER, "4 times"),
    ],
)
def test_trainings_that_know_nothing_of_each_other(
    tmp_path: Path, job: str, script: str, words: str
) -> None:
    found = told(tmp_path, job, script)
    assert len(found) == 1
    assert words in found[0]


@pytest.mark.parametrize(
    ("job", "script"),
    [
        (FOUR + "srun --ntasks=1 python train.py\n", TRAINER),
        (FOUR + "python train.py\n", TRAINER),
        (HEAD + "srun python train.py\n", TRAINER),
        (FOUR + "srun bash -c 'RANK=$SLURM_PROCID python train.py'\n", TRAINER),
        (FOUR + "srun bash -c 'python train.py --seed $SLURM_PROCID'\n", TRAINER),
        (FOUR + "export WORLD_SIZE=4\nsrun ./run.sh\n", TRAINER),
        (FOUR + "srun torchrun --nproc-per-node 1 train.py\n", TRAINER),
        (FOUR + "srun python -m torch.distributed.run train.py\n", TRAINER),
        (FOUR + "srun python train.py\n", "import os\nrank = os.environ['SLURM_PROCID']\n" + DDP),
        (FOUR + "srun python train.py\n", "import os\nrank = int(os.environ['RANK'])\n" + OWN),
        (FOUR + "srun python train.py\n", "import lightning as L\n" + TRAINER),
        (FOUR + "srun python train.py\n", DDP.replace("if world > 1:\n    ", "")),
        (FOUR + "srun python train.py\n", "import json\nprint(json.dumps({}))\n"),
        (FOUR + "srun python other.py\n", TRAINER),
        ("#!/bin/bash\n#SBATCH --ntasks=$N\nsrun python train.py\n", TRAINER),
        ("mpirun -np 4 python train.py\n", TRAINER),
        (LOOP.format("/$i", "&"), TRAINER),
        (LOOP.format(" --seed $i", "&"), TRAINER),
        (LOOP.format("", ""), TRAINER),
        (LOOP.format("", "&").replace("CUDA", "RANK=$i WORLD_SIZE=4 CUDA"), DDP),
    ],
)
def test_jobs_that_start_one_training(tmp_path: Path, job: str, script: str) -> None:
    assert told(tmp_path, job, script) == []


def test_a_script_of_the_project_that_joins_by_itself(tmp_path: Path) -> None:
    (tmp_path / "ranks.py").write_text(
        "import os\nos.environ['RANK'] = os.environ['SLURM_PROCID']\n"
    )
    assert told(tmp_path, FOUR + "srun python train.py\n", "import ranks\n" + TRAINER) == []


def test_a_script_beside_the_job(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("cd work\npython train.py\n")
    assert len(told(tmp_path, FOUR + "srun bash run.sh\n", TRAINER)) == 1
    (tmp_path / "run.sh").write_text("export RANK=$SLURM_PROCID\npython train.py\n")
    assert told(tmp_path, FOUR + "srun bash run.sh\n", TRAINER) == []
