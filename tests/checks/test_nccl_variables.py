"""Variables that switch a transport of NCCL off: in jobs, files of variables, images and scripts."""

# ruff: noqa: E501 - one case a line
from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.check_paths import check_paths
from truetune.settings.run_spec import RunSpec

JOB = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\n{}\nsrun torchrun --nnodes 2 --nproc-per-node 8 t.py\n"
COMPOSE = "services:\n  train:\n    image: pytorch\n    {}\n    command: torchrun --nproc-per-node 4 t.py\n"
LIGHTNING = "import os\nimport lightning as L\n{}\nL.Trainer(num_nodes=4, devices=8).fit(model)\n"


def found(folder: Path, files: dict[str, str]) -> list[tuple[str, str]]:
    """Severity and place of each finding of the two rules."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    findings = check_paths([folder], RunSpec()).findings
    chosen = [one for one in findings if one.code in ("CMD045", "SRC161")]
    return [
        (one.severity, f"{Path(one.cases[0].file or '').name}:{one.cases[0].line}")
        for one in chosen
    ]


@pytest.mark.parametrize(
    ("files", "severity", "place"),
    [
        pytest.param({"j.sbatch": JOB.format("export NCCL_IB_DISABLE=1")}, "warning", "j.sbatch:4", id="job"),
        pytest.param({"j.sbatch": JOB.format("source env/n.sh"), "env/n.sh": "export NCCL_IB_DISABLE=1\n"}, "warning", "n.sh:1", id="sourced"),
        pytest.param({"j.sbatch": JOB.format(". ./nccl_env"), "nccl_env": "export NCCL_IB_DISABLE=1\n"}, "warning", "nccl_env:1", id="sourced, no ending"),
        pytest.param({"j.sbatch": JOB.format("export NCCL_NET=Socket")}, "warning", "j.sbatch:4", id="the network by name"),
        pytest.param({"r.sh": "NCCL_IB_DISABLE=1 torchrun --nnodes=4 --nproc-per-node 8 t.py\n"}, "warning", "r.sh:1", id="for one command"),
        pytest.param({"r.sh": "mpirun -np 32 -H a:8,b:8 -x NCCL_IB_DISABLE=1 python t.py\n"}, "warning", "r.sh:1", id="mpirun"),
        pytest.param({"r.sh": "export NCCL_IB_DISABLE=1\ntorchrun --nnodes $NODES --nproc-per-node 8 t.py\n"}, "info", "r.sh:1", id="nodes not known"),
        pytest.param({"docker-compose.yml": COMPOSE.format("environment: {NCCL_SHM_DISABLE: 1}")}, "warning", "docker-compose.yml:2", id="compose"),
        pytest.param({"docker-compose.yml": COMPOSE.format("env_file: gpu.env"), "gpu.env": "NCCL_SHM_DISABLE=1\n"}, "warning", "gpu.env:1", id="file of variables"),
        pytest.param({"Dockerfile": 'FROM p\nENV NCCL_P2P_DISABLE 1\nCMD ["torchrun", "--nproc-per-node", "8", "t.py"]\n'}, "info", "Dockerfile:2", id="image"),
        pytest.param({"t.py": LIGHTNING.format("os.environ['NCCL_IB_DISABLE'] = '1'")}, "warning", "t.py:3", id="os.environ"),
        pytest.param({"t.py": LIGHTNING.format("OFF = 1\nos.environ.update({'NCCL_IB_DISABLE': str(OFF)})").replace("str(OFF)", "'1'")}, "warning", "t.py:4", id="update"),
        pytest.param({"t.py": LIGHTNING.format("os.environ.setdefault('NCCL_IB_DISABLE', '1')")}, "warning", "t.py:3", id="setdefault"),
        pytest.param({"t.py": "import os, subprocess\nsubprocess.run(['torchrun', 't.py'], env=dict(os.environ, NCCL_P2P_DISABLE='1'))\n"}, "info", "t.py:2", id="of another process"),
    ],
)  # fmt: skip
def test_a_transport_is_switched_off(
    tmp_path: Path, files: dict[str, str], severity: str, place: str
) -> None:
    assert found(tmp_path, files) == [(severity, place)]


@pytest.mark.parametrize(
    "files",
    [
        pytest.param({"r.sh": "export NCCL_IB_DISABLE=1\ntorchrun --nnodes 1 --nproc-per-node 8 t.py\n"}, id="one node"),
        pytest.param({"j.sbatch": JOB.format("export NCCL_IB_DISABLE=0\nexport NCCL_P2P_DISABLE=0")}, id="left on"),
        pytest.param({"j.sbatch": JOB.format("# export NCCL_IB_DISABLE=1")}, id="comment"),
        pytest.param({"j.sbatch": JOB.format("echo NCCL_IB_DISABLE=1 was needed in March")}, id="printed"),
        pytest.param({"j.sbatch": JOB.format("export NCCL_IB_DISABLE=1\nunset NCCL_IB_DISABLE")}, id="unset"),
        pytest.param({"r.sh": "NCCL_P2P_DISABLE=1 torchrun --nproc-per-node 1 t.py\n"}, id="one GPU"),
        pytest.param({"t.py": LIGHTNING.format("os.environ['NCCL_IB_DISABLE'] = '0'")}, id="left on in code"),
        pytest.param({"t.py": LIGHTNING.format("if 'RTX 40' in name:\n    os.environ['NCCL_P2P_DISABLE'] = '1'")}, id="for one kind of GPU"),
        pytest.param({"t.py": LIGHTNING.format("print(os.environ.get('NCCL_IB_DISABLE', '1'))")}, id="read"),
    ],
)  # fmt: skip
def test_other_variables_are_none(tmp_path: Path, files: dict[str, str]) -> None:
    assert found(tmp_path, files) == []
