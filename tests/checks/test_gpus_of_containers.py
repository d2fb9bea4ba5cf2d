"""The GPUs that a container shows its command, beside the processes that it starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

COMPOSE = """services:
  train:
    image: pytorch/pytorch
    {}
    command: torchrun --nproc_per_node={} train.py
    deploy: {{resources: {{reservations: {{devices: [{{driver: nvidia, count: all}}]}}}}}}
"""
RUN = "docker run {} image torchrun --nproc_per_node=4 train.py\n"


def messages(folder: Path, name: str, text: str) -> list[str]:
    """What CMD004 says of a file of commands."""
    (folder / name).write_text(text)
    return [one.message for one in lint([folder / name], select=["CMD004"]).findings]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("docker-compose.yml", COMPOSE.format("environment: [CUDA_VISIBLE_DEVICES=0]", 4)),
        ("docker-compose.yml", COMPOSE.format("environment: {CUDA_VISIBLE_DEVICES: '0,1'}", 4)),
        ("docker-compose.yml", COMPOSE.format("env_file: .env", 4)),
        ("run.sh", RUN.format("--gpus all -e CUDA_VISIBLE_DEVICES=0")),
        ("run.sh", RUN.format("--gpus '\"device=0,1\"'")),
        ("run.sh", RUN.format("--gpus=device=0 --ipc=host")),
        ("run.sh", RUN.format("--gpus all --env-file .env")),
    ],
)
def test_a_container_that_hides_gpus(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / ".env").write_text("HF_HOME=/h\nCUDA_VISIBLE_DEVICES=0\n")
    found = messages(tmp_path, name, text)
    assert len(found) == 1
    assert "4 processes are started" in found[0]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("docker-compose.yml", COMPOSE.format("environment: [CUDA_VISIBLE_DEVICES=0]", 1)),
        ("docker-compose.yml", COMPOSE.format("environment: ['CUDA_VISIBLE_DEVICES=0,1,2,3']", 4)),
        ("docker-compose.yml", COMPOSE.format("environment: ['CUDA_VISIBLE_DEVICES=${GPUS}']", 4)),
        ("docker-compose.yml", COMPOSE.format("environment: [HF_HOME=/h]", 4)),
        ("run.sh", RUN.format("--gpus all")),
        ("run.sh", RUN.format("--gpus all --env-file other.env")),
        ("run.sh", RUN.format("--gpus '\"device=0,1,2,3\"'")),
    ],
)
def test_a_container_with_as_many_gpus(tmp_path: Path, name: str, text: str) -> None:
    assert messages(tmp_path, name, text) == []
