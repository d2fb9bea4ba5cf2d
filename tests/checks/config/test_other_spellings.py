"""Faults of settings in the spellings of other stacks: torchtune's limits and empty lists, computed values, roles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import truetune

RECIPE: dict[str, Any] = {
    "model": {
        "_component_": "torchtune.models.llama3_2.lora_llama3_2_3b",
        "lora_attn_modules": ["q_proj"],
        "apply_lora_to_mlp": False,
    },
    "tokenizer": {"_component_": "torchtune.models.llama3.llama3_tokenizer", "max_seq_len": 2048},
    "dataset": {
        "_component_": "torchtune.datasets.alpaca_cleaned_dataset",
        "train_on_input": False,
    },
    "optimizer": {"_component_": "torch.optim.AdamW", "lr": 2e-4},
    "lr_scheduler": {"_component_": "torchtune.training.x", "num_warmup_steps": 50},
    "batch_size": 2,
    "epochs": 2,
}
AXOLOTL: dict[str, Any] = {
    "base_model": "some/model",
    "datasets": [{"path": "some/rows", "type": "chat_template"}],
    "sequence_len": 2048,
    "micro_batch_size": 2,
    "learning_rate": 0.0002,
}


def recipe(part: str, **entries: Any) -> dict[str, Any]:
    """The recipe with other entries in one of its parts."""
    return RECIPE | {part: {**RECIPE[part], **entries}}


def roles(*names: str) -> dict[str, Any]:
    """Axolotl settings whose data set trains these roles."""
    return AXOLOTL | {"datasets": [{**AXOLOTL["datasets"][0], "roles_to_train": list(names)}]}


WARMUP, NOTHING, PROMPTS = "warmup-longer-than-run", "settings-train-nothing", "prompts-are-learned"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (RECIPE | {"max_steps_per_epoch": 20}, [WARMUP]),
        (recipe("model", lora_attn_modules=[]), [NOTHING]),
        (recipe("model", lora_attn_modules=None), [NOTHING]),
        (recipe("dataset", train_on_input=True), [PROMPTS]),
        (roles("system", "user", "assistant"), [PROMPTS]),
        (roles("human", "gpt"), [PROMPTS]),
        (RECIPE | {"max_steps_per_epoch": None}, []),
        (RECIPE | {"max_steps_per_epoch": 400}, []),
        (recipe("model", lora_attn_modules=[], apply_lora_to_mlp=True), []),
        (recipe("model", lora_attn_modules=[], apply_lora_to_output=True), []),
        (roles("assistant"), []),
        (roles("gpt"), []),
    ],
)
def test_settings(settings: dict[str, Any], expected: list[str], tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
    report = truetune.check([str(path)], select=[WARMUP, NOTHING, PROMPTS])
    assert [finding.rule for finding in report.findings] == expected


@pytest.mark.parametrize(
    ("alpha", "speaks"),
    [
        ("int(RANK * 0.05)", True),
        ("int(0.5)", True),
        ("round(RANK / 64)", True),
        ("int(RANK * 2)", False),
        ("int(read_alpha())", False),
        ("int('16')", False),
    ],
)
def test_computed_values(alpha: str, speaks: bool, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        f"from peft import LoraConfig\nRANK = 16\nconfig = LoraConfig(r=RANK, lora_alpha={alpha})\n",
        encoding="utf-8",
    )
    report = truetune.check([str(path)], select=["argument-out-of-range"])
    assert bool(report.findings) == speaks


FULL = """
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B")
SFTTrainer(model=model, args=SFTConfig(output_dir="out", learning_rate=RATE), train_dataset=rows).train()
"""


@pytest.mark.parametrize(
    ("script", "speaks"),
    [
        (FULL.replace("RATE", "5e-4"), True),
        (FULL.replace("RATE", "3e-3"), True),
        (FULL.replace("RATE", "2e-5"), False),
        ("from adapters import wrap\n" + FULL.replace("RATE", "5e-4"), False),
        (FULL.replace("RATE", "5e-4").replace("AutoModelForCausalLM.from", "own.from"), False),
    ],
)
def test_rates_of_programs(script: str, speaks: bool, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(script, encoding="utf-8")
    report = truetune.check([str(path)], select=["learning-rate-far-from-published"])
    assert bool(report.findings) == speaks


def test_layers_of_torchtune_have_the_same_names_in_all_models(tmp_path: Path) -> None:
    phi = recipe("model", _component_="torchtune.models.phi4.lora_phi4_14b")
    phi["checkpointer"] = {"checkpoint_dir": "/tmp/phi-4"}
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(phi), encoding="utf-8")
    report = truetune.check(path)
    assert "lora-target-fits-nothing" not in {found.rule for found in report.findings}


SWIFT = "swift {} --model Qwen/Qwen2.5-7B-Instruct --dataset own/rows --eval_steps 50 {}\n"
COLOCATED = "--rlhf_type grpo --use_vllm true --vllm_mode colocate --vllm_gpu_memory_utilization {}"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ("", True),
        ("--eval_strategy no --split_dataset_ratio 0.01", False),
        # ms-swift evaluates as often as it saves, wherever it has rows for that.
        ("--split_dataset_ratio 0.01", False),
        ("--val_dataset own/other", False),
        ("--split_dataset_ratio 0", True),
    ],
)
def test_evaluations_of_swift(options: str, named: bool, tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    path.write_text(SWIFT.format("sft", options), encoding="utf-8")
    found = [one for one in truetune.lint(path).findings if one.rule == "setting-overruled"]
    assert bool(found) == named
    assert all("split_dataset_ratio" in one.remedy for one in found)


@pytest.mark.parametrize(
    ("share", "more", "named"),
    [
        (0.8, "", True),
        (0.8, "--sleep_level 1", False),
        (0.8, "--sleep_level 0", True),
        (0.3, "", False),
    ],
)
def test_memory_that_vllm_gives_back(share: float, more: str, named: bool, tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    path.write_text(SWIFT.format("rlhf", COLOCATED.format(share) + f" {more}"), encoding="utf-8")
    rules = {one.rule for one in truetune.lint(path).findings}
    assert ("vllm-takes-the-training-memory" in rules) == named
