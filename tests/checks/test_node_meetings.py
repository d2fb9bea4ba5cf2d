"""Nodes that wait for one another at their own address, and jobs that are near that."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

JOB = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gres=gpu:4\n"
RUN = "torchrun --nnodes=$SLURM_NNODES --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint={} train.py\n"
PLAIN = "export MASTER_ADDR={}\nexport MASTER_PORT=29500\nsrun python train.py\n"
CONFIG = "distributed_type: FSDP\nnum_machines: {}\nmain_process_ip: {}\nnum_processes: 8\n"
EACH = "torchrun --nnodes 2 --node_rank $1 --nproc_per_node 4 --master_addr {} train.py\n"


def count(folder: Path, text: str, name: str = "job.sbatch") -> int:
    """How often the rule names a fault in a file."""
    (folder / name).write_text(text, encoding="utf-8")
    (folder / "own.yaml").write_text(CONFIG.format(2, "127.0.0.1"), encoding="utf-8")
    (folder / "one.yaml").write_text(CONFIG.format(1, "127.0.0.1"), encoding="utf-8")
    (folder / "two.yaml").write_text(CONFIG.format(2, "10.0.0.5"), encoding="utf-8")
    (folder / "hosts").write_text("a slots=4\nb slots=4\n", encoding="utf-8")
    return len(lint([folder / name], select=["CMD008"]).findings)


@pytest.mark.parametrize(
    "text",
    [
        "export MASTER_ADDR=localhost\nsrun " + RUN.format("$MASTER_ADDR:29500"),
        "srun " + RUN.format("127.0.0.1:29500"),
        "ADDR=127.0.0.1\nEND=$ADDR:29500\nsrun " + RUN.format("$END"),
        f"srun bash -c '{RUN.format('$(hostname):29500').strip()}'\n",
        f"srun bash -c '{RUN.format('$SLURMD_NODENAME:29500').strip()}'\n",
        f'srun bash -c "{RUN.format(chr(92) + "$(hostname -i):29500").strip()}"\n',
        f'LAUNCH="{RUN.format("localhost:29500").replace("train.py", "").strip()}"\nsrun $LAUNCH train.py\n',
        f'CMD="{RUN.format("localhost:29500").strip()}"\nsrun bash -c "$CMD"\n',
        "export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)\n"
        "srun torchrun --nnodes 2 --node_rank $SLURM_NODEID --nproc_per_node 4 train.py\n",
        f"srun bash -c '\nexport MASTER_ADDR=$(hostname)\n{RUN.format('$MASTER_ADDR:29500')}'\n",
        "srun accelerate launch --num_machines 2 --num_processes 8 --main_process_ip localhost train.py\n",
        "srun accelerate launch --config_file own.yaml --machine_rank $SLURM_NODEID train.py\n",
        "deepspeed --hostfile hosts --master_addr 127.0.0.1 train.py\n",
    ],
)
def test_nodes_that_wait_for_themselves(tmp_path: Path, text: str) -> None:
    assert count(tmp_path, JOB + text) == 1


@pytest.mark.parametrize(
    "text",
    [
        JOB.replace("nodes=2", "nodes=1") + "srun " + RUN.format("localhost:29500"),
        JOB + "export MASTER_ADDR=$(hostname)\nsrun " + RUN.format("$MASTER_ADDR:29500"),
        JOB + f'srun bash -c "{RUN.format("$(hostname):29500").strip()}"\n',
        JOB
        + f"export MASTER_ADDR=$(hostname)\nsrun bash -c '\necho start\n'\nsrun {RUN.format('$MASTER_ADDR:29500')}",
        JOB
        + "MASTER_ADDR=$(scontrol show hostnames | head -n 1)\nsrun "
        + RUN.format("$MASTER_ADDR:1"),
        JOB
        + "export MASTER_ADDR=${MASTER_ADDR:-localhost}\nsrun "
        + RUN.format("$MASTER_ADDR:29500"),
        JOB + 'if [ -z "$A" ]; then\n  A=localhost\nfi\nsrun ' + RUN.format("$A:29500"),
        JOB + 'A=localhost\n[ "$SLURM_NNODES" -gt 1 ] && A=gpu01\nsrun ' + RUN.format("$A:29500"),
        JOB + "srun torchrun --standalone --nnodes=1 --nproc_per_node=4 train.py\n",
        JOB + "srun torchrun --nproc_per_node=4 train.py\n",
        JOB + "srun accelerate launch --config_file one.yaml train.py\n",
        JOB + "srun accelerate launch --config_file two.yaml train.py\n",
        JOB + "deepspeed --hostfile hosts train.py\n",
        JOB + "echo 'srun " + RUN.format("localhost:1").strip() + "'\n",
        JOB + "# srun " + RUN.format("localhost:29500"),
        "torchrun --nnodes 2 --node_rank 0 --master_addr localhost --nproc_per_node 1 train.py &\n"
        "torchrun --nnodes 2 --node_rank 1 --master_addr localhost --nproc_per_node 1 train.py\n",
        EACH.format("$MASTER_ADDR"),
        EACH.format("$2"),
        "torchrun --nnodes=$N --master_addr localhost train.py\n",
    ],
)
def test_nodes_that_meet_at_the_first_or_elsewhere(tmp_path: Path, text: str) -> None:
    assert count(tmp_path, text) == 0


@pytest.mark.parametrize(
    ("address", "found"), [("localhost", 1), ("$(hostname)", 1), ("$HOSTNAME", 1), ("gpu01", 0)]
)
def test_a_script_that_is_started_on_each_node(tmp_path: Path, address: str, found: int) -> None:
    assert count(tmp_path, EACH.format(address), "node.sh") == found


@pytest.mark.parametrize(
    ("address", "script", "found"),
    [
        ("localhost", "dist.init_process_group('nccl')", 1),
        ("$(hostname)", "dist.init_process_group('nccl')", 0),
        ("localhost", "os.environ['MASTER_ADDR'] = first_of(os.environ['SLURM_NODELIST'])", 0),
        ("localhost", "import lightning", 0),
        ("localhost", None, 0),
    ],
)
def test_scripts_that_slurm_starts(
    tmp_path: Path, address: str, script: str | None, found: int
) -> None:
    if script is not None:
        (tmp_path / "train.py").write_text(script, encoding="utf-8")
    assert count(tmp_path, JOB + PLAIN.format(address)) == found


def test_the_line_that_sets_the_address_is_shown(tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text(
        JOB + "export MASTER_ADDR=localhost\nsrun " + RUN.format("$MASTER_ADDR:29500"),
        encoding="utf-8",
    )
    (finding,) = lint([tmp_path / "job.sh"], select=["CMD008"]).findings
    assert [case.line for case in finding.cases] == [4, 5]


INTERFACE = JOB + "export NCCL_SOCKET_IFNAME={}\nsrun " + RUN.format("$HEAD:29500")
COMPOSE = """\
services:
  train:
    image: some/image
    network_mode: host
    environment: {{NNODES: "{nodes}", NCCL_SOCKET_IFNAME: {interface}}}
    command: llamafactory-cli train sft.yaml
"""


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("job.sbatch", INTERFACE.format("lo"), 1),
        ("job.sbatch", INTERFACE.format('"docker0"'), 1),
        ("job.sbatch", INTERFACE.format("=lo"), 1),
        ("job.sbatch", INTERFACE.format("eth0"), 0),
        ("job.sbatch", INTERFACE.format("^lo,docker0"), 0),
        ("job.sbatch", INTERFACE.format("ib0,lo"), 0),
        ("job.sbatch", INTERFACE.format("$IFACE"), 0),
        ("job.sbatch", INTERFACE.format("lo").replace("export NCCL", "# export NCCL"), 0),
        (
            "job.sbatch",
            INTERFACE.format("lo").replace("nodes=2", "nodes=1").replace("$SLURM_NNODES", "1"),
            0,
        ),
        ("node.sh", "export GLOO_SOCKET_IFNAME=lo\n" + EACH.format("10.0.0.5"), 1),
        ("compose.yaml", COMPOSE.format(nodes=2, interface="docker0"), 1),
        ("compose.yaml", COMPOSE.format(nodes=1, interface="docker0"), 0),
        ("compose.yaml", COMPOSE.format(nodes=2, interface="enp65s0f0"), 0),
    ],
)
def test_interfaces_that_end_at_the_machine(
    tmp_path: Path, name: str, text: str, found: int
) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert len(lint([tmp_path / name], select=["CMD041"]).findings) == found


@pytest.mark.parametrize(("address", "found"), [("127.0.0.1", 1), ("10.0.0.5", 0)])
def test_configurations_that_each_machine_is_given(
    tmp_path: Path, address: str, found: int
) -> None:
    for rank in (0, 1):
        config = CONFIG.format(2, address) + f"machine_rank: {rank}\n"
        (tmp_path / f"node{rank}.yaml").write_text(config, encoding="utf-8")
    (tmp_path / "start.sh").write_text(
        'accelerate launch --config_file "$1" train.py\n', encoding="utf-8"
    )
    assert len(lint([tmp_path / "start.sh"], select=["CMD008"]).findings) == found


FIRST = "ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (FIRST + RUN.format("$ADDR:29500"), 1),
        (FIRST + "# without srun\n" + RUN.format("$ADDR:29500"), 1),
        (FIRST + "torchrun --nnodes 2 --node_rank $SLURM_NODEID --master_addr $ADDR train.py\n", 1),
        (
            FIRST + "python -m torch.distributed.run --nnodes=2 --rdzv_endpoint=$ADDR:1 train.py\n",
            1,
        ),
        (
            FIRST
            + "accelerate launch --num_machines 2 --num_processes 8 --main_process_ip $ADDR t.py\n",
            1,
        ),
        (FIRST + "NODES=2\ntorchrun --nnodes=$NODES --rdzv_endpoint=$ADDR:29500 train.py\n", 1),
        (FIRST + "srun " + RUN.format("$ADDR:29500"), 0),
        (FIRST + f"srun --ntasks=2 bash -c '{RUN.format('$ADDR:29500').strip()}'\n", 0),
        (
            FIRST
            + "for n in $HOSTS; do ssh $n torchrun --nnodes=2 --rdzv_endpoint=$ADDR:1 t.py & done\n",
            0,
        ),
        (FIRST + f'LAUNCH="{RUN.format("$ADDR:29500").strip()}"\nsrun bash -c "$LAUNCH"\n', 0),
        (FIRST + "torchrun --nnodes=1:2 --rdzv_endpoint=$ADDR:29500 train.py\n", 0),
        (FIRST + "torchrun --nnodes=4 --rdzv_endpoint=10.0.0.5:29500 train.py\n", 0),
        (FIRST + "torchrun --nnodes=2 --node_rank $1 --master_addr 10.0.0.5 train.py\n", 0),
        ("deepspeed --hostfile hosts --master_addr 10.0.0.5 train.py\n", 0),
        ("torchrun --standalone --nproc_per_node=4 train.py\n", 0),
    ],
)
def test_launches_that_only_the_first_node_makes(tmp_path: Path, text: str, found: int) -> None:
    assert count(tmp_path, JOB + text) == found


def test_a_launch_on_a_machine_without_slurm(tmp_path: Path) -> None:
    text = "torchrun --nnodes=2 --node_rank $RANK --master_addr 10.0.0.5 train.py\n"
    assert count(tmp_path, "#!/bin/bash\n" + text) == 0
