"""DeepSpeed's settings beside the run's own: what they replace in silence, and what stops a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import truetune
from truetune.checks.lint import lint

RULE = "CFG161"
FACTORY = {
    "model_name_or_path": "some/model",
    "stage": "sft",
    "do_train": True,
    "finetuning_type": "full",
    "dataset": "some",
    "template": "qwen",
    "output_dir": "out",
    "learning_rate": 1e-5,
}
AXOLOTL = {
    "base_model": "some/model",
    "datasets": [{"path": "some/data", "type": "chat_template"}],
    "sequence_len": 2048,
    "learning_rate": 1e-5,
}
TRL = {"model_name_or_path": "some/model", "dataset_name": "some/rows", "max_length": 512}


def schedule(kind: str) -> dict[str, Any]:
    """A scheduler block of which the Trainer fills in the numbers."""
    return {"scheduler": {"type": kind, "params": {"warmup_num_steps": "auto"}}}


def optimizer(kind: str, **params: Any) -> dict[str, Any]:
    """An optimizer block."""
    return {"optimizer": {"type": kind, "params": params}}


FAULTY: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "decay of cosine": ({**FACTORY, "lr_scheduler_type": "cosine"}, schedule("WarmupDecayLR")),
    "constant of linear": ({**TRL, "lr_scheduler_type": "linear"}, schedule("WarmupLR")),
    "axolotl": ({**AXOLOTL, "lr_scheduler": "constant_with_warmup"}, schedule("WarmupDecayLR")),
    "range test": ({**TRL, "lr_scheduler_type": "cosine"}, schedule("LRRangeTest")),
    "8 bits": ({**AXOLOTL, "optimizer": "paged_adamw_8bit"}, optimizer("AdamW", lr="auto")),
    "adafactor": ({**FACTORY, "optim": "adafactor"}, optimizer("Adam")),
    "decay of weights": (
        {**TRL, "weight_decay": 0.1},
        optimizer("AdamW", weight_decay=0.01, lr="auto"),
    ),
    "betas": ({**FACTORY, "adam_beta2": 0.95}, optimizer("AdamW", betas=[0.9, 0.999])),
    "clipping": ({**FACTORY, "max_grad_norm": 1.0}, {"gradient_clipping": 0.3}),
    "half": ({**FACTORY, "bf16": True}, {"fp16": {"enabled": True}, "bf16": {"enabled": False}}),
    "half alone": ({**TRL, "fp16": True}, {"bf16": {"enabled": True}}),
    "warm-up": (
        {**TRL, "warmup_steps": 100},
        {"scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 10}}},
    ),
}
HEALTHY: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "no word of it": (FACTORY, schedule("WarmupLR")),
    "the same": ({**TRL, "lr_scheduler_type": "linear"}, schedule("WarmupDecayLR")),
    "a polynomial of power 1": (
        {**TRL, "lr_scheduler_type": "polynomial"},
        schedule("WarmupDecayLR"),
    ),
    "cosine": ({**AXOLOTL, "lr_scheduler": "cosine"}, schedule("WarmupCosineLR")),
    "constant": ({**FACTORY, "lr_scheduler_type": "constant_with_warmup"}, schedule("WarmupLR")),
    "fused": ({**TRL, "optim": "adamw_torch_fused"}, optimizer("AdamW", lr="auto")),
    "automatic": (
        {**FACTORY, "bf16": True, "max_grad_norm": 1.0, "weight_decay": 0.1},
        {
            "bf16": {"enabled": "auto"},
            "gradient_clipping": "auto",
            **optimizer("AdamW", lr="auto", betas="auto", weight_decay="auto"),
        },
    ),
    "written alike": (
        {**FACTORY, "bf16": True, "max_grad_norm": 1.0},
        {"bf16": {"enabled": True}, "fp16": {"enabled": False}, "gradient_clipping": 1},
    ),
    "rate as text": ({**TRL, "learning_rate": "1e-5"}, optimizer("AdamW", lr=1e-5)),
    "bf16 by hardware": ({**AXOLOTL, "bf16": "auto"}, {"bf16": {"enabled": True}}),
    "warm-up to a fraction": (
        {**TRL, "warmup_steps": 0.1, "max_steps": -1},
        {
            "scheduler": {
                "type": "WarmupDecayLR",
                "params": {"warmup_num_steps": 10, "total_num_steps": 100},
            }
        },
    ),
}


def _found(run: dict[str, Any], deepspeed: dict[str, Any], folder: Path) -> list[str]:
    (folder / "zero.json").write_text(json.dumps(deepspeed, indent=1), encoding="utf-8")
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump({**run, "deepspeed": "zero.json"}), encoding="utf-8")
    found = [one for one in truetune.check(path).findings if one.code == RULE]
    return [one.message for one in found]


@pytest.mark.parametrize("name", FAULTY)
def test_another_word_is_found(name: str, tmp_path: Path) -> None:
    assert len(_found(*FAULTY[name], tmp_path)) == 1


@pytest.mark.parametrize("name", HEALTHY)
def test_the_same_word_is_fine(name: str, tmp_path: Path) -> None:
    assert not _found(*HEALTHY[name], tmp_path)


def test_a_half_without_a_block_gets_one(tmp_path: Path) -> None:
    (tmp_path / "zero.json").write_text(json.dumps({"fp16": {"enabled": True}}), encoding="utf-8")
    path = tmp_path / "run.yaml"
    path.write_text(
        yaml.safe_dump({**TRL, "bf16": True, "deepspeed": "zero.json"}), encoding="utf-8"
    )
    (found,) = [one for one in truetune.check(path).findings if one.code == RULE]
    assert 'bf16 and fp16 both need a block with enabled: "auto"' in found.remedy


SCRIPT = "from transformers import Trainer, TrainingArguments\nTrainer(model, parse())\n"


@pytest.mark.parametrize(
    ("options", "deepspeed", "is_found"),
    [
        ("--lr_scheduler_type cosine", schedule("WarmupLR"), True),
        ("--optim adamw_bnb_8bit", optimizer("AdamW"), True),
        ("--lr_scheduler_type linear", schedule("WarmupDecayLR"), False),
        ("--optim adamw_torch", optimizer("AdamW"), False),
        ("--learning_rate 1e-5", {}, False),
    ],
)
def test_options_of_a_command(
    options: str, deepspeed: dict[str, Any], is_found: bool, tmp_path: Path
) -> None:
    (tmp_path / "zero.json").write_text(json.dumps(deepspeed), encoding="utf-8")
    (tmp_path / "go.py").write_text(SCRIPT, encoding="utf-8")
    job = tmp_path / "job.sh"
    job.write_text(f"deepspeed go.py --deepspeed zero.json {options}\n", encoding="utf-8")
    assert len(lint([job], select=["CMD009"]).findings) == is_found


def test_a_script_that_names_the_file_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "zero.json").write_text(json.dumps(schedule("WarmupLR")), encoding="utf-8")
    script = tmp_path / "go.py"
    script.write_text(
        "from transformers import Trainer, TrainingArguments\n"
        "args = TrainingArguments('out', lr_scheduler_type='cosine', deepspeed='zero.json')\n"
        "Trainer(model=m, args=args, train_dataset=d).train()\n",
        encoding="utf-8",
    )
    job = tmp_path / "job.sh"
    job.write_text("deepspeed go.py\n", encoding="utf-8")
    found = lint([script, job], select=[RULE, "CMD009"]).findings
    assert [one.code for one in found] == [RULE]


@pytest.mark.parametrize(
    ("own", "accelerate", "is_found"),
    [
        ({"gradient_accumulation_steps": 4}, {"gradient_accumulation_steps": 8}, True),
        ({"max_grad_norm": 1.0}, {"gradient_clipping": 0.5}, True),
        ({"gradient_accumulation_steps": 4}, {"gradient_accumulation_steps": 4}, False),
        ({"gradient_accumulation_steps": 4}, {"gradient_accumulation_steps": "auto"}, False),
        ({}, {"gradient_accumulation_steps": 8}, False),
    ],
)
def test_accelerate_beside_the_settings_of_a_module(
    own: dict[str, Any], accelerate: dict[str, Any], is_found: bool, tmp_path: Path
) -> None:
    launcher = {
        "distributed_type": "DEEPSPEED",
        "num_processes": 2,
        "deepspeed_config": {"zero_stage": 2, **accelerate},
    }
    (tmp_path / "acc.yaml").write_text(yaml.safe_dump(launcher), encoding="utf-8")
    run = {**TRL, "per_device_train_batch_size": 2, **own}
    (tmp_path / "sft.yaml").write_text(yaml.safe_dump(run), encoding="utf-8")
    job = tmp_path / "job.sh"
    job.write_text(
        "accelerate launch --config_file acc.yaml -m trl.scripts.sft --config sft.yaml\n",
        encoding="utf-8",
    )
    assert len(lint([job], select=["CMD009"]).findings) == is_found


def test_a_settings_file_that_names_the_file_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "zero.json").write_text(json.dumps({"gradient_clipping": 0.3}), encoding="utf-8")
    run = {**TRL, "per_device_train_batch_size": 2, "max_grad_norm": 1.0, "deepspeed": "zero.json"}
    (tmp_path / "sft.yaml").write_text(yaml.safe_dump(run), encoding="utf-8")
    (tmp_path / "job.sh").write_text(
        "accelerate launch -m trl.scripts.sft --config sft.yaml\n", encoding="utf-8"
    )
    found = [one.code for one in truetune.check(tmp_path).findings]
    assert (found.count(RULE), found.count("CMD009")) == (1, 0)


@pytest.mark.parametrize(
    ("run", "settings", "count"),
    [
        ({"max_grad_norm": 0.3}, {"zero_optimization": {"stage": 2}}, 1),
        ({"max_grad_norm": 0.3}, {"gradient_clipping": "auto"}, 0),
        ({"max_grad_norm": 0.3}, {"gradient_clipping": 0.3}, 0),
        ({"max_grad_norm": 0}, {"zero_optimization": {"stage": 2}}, 0),
        ({}, {"zero_optimization": {"stage": 2}}, 0),
    ],
)
def test_clipping_needs_its_key(
    tmp_path: Path, run: dict[str, Any], settings: dict[str, Any], count: int
) -> None:
    assert len(_found({**TRL, **run}, settings, tmp_path)) == count
