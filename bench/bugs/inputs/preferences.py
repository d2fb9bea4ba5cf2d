"""Runs of TRL's DPO on a tiny model."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import AutoModelForCausalLM
from trl import DPOConfig, DPOTrainer

from bench.bugs.inputs.rows import Row
from bench.bugs.inputs.tiny import QUIET, few_steps, model, saved, tokenizer


def align(folder: Path, rows: list[Row], **settings: Any) -> None:
    """A run of DPO whose trainer_state.json ends up in `folder`."""
    tuned = model()
    few_steps(tuned, 60)
    policy = AutoModelForCausalLM.from_pretrained(saved(tuned, folder / "policy"))
    usual: dict[str, Any] = QUIET | {
        "max_steps": 60,
        "learning_rate": 1e-3,
        "max_length": 256,
        "bf16": False,
    }
    run = DPOTrainer(
        model=policy,
        args=DPOConfig(output_dir=str(folder / "checkpoints"), **(usual | settings)),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer(),
    )
    run.train()
    run.state.save_to_json(str(folder / "trainer_state.json"))
    shutil.rmtree(folder / "policy")
