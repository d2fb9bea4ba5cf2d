"""vLLM servers that leave GPUs idle, and those that use them."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

JOB = "#!/bin/bash\n#SBATCH --gres=gpu:{}\n"
COMPOSE = """services:
  vllm:
    image: vllm/vllm-openai:v0.8.5
    command: {}
    ipc: host
    deploy:
      resources:
        reservations:
          devices:
            - driver: nvidia
              count: {}
              capabilities: [gpu]
"""
SERVE = "vllm serve out/merged --max-model-len 8192"


def count(folder: Path, text: str, name: str = "serve.sh") -> int:
    (folder / name).write_text(text, encoding="utf-8")
    return len(lint([folder / name], select=["CMD162"], allow_unjudged=True).findings)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (JOB.format(4) + SERVE, 1),
        (JOB.format(4) + "python -m vllm.entrypoints.openai.api_server --model out/merged", 1),
        (f"CUDA_VISIBLE_DEVICES=0,1 {SERVE}", 1),
        (f"CUDA_VISIBLE_DEVICES=0,1 {SERVE} --tensor-parallel-size 1", 1),
        ("docker run --gpus '\"device=0,1\"' --ipc=host vllm/vllm-openai --model out/merged", 1),
        (JOB.format(1) + SERVE, 0),
        (JOB.format(4) + f"{SERVE} --tensor-parallel-size 4", 0),
        (JOB.format(4) + f"{SERVE} -tp 4", 0),
        (JOB.format(4) + f"{SERVE} --data-parallel-size=4", 0),
        (JOB.format(4) + f"{SERVE} $MORE", 0),
        (JOB.format(4) + f"{SERVE} --config serve.yaml", 0),
        (JOB.format(4) + f"CUDA_VISIBLE_DEVICES=0 {SERVE} &\npython train.py", 0),
        (JOB.format(4) + f"{SERVE} &\ntorchrun --nproc_per_node 3 grpo.py", 0),
        (f"CUDA_VISIBLE_DEVICES=0 {SERVE} &\nCUDA_VISIBLE_DEVICES=1 {SERVE} --port 2", 0),
        ("docker run --gpus all --ipc=host vllm/vllm-openai --model out/merged", 0),
        (SERVE, 0),
        (JOB.format(4) + f"docker rm -f old\nsrun {SERVE}", 1),
        (JOB.format(4) + f"{SERVE} &\n./run_training.sh", 0),
        (JOB.format(4) + f"{SERVE} &\nbash train.sh", 0),
        (JOB.format(4) + f"{SERVE} &\nmake train", 0),
        (JOB.format(4) + f"srun --gpus-per-task=1 {SERVE}", 0),
        (JOB.format(4) + f"#SBATCH --ntasks-per-node=4\nsrun {SERVE}", 0),
        (JOB.format(4) + f"CUDA_VISIBLE_DEVICES=$SLURM_LOCALID {SERVE}", 0),
    ],
)
def test_gpus_that_a_server_is_shown(text: str, found: int, tmp_path: Path) -> None:
    assert count(tmp_path, text + "\n") == found


@pytest.mark.parametrize(
    ("command", "gpus", "found"),
    [
        ('["--model", "/models/merged"]', 4, 1),
        ('["--model", "/models/merged", "--tensor-parallel-size", "4"]', 4, 0),
        ('["--model", "/models/merged"]', 1, 0),
        ('["--model", "/models/merged"]', "all", 0),
    ],
)
def test_gpus_of_a_service(command: str, gpus: int | str, found: int, tmp_path: Path) -> None:
    assert count(tmp_path, COMPOSE.format(command, gpus), "docker-compose.yml") == found
