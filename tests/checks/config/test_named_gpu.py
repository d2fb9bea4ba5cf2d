"""The one GPU that a run's files name, and the trainings of all weights that it cannot hold."""

from __future__ import annotations

from pathlib import Path

import pytest

import truetune

SCRIPT = """
import torch
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B-Instruct", dtype=torch.bfloat16)
trainer = SFTTrainer(model=model, args=SFTConfig(output_dir="out", learning_rate=1e-5), train_dataset=rows)
trainer.train()
"""
LOADED_BY_OPTION = (
    "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--base')\n"
    "options = parser.parse_args()\n" + SCRIPT.replace('"Qwen/Qwen2.5-7B-Instruct"', "options.base")
)
WITH_ADAPTER = SCRIPT.replace(
    "train_dataset=rows)", "train_dataset=rows, peft_config=LoraConfig(r=8))"
).replace("import torch\n", "import torch\nfrom peft import LoraConfig\n")


def found(folder: Path, files: dict[str, str]) -> list[str]:
    """The rules that speak of a folder with these files, of this one rule."""
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    report = truetune.check([str(folder)], select=["full-training-beyond-the-named-gpu"])
    return [finding.rule for finding in report.findings]


def job(*requests: str, command: str = "srun python train.py") -> str:
    """A job file of Slurm."""
    return "\n".join(("#!/bin/bash", *(f"#SBATCH {one}" for one in requests), command, ""))


@pytest.mark.parametrize(
    "files",
    [
        {"train.py": SCRIPT, "job.sbatch": job("--gres=gpu:rtx3090:1")},
        {"train.py": SCRIPT, "job.slurm": job("--nodes=1", "--gpus-per-node=a5000:1")},
        {"train.py": f"# one L40S (48 GB)\n{SCRIPT}"},
        {"train.py": f"# 1x A100 40GB\n{SCRIPT}"},
        {
            "train.py": LOADED_BY_OPTION,
            "job.sbatch": job("-G l40s:1", command="python train.py --base Qwen/Qwen3-14B"),
        },
    ],
)
def test_all_weights_do_not_fit(files: dict[str, str], tmp_path: Path) -> None:
    assert found(tmp_path, files) == ["full-training-beyond-the-named-gpu"]


@pytest.mark.parametrize(
    "files",
    [
        {"train.py": SCRIPT},
        {"train.py": SCRIPT, "job.sbatch": job("--gres=gpu:a100:1")},
        {"train.py": SCRIPT, "job.sbatch": job("--gres=gpu:rtx3090:8")},
        {"train.py": SCRIPT, "job.sbatch": job("--gres=gpu:rtx3090:1", "--nodes=4")},
        {"train.py": SCRIPT, "job.sbatch": job("--gres=gpu:rtx3090:1", command="python other.py")},
        {"train.py": f"# 4x A10G\n{SCRIPT}"},
        {"train.py": f"# RTX 4090 with the QLoRA branch, H100 for this one\n{SCRIPT}"},
        {"train.py": WITH_ADAPTER, "job.sbatch": job("--gres=gpu:rtx3090:1")},
        {"train.py": SCRIPT.replace("7B", "0.5B"), "job.sbatch": job("--gres=gpu:rtx3090:1")},
        {
            "train.py": SCRIPT.replace("learning_rate", 'optim="adafactor", learning_rate'),
            "job.sbatch": job("--gres=gpu:a100:1"),
        },
    ],
)
def test_what_may_fit_is_left_alone(files: dict[str, str], tmp_path: Path) -> None:
    assert found(tmp_path, files) == []
