"""Containers on several GPUs with 64 MB of shared memory, and those that have enough or need none."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

RESERVED = """    deploy:
      resources:
        reservations:
          devices:
            - driver: nvidia
              {}
              capabilities: [gpu]
"""
SERVICE = """services:
  axolotl-legal:
    image: axolotlai/axolotl:main-latest
    command: {}
"""
TORCHRUN = "torchrun --nproc_per_node 4 train.py"


def severities(folder: Path, name: str, text: str) -> list[str]:
    """What the rule says of a file."""
    (folder / name).write_text(text, encoding="utf-8")
    (folder / "workers.yaml").write_text("base_model: m\ndataloader_num_workers: 4\n")
    (folder / "plain.yaml").write_text("base_model: m\n")
    return [one.severity for one in lint([folder / name], select=["CMD057"]).findings]


@pytest.mark.parametrize(
    ("name", "text", "severity"),
    [
        ("run.sh", f"docker run --rm --gpus all image {TORCHRUN}\n", "warning"),
        ("run.sh", f"docker run --gpus all image bash -c '{TORCHRUN}'\n", "warning"),
        ("run.sh", "docker run --gpus 2 axolotlai/axolotl axolotl train plain.yaml\n", "warning"),
        (
            "run.sh",
            "sudo docker run --gpus '\"device=0,1\"' pytorch/pytorch python train.py\n",
            "warning",
        ),
        ("run.sh", "podman run -e NVIDIA_VISIBLE_DEVICES=0,1 pytorch python train.py\n", "warning"),
        ("run.sh", f"docker run --shm-size=128m --gpus 4 image {TORCHRUN}\n", "warning"),
        (
            "run.sh",
            "docker run --gpus all vllm/vllm-openai --model m --tensor-parallel-size 4\n",
            "warning",
        ),
        ("run.sh", "docker run --gpus all axolotlai/axolotl axolotl train plain.yaml\n", "info"),
        (
            "run.sh",
            "docker run --gpus 1 pytorch python train.py --dataloader_num_workers 8\n",
            "info",
        ),
        ("run.sh", "docker run --gpus 1 axolotl axolotl train /workspace/workers.yaml\n", "info"),
        ("compose.yaml", SERVICE.format(TORCHRUN), "warning"),
        (
            "compose.yaml",
            SERVICE.format("axolotl train x.yaml") + RESERVED.format("count: 4"),
            "warning",
        ),
        (
            "docker-compose.yml",
            SERVICE.format("accelerate launch train.py")
            + RESERVED.format("device_ids: ['0', '3']"),
            "warning",
        ),
        ("compose.yaml", SERVICE.format("python train.py") + "    gpus: 2\n", "warning"),
    ],
)
def test_containers_with_64_mb(tmp_path: Path, name: str, text: str, severity: str) -> None:
    assert severities(tmp_path, name, text) == [severity]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("run.sh", f"docker run --ipc=host --gpus all image {TORCHRUN}\n"),
        ("run.sh", f"docker run --ipc host --gpus all image {TORCHRUN}\n"),
        ("run.sh", f"docker run --shm-size 16g --gpus 4 image {TORCHRUN}\n"),
        ("run.sh", f"docker run --shm-size=$SHM --gpus 4 image {TORCHRUN}\n"),
        ("run.sh", f"docker run -v /dev/shm:/dev/shm --gpus 4 image {TORCHRUN}\n"),
        ("run.sh", f"docker run -e NCCL_SHM_DISABLE=1 --gpus 4 image {TORCHRUN}\n"),
        ("run.sh", "docker run --gpus 1 pytorch/pytorch python train.py\n"),
        ("run.sh", "docker run --gpus all pytorch/pytorch python train.py\n"),
        ("run.sh", "docker run --gpus 2 ollama/ollama\n"),
        ("run.sh", f"{TORCHRUN}\n"),
        ("run.sh", "docker compose run trainer python train.py\n"),
        ("compose.yaml", SERVICE.format(TORCHRUN) + "    shm_size: 16gb\n"),
        ("compose.yaml", SERVICE.format(TORCHRUN) + "    shm_size: '8gb'\n"),
        ("compose.yaml", SERVICE.format(TORCHRUN) + "    ipc: host\n"),
        ("compose.yaml", SERVICE.format(TORCHRUN) + "    tmpfs: ['/dev/shm:size=16g']\n"),
        ("compose.yaml", SERVICE.format("axolotl train x.yaml") + RESERVED.format("count: 1")),
    ],
)
def test_containers_with_enough(tmp_path: Path, name: str, text: str) -> None:
    assert severities(tmp_path, name, text) == []
