"""Launches of a Slurm job whose nodes or tasks are all told one number, and those that are told their own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from truetune.checks.rank_variables_expanded_on_first_node_only import (
    find_launches_sharing_one_rank,
)
from truetune.parsing.shell_commands import parse_command_file

HEAD = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gres=gpu:4\n"
LAUNCH = "torchrun --nnodes=2 --nproc_per_node=4 --master_addr=$HEAD "
READ_ONCE = {
    "plain": "srun LAUNCH --node_rank=$SLURM_NODEID train.py\n",
    "braces and the task's number": "srun LAUNCH --node_rank ${SLURM_PROCID} train.py\n",
    "a variable": "export NODE_RANK=$SLURM_NODEID\nsrun LAUNCH --node_rank $NODE_RANK train.py\n",
    "double quotes": 'srun bash -c "LAUNCH --node_rank=$SLURM_NODEID train.py"\n',
    "double quotes over lines": 'srun --label bash -c "\n'
    + "  source x\n"
    + "  LAUNCH \\\n"
    + " --node_rank=$SLURM_NODEID train.py\n"
    + '"\n',
    "a variable in double quotes": 'NODE_RANK=$SLURM_NODEID\nsrun bash -c "LAUNCH --node_rank=$NODE_RANK train.py"\n',
    "a variable of the job in single quotes": "export NODE_RANK=$SLURM_NODEID\n"
    + "srun bash -c 'LAUNCH --node_rank=$NODE_RANK train.py'\n",
    "accelerate": "srun accelerate launch --num_machines 2 --num_processes"
    + " 8 --machine_rank $SLURM_NODEID --main_process_ip $HEAD train.py\n",
    "a command in a variable": 'LAUNCH="LAUNCH --node_rank=$SLURM_NODEID"\nsrun $LAUNCH train.py\n',
    "a plain number": "srun python -m torch.distributed.run --nnodes 2 --node_rank 0 --nproc-per-node 4 train.py\n",
    "a word in quotes": 'srun LAUNCH --node_rank="$SLURM_NODEID" train.py\n',
    "an array": 'ARGS=(--nnodes=2 --node_rank=$SLURM_NODEID)\nsrun torchrun "${ARGS[@]}" train.py\n',
}
READ_BY_EACH = {
    "single quotes": "srun bash -c 'LAUNCH --node_rank=$SLURM_NODEID train.py'\n",
    "single quotes over lines": "srun bash -c '\n source x\n LAUNCH \\\n --node_rank=$SLURM_NODEID train.py\n'\n",
    "escaped": 'srun bash -c "LAUNCH --node_rank=\\$SLURM_NODEID train.py"\n',
    "a rendezvous that numbers": "srun torchrun --nnodes=2 --nproc_per_node=4"
    + " --rdzv_backend=c10d --rdzv_endpoint=$HEAD --node_rank=$SLURM_NODEID train.py\n",
    "set in single quotes": "srun bash -c 'export NODE_RANK=$SLURM_NODEID; LAUNCH --node_rank=$NODE_RANK train.py'\n",
    "set in single quotes over lines": "srun bash -lc '\n"
    + "export NODE_RANK=$SLURM_NODEID\n"
    + "LAUNCH --node_rank=$NODE_RANK train.py\n"
    + "'\n",
    "a script of its own": "srun bash run.sh\n",
    "a loop that names each node": "for i in 0 1; do\n srun -N1 -w n$i LAUNCH --node_rank=$i train.py &\ndone\n",
    "one task on each of two nodes": "for i in 0 1; do\n srun -n1 -r$i LAUNCH --node_rank=$i train.py &\ndone\n",
    "one task on a named node": "srun --ntasks=1 --relative=1 LAUNCH --node_rank=1 train.py &\n",
    "one task": "srun -n1 LAUNCH --node_rank=0 train.py\n",
    "a comment": "# it's one: --node_rank=$SLURM_NODEID\nsrun bash -c 'LAUNCH --node_rank=$SLURM_NODEID train.py'\n",
    "a here-document": "cat > run.sh <<'EOF'\nLAUNCH --node_rank=$SLURM_NODEID train.py\nEOF\nsrun bash run.sh\n",
    "a command in single quotes": "CMD='LAUNCH --node_rank=$SLURM_NODEID train.py'\nsrun bash -c \"$CMD\"\n",
    "a number that is printed": 'echo "node $SLURM_NODEID"\n'
    + "srun bash -c 'LAUNCH --node_rank=$SLURM_NODEID train.py'\n",
    "quotes of two kinds": "srun bash -c \"MASTER=$HEAD; \"'LAUNCH --node_rank=$SLURM_NODEID train.py'\n",
}


def settings(folder: Path, text: str) -> list[tuple[str, int]]:
    """The options that all nodes are told alike, and for how many."""
    file = parse_command_file(re.sub(r"LAUNCH (?=--|\\)", LAUNCH, text), str(folder / "job.sbatch"))
    return [(one.setting, one.copies) for one in find_launches_sharing_one_rank(file)]


@pytest.mark.parametrize("text", READ_ONCE.values(), ids=READ_ONCE)
def test_numbers_that_the_job_reads_once_are_found(tmp_path: Path, text: str) -> None:
    (found,) = settings(tmp_path, HEAD + text)
    assert found in (("--node-rank", 2), ("--machine-rank", 2))


@pytest.mark.parametrize("text", READ_BY_EACH.values(), ids=READ_BY_EACH)
def test_numbers_that_each_node_reads_are_left_alone(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.sh").write_text(f"{LAUNCH} --node_rank=$SLURM_NODEID train.py\n")
    assert settings(tmp_path, HEAD + text) == []


@pytest.mark.parametrize(
    ("begin", "end", "script", "count"),
    [
        ("export RANK=$SLURM_PROCID\nsrun", "", "import torch\n", 1),
        ("RANK=$SLURM_PROCID srun", "", "import torch\n", 1),
        ("srun --export=ALL,RANK=$SLURM_PROCID", "", "import torch\n", 1),
        ("srun bash -c 'export RANK=$SLURM_PROCID;", "'", "import torch\n", 0),
        ("export RANK=$SLURM_PROCID\nsrun", "", "import os\nos.environ['SLURM_PROCID']\n", 0),
        ("export RANK=$SLURM_PROCID\nsrun -n 1", "", "import torch\n", 0),
    ],
)
def test_ranks_of_tasks_without_a_launcher(
    tmp_path: Path, begin: str, end: str, script: str, count: int
) -> None:
    (tmp_path / "train.py").write_text(script)
    assert len(settings(tmp_path, f"{HEAD}{begin} python train.py{end}\n")) == count


def test_a_job_of_one_node_is_left_alone(tmp_path: Path) -> None:
    text = (
        "#!/bin/bash\n#SBATCH --nodes=1\nsrun torchrun --nnodes=1 --node_rank=$SLURM_NODEID t.py\n"
    )
    assert settings(tmp_path, text) == []
