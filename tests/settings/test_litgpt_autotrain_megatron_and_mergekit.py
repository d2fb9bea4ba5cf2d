"""Settings of LitGPT, AutoTrain, Megatron-LM, open-instruct, mergekit and files of TrainingArguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from truetune.checks.check_paths import check_paths
from truetune.checks.judge_settings import judge_settings
from truetune.parsing.shell_commands import read_command_file
from truetune.settings.config import Config
from truetune.settings.run_spec import RunSpec
from truetune.settings.stacks.read_config_of_any_stack import identify_stack, read_config
from truetune.settings.stacks.settings_of_stack_commands import (
    configs_of_commands_without_settings_file,
)

LITGPT: dict[str, Any] = {
    "checkpoint_dir": "checkpoints/org/base", "out_dir": "out", "precision": "bf16-true", "devices": 2, "lora_r": 32,
    "lora_alpha": 16, "lora_query": True, "lora_key": False, "lora_value": True, "lora_projection": False,
    "lora_mlp": False, "lora_head": False,
    "data": {"class_path": "litgpt.data.JSON", "init_args": {"json_path": "d.json", "mask_prompt": True}},
    "train": {"global_batch_size": 16, "micro_batch_size": 2, "lr_warmup_steps": 10, "epochs": 3,
              "max_seq_length": 512, "min_lr": 6e-5},
    "optimizer": {"class_path": "torch.optim.AdamW", "init_args": {"lr": 2e-4, "weight_decay": 0.01}},
}  # fmt: skip
AUTOTRAIN: dict[str, Any] = {
    "task": "llm-sft", "base_model": "org/base", "project_name": "p", "backend": "local",
    "data": {"path": "d", "train_split": "train"},
    "params": {"block_size": 1024, "epochs": 2, "batch_size": 2, "lr": "1e-4", "peft": True, "quantization": "int4",
               "target_modules": "all-linear", "gradient_accumulation": 4, "mixed_precision": "bf16"},
}  # fmt: skip
MERGE: dict[str, Any] = {
    "models": [{"model": "./a", "parameters": {"weight": 0.5}}, {"model": "./b", "parameters": {"weight": 0.5}}],
    "merge_method": "linear", "dtype": "bfloat16",
}  # fmt: skip
SLICED: dict[str, Any] = {
    "slices": [
        {"sources": [{"model": "mistralai/Mistral-7B-v0.1", "layer_range": [0, 24]}]},
        {"sources": [{"model": "mistralai/Mistral-7B-v0.1", "layer_range": [8, 32]}]},
    ],
    "merge_method": "passthrough", "dtype": "bfloat16",
}  # fmt: skip


def read(folder: Path, settings: dict[str, Any]) -> Config:
    path = folder / "settings.yaml"
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return read_config(path)


def of_command(folder: Path, command: str) -> Config:
    path = folder / "run.sh"
    path.write_text(command, encoding="utf-8")
    (config,) = configs_of_commands_without_settings_file(read_command_file(path))
    return config


def named(config: Config) -> set[str]:
    found = judge_settings(config, RunSpec()).findings
    return {one.rule for one in found if one.severity != "info"}


def test_litgpt_says_what_is_trained(tmp_path: Path) -> None:
    config = read(tmp_path, LITGPT)
    training = config.spec.training
    assert (config.stack, config.spec.model, config.limit) == ("litgpt", "base", 512)
    assert training.lora is not None
    assert training.lora.target_modules == ("q_proj", "v_proj")
    assert (training.learning_rate, training.warmup_steps, training.num_train_epochs) == (
        2e-4,
        10,
        3,
    )
    assert (training.devices, training.gradient_accumulation_steps) == (2, 4)
    assert config.places["training.learning_rate"].key == "optimizer.init_args.lr"
    assert named(config) == set()


def test_autotrain_says_what_is_trained(tmp_path: Path) -> None:
    config = read(tmp_path, AUTOTRAIN)
    training = config.spec.training
    assert (config.stack, config.spec.model, config.limit) == ("autotrain", "org/base", 1024)
    assert (training.method, training.learning_rate, training.load_in, training.bf16) == (
        "sft",
        1e-4,
        4,
        True,
    )
    assert training.lora is not None
    assert (training.lora.r, training.lora.target_modules) == (16, "all-linear")
    assert named(config) == set()


def test_a_command_of_megatron_says_what_is_trained(tmp_path: Path) -> None:
    config = of_command(
        tmp_path,
        "ARGS=(\n  --num-layers 32 --seq-length 4096\n  --lr 1e-5 --min-lr 1e-6\n)\n"
        'torchrun pretrain_gpt.py "${ARGS[@]}" --micro-batch-size 2 --train-iters 500 --lr-warmup-iters 50 --bf16\n',
    )
    training = config.spec.training
    assert (config.stack, config.limit) == ("megatron-lm", 4096)
    assert (training.learning_rate, training.max_steps, training.warmup_steps) == (1e-5, 500, 50)
    assert named(config) == set()


def test_a_command_of_open_instruct_says_what_is_trained(tmp_path: Path) -> None:
    config = of_command(
        tmp_path,
        "accelerate launch --num_processes 8 open_instruct/finetune.py --model_name_or_path org/base --use_lora"
        " --lora_rank 64 --lora_alpha 16 --max_seq_length 4096 --learning_rate 1e-4 --num_train_epochs 2"
        " --dataset_mixer_list org/rows 1.0\n",
    )
    assert (config.stack, config.spec.model, config.limit) == ("open-instruct", "org/base", 4096)
    assert config.spec.training.lora is not None
    assert named(config) == set()


@pytest.mark.parametrize(
    ("share", "is_left_out"), [("1", True), ("100", True), ("1.0", False), ("20000", False)]
)
def test_a_number_without_a_dot_counts_rows_for_open_instruct(
    tmp_path: Path, share: str, is_left_out: bool
) -> None:
    config = of_command(
        tmp_path, f"python open_instruct/finetune.py --learning_rate 5e-6 --dataset_mixer_list org/rows {share}\n"
    )  # fmt: skip
    assert ("rows-left-out-by-limit" in named(config)) is is_left_out


@pytest.mark.parametrize(
    ("edit", "rule"),
    [
        ({"lora_query": False, "lora_value": False}, "settings-train-nothing"),
        ({"train": LITGPT["train"] | {"min_lr": 1e-3}}, "schedule-ends-at-a-high-rate"),
        ({"train": LITGPT["train"] | {"max_seq_length": 64}}, "setting-out-of-range"),
        ({"optimizer": {"init_args": {"lr": 0.02}}}, "learning-rate-far-from-published"),
    ],
)
def test_a_fault_of_litgpt_is_named(tmp_path: Path, edit: dict[str, Any], rule: str) -> None:
    assert rule in named(read(tmp_path, LITGPT | edit))


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        (MERGE | {"weight": 0.3}, "merge-parameters-not-read"),
        (MERGE | {"models": [{"model": "./a", "weight": 0.3}]}, "merge-parameters-not-read"),
        (MERGE | {"models": [{"model": "./a", "parameters": {"weights": 1}}]}, "merge-parameters-not-read"),
        (MERGE | {"models": [{"model": "./a", "parameters": {"weight": 0}}]}, "merge-weights-out-of-range"),
        (MERGE | {"models": [{"model": "./a", "parameters": {"density": 0.0}}]}, "merge-weights-out-of-range"),
        (MERGE | {"merge_method": "slerp", "parameters": {"t": [1, 1]}}, "merge-weights-out-of-range"),
        (MERGE | {"models": [{"model": "google/gemma-3-4b-it"}], "dtype": "float16"}, "merge-overflows-in-float16"),
        (
            SLICED | {"slices": [{"sources": [{"model": "Qwen/Qwen2.5-7B", "layer_range": [0, 27]}]}]},
            "merge-skips-a-layer",
        ),
    ],
)  # fmt: skip
def test_a_fault_of_a_merge_is_named(tmp_path: Path, settings: dict[str, Any], rule: str) -> None:
    assert named(read(tmp_path, settings)) == {rule}


@pytest.mark.parametrize(
    "settings",
    [
        MERGE,
        SLICED,
        # A prune of several layers, and a slice of a model that is not known.
        SLICED | {"slices": [SLICED["slices"][0], {"sources": [{"model": "./own", "layer_range": [28, 32]}]}]},
        SLICED | {"slices": [{"sources": [{"model": "./own", "layer_range": [0, 31]}]}]},
        MERGE | {"merge_method": "slerp", "parameters": {"t": [{"filter": "mlp", "value": [1, 0]}, {"value": 0.5}]}},
        MERGE | {"base_model": "./a", "models": [{"model": "./a", "parameters": {"weight": 0}}]},
        MERGE | {"parameters": {"normalize": False}},
        MERGE | {"models": [{"model": "Qwen/Qwen2.5-7B"}], "dtype": "float16"},
    ],
)  # fmt: skip
def test_a_sound_merge_has_no_finding(tmp_path: Path, settings: dict[str, Any]) -> None:
    assert named(read(tmp_path, settings)) == set()


def test_a_merge_is_no_training(tmp_path: Path) -> None:
    path = tmp_path / "merge.yaml"
    path.write_text(yaml.safe_dump(MERGE), encoding="utf-8")
    report = check_paths([path], RunSpec())
    assert [subject.kind for subject in report.subjects] == ["mergekit configuration"]
    assert not [one for one in report.not_judged if one.asked]


@pytest.mark.parametrize(
    "settings",
    [
        {"train": {"batch_size": 8}, "data": {"path": "d"}, "model_name": "a/b"},
        {"task": "translation", "params": {"lr": 1}, "base_model": "a/b"},
        {"merge_method": "ours", "branches": ["a"]},
        {"models": [{"name": "a"}], "parameters": {}},
    ],
)
def test_files_of_other_programs_are_not_taken_for_theirs(settings: dict[str, Any]) -> None:
    assert identify_stack(settings) is None


ARGUMENTS: dict[str, Any] = {
    "output_dir": "out", "per_device_train_batch_size": 4, "gradient_accumulation_steps": 4, "learning_rate": 2e-5,
    "num_train_epochs": 3, "lr_scheduler_type": "cosine", "bf16": True, "save_strategy": "steps", "save_steps": 200,
}  # fmt: skip


@pytest.mark.parametrize(
    ("edit", "rules"),
    [
        ({}, set()),
        ({"resume_from_checkpoint": "out/checkpoint-200"}, set()),
        ({"save_only_model": True}, set()),
        ({"save_only_model": True, "resume_from_checkpoint": False}, set()),
        ({"save_only_model": True, "resume_from_checkpoint": True}, {"resume-starts-parts-over"}),
        ({"ignore_data_skip": True, "resume_from_checkpoint": "c"}, {"resume-starts-parts-over"}),
        ({"max_grad_norm": 1e-7}, {"setting-out-of-range"}),
    ],
)
def test_a_file_of_training_arguments_is_judged(
    tmp_path: Path, edit: dict[str, Any], rules: set[str]
) -> None:
    config = read(tmp_path, ARGUMENTS | edit)
    assert config.stack == "transformers"
    assert named(config) == rules


@pytest.mark.parametrize(
    "edit", [{"lora_r": 8}, {"batch_size": 4}, {"data_path": "d"}, {"model": {"name": "a"}}]
)
def test_a_file_with_a_key_of_a_scripts_own_is_not_taken_for_training_arguments(
    edit: dict[str, Any],
) -> None:
    assert identify_stack(ARGUMENTS | edit) != "transformers"
    without_folder = {key: value for key, value in ARGUMENTS.items() if key != "output_dir"}
    assert identify_stack(without_folder) is None
