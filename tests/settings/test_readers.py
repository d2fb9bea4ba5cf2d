"""Whose settings a file holds: by keys of one program alone, by who reads it in its project, or by the user."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from truetune.checks.check_paths import check_paths
from truetune.checks.judge_settings import judge_settings
from truetune.errors import SpecError
from truetune.settings.config import Config
from truetune.settings.recognise_input_kind import recognise_kinds
from truetune.settings.run_spec import RunSpec
from truetune.settings.stacks.find_who_reads_config_or_starts_script import (
    commands_that_launch_several_processes,
)
from truetune.settings.stacks.read_config_of_any_stack import read_config

OWN_FILES: list[dict[str, Any]] = [
    {"output_dir": "o", "batch_size": 2, "gradient_accumulation_steps": 8, "learning_rate": 1e-4, "num_epochs": 2,
     "early_stopping_patience": 3, "eval_steps": 50, "warmup_ratio": 0.05, "lora": {"r": 16}},
    {"split": "train", "num_epochs": 3, "batch_size": 4, "learning_rate": 2e-4, "max_seq_length": 512},
    {"per_device_train_batch_size": 1, "per_device_eval_batch_size": 1, "gradient_accumulation_steps": 8},
    {"datasets": {"one": {"hf_id": "a/b", "usage": "sft"}, "two": {"hf_id": "a/c", "usage": "dpo"}}},
    {"model_name_or_path": "a/b", "output_dir": "o", "max_seq_length": 512, "learning_rate": 1e-5, "eval_steps": 9},
    {"model_name_or_path": "a/b", "data_path": "x", "max_seq_length": 1024, "use_qlora": True, "lora_r": 64,
     "lora_alpha": 128, "learning_rate": 1e-5, "num_train_epochs": 4, "logging_steps": 5, "weight_decay": 0.0},
    {"model_name_or_path": "a/b", "adapter_name_or_path": "out", "template": "qwen", "finetuning_type": "lora",
     "device": "cuda", "max_new_tokens": 1024, "temperature": 0.7, "top_p": 0.9},
    {"model_name_or_path": "a/b", "data_path": "x", "torch_dtype": "bf16", "use_4bit": False, "lora_r": 16,
     "dataset_num_proc": 1, "beta": 0.1, "max_length": 1536, "bnb_4bit_quant_type": "nf4", "seed": 42},
    {"base_model": "a/b", "batch_size": 4, "num_epochs": 3, "learning_rate": 1e-4, "lora_r": 8, "lora_alpha": 16},
    {"base_model": "a/b", "optimizer": "adamw", "lr_scheduler": "cosine", "wandb_project": "p", "num_epochs": 1},
    {"model_name_or_path": "a/b", "dataset_name": "a/rows", "learning_rate": 1e-4, "num_train_epochs": 3, "lora_r": 8,
     "lora_alpha": 16, "output_dir": "o"},
    {"batch_size": 8, "num_epochs": 3, "optimizer": "adamw", "device": "cuda"},
    {"learning_rate": 1e-5, "beta": 0.1, "max_length": 512, "loss_type": "sigmoid", "seed": 1},
    {"model_name_or_path": "a/b", "temperature": 0.7, "top_p": 0.9, "trust_remote_code": True},
]  # fmt: skip


def laid(folder: Path, settings: dict[str, Any], name: str = "configs/sft.yaml") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(settings))
    (folder / ".git").mkdir(exist_ok=True)
    return path


def said(config: Config, *rules: str) -> list[tuple[str, str]]:
    return [
        (finding.severity, finding.rule)
        for finding in judge_settings(config, RunSpec(select=rules)).findings
    ]


@pytest.mark.parametrize("settings", OWN_FILES)
def test_a_file_of_common_words_is_no_programs(settings: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="expected the settings of truetune, TRL"):
        read_config(laid(tmp_path, settings))


def test_what_would_tell_is_named(tmp_path: Path) -> None:
    path = laid(tmp_path, OWN_FILES[4])
    with pytest.raises(SpecError, match=r"give --trainer trl or .*`trl sft --config FILE`"):
        read_config(path)
    assert recognise_kinds(path) == ("settings",)
    report = check_paths([path], RunSpec())
    (told,) = report.not_judged
    assert (told.place, report.exit_code()) == (str(path), 3)
    assert told.unlock.startswith("where trl or llama-factory itself reads it, give --trainer trl")
    with pytest.raises(SpecError) as error:
        read_config(laid(tmp_path, {"colour": "red", "size": 3}))
    assert "--trainer" not in str(error.value)


def test_the_user_says_who_reads_it(tmp_path: Path) -> None:
    path = laid(tmp_path, OWN_FILES[4])
    assert read_config(path, "trl").stack == "trl"
    assert recognise_kinds(path, "trl") == ("trl",)
    with pytest.raises(SpecError):
        read_config(path, "axolotl")
    assert read_config(laid(tmp_path, OWN_FILES[8]), "axolotl").stack == "axolotl"


@pytest.mark.parametrize(
    ("number", "file", "text", "stack"),
    [
        (4, "run.sh", "trl sft --config configs/sft.yaml", "trl"),
        (
            4,
            "README.md",
            "```\nCUDA_VISIBLE_DEVICES=0 trl dpo \\\n    --config configs/sft.yaml\n```",
            "trl",
        ),
        (8, "run.sh", "axolotl train configs/sft.yaml --debug", "axolotl"),
        (8, "scripts/go.sh", "accelerate launch -m axolotl.cli.train configs/sft.yaml", "axolotl"),
        (9, "Makefile", "train:\n\taxolotl preprocess configs/sft.yaml", "axolotl"),
        (
            6,
            "serve.py",
            "import os\nos.system('llamafactory-cli chat configs/sft.yaml')",
            "llama-factory",
        ),
        (4, "run.sh", "trl sft --config configs/other_sft.yaml", None),
        (4, "run.sh", "trl sft --config configs/sft.yaml.bak-sft", "trl"),
        (4, "run.sh", "python train.py --config configs/sft.yaml", None),
        (8, "run.sh", "cat configs/sft.yaml && axolotl train other.yaml", None),
    ],
)
def test_a_command_says_who_reads_it(
    number: int, file: str, text: str, stack: str | None, tmp_path: Path
) -> None:
    path = laid(tmp_path, OWN_FILES[number])
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(text)
    if stack is None:
        with pytest.raises(SpecError):
            read_config(path)
        return
    config = read_config(path)
    assert config.stack == stack
    assert Path(file).name in config.read_by


PARSED = {
    "model_revision": "main",
    "torch_dtype": "bfloat16",
    "dataset_num_proc": 4,
    "learning_rate": 1e-5,
    "overwrite_output_dir": True,
    "packing": False,
    "num_train_epochs": 1,
}
HEAD = "from trl import ModelConfig, ScriptArguments, SFTConfig, TrlParser\nimport trl\n"


@pytest.mark.parametrize(
    ("script", "more", "is_trls"),
    [
        (HEAD + "p = TrlParser((ScriptArguments, SFTConfig, ModelConfig))", {}, True),
        (HEAD + "kinds = (ScriptArguments, SFTConfig, ModelConfig)\np = TrlParser(kinds)", {}, True),
        (HEAD + "p = TrlParser(dataclass_types=3)", {}, False),
        ("import trl\nfrom transformers import HfArgumentParser\np = HfArgumentParser([trl.DPOConfig])", {}, True),
        (HEAD + "class SFTConfig(trl.SFTConfig):\n    mine: int = 3\np = TrlParser(SFTConfig)", {"mine": 4}, True),
        (HEAD + "class Mine(SFTConfig):\n    mine: int = 3\nclass Last(Mine):\n    b: int\np = TrlParser((Last,))",
         {"b": 4}, True),
        (HEAD + "p = TrlParser((ScriptArguments, SFTConfig))", {"data_path": "x"}, False),
        (HEAD + "p = TrlParser((ScriptArguments, ModelConfig))", {}, False),
        ("import trl\nclass SFTConfig:\n    x: int\np = HfArgumentParser(SFTConfig)", {}, False),
        ("import yaml\nfrom trl import SFTConfig\nSFTConfig(**yaml.safe_load(open('configs/sft.yaml')))", {}, False),
        (HEAD + "def broken(:\n    TrlParser((SFTConfig,))", {}, False),
    ],
)  # fmt: skip
def test_a_parser_that_is_given_trls_classes_says_who_reads_it(
    script: str, more: dict[str, Any], is_trls: bool, tmp_path: Path
) -> None:
    path = laid(tmp_path, {**PARSED, **more})
    (tmp_path / "sft.py").write_text(script)
    if not is_trls:
        with pytest.raises(SpecError):
            read_config(path)
        return
    config = read_config(path)
    assert config.read_by.startswith("the parser in sft.py, line ")
    assert not set(more) & {place.key for place in config.unknown}
    assert said(config, "max-length-left-to-trl-default") == [
        ("warning", "max-length-left-to-trl-default")
    ]


def test_a_parser_of_common_words_alone_is_no_sign(tmp_path: Path) -> None:
    path = laid(tmp_path, OWN_FILES[2])
    (tmp_path / "sft.py").write_text(
        HEAD + "p = TrlParser((ScriptArguments, SFTConfig, ModelConfig))"
    )
    with pytest.raises(SpecError):
        read_config(path)


def test_of_several_scripts_the_one_of_that_name_reads_it(tmp_path: Path) -> None:
    path = laid(tmp_path, PARSED, "configs/sft_lora.yaml")
    for name in ("dpo.py", "grpo.py", "train_sft.py"):
        (tmp_path / name).write_text(
            HEAD + "p = TrlParser((ScriptArguments, SFTConfig, ModelConfig))"
        )
    assert read_config(path).read_by == "the parser in train_sft.py, line 3"


SURE = {
    "model_name_or_path": "a/b",
    "dataset_name": "a/rows",
    "dataset_train_split": "train",
    "lora_r": 8,
    "eval_steps": 10,
    "learning_rate": 1e-4,
}
ABSENCES = ("lora-settings-without-lora", "max-length-left-to-trl-default", "setting-overruled")


def test_what_a_file_leaves_out_is_the_default_only_of_a_file_that_the_program_itself_reads(
    tmp_path: Path,
) -> None:
    assert {rule for _, rule in said(read_config(laid(tmp_path, SURE)), *ABSENCES)} == set(ABSENCES)
    path = laid(tmp_path, {**SURE, "use_4bit_of_mine": True})
    assert said(read_config(path), *ABSENCES) == []
    (tmp_path / "run.sh").write_text("trl sft --config configs/sft.yaml")
    assert {rule for _, rule in said(read_config(path), *ABSENCES)} == set(ABSENCES)


@pytest.mark.parametrize(("switch", "severity"), [({}, "warning"), ({"use_peft": False}, "info")])
def test_lora_that_is_switched_off_in_so_many_words_is_a_note(
    switch: dict[str, Any], severity: str, tmp_path: Path
) -> None:
    config = read_config(laid(tmp_path, {**SURE, **switch}))
    assert said(config, "lora-settings-without-lora") == [(severity, "lora-settings-without-lora")]


LAUNCHES = {
    "accelerate launch --num_processes 4 -m axolotl.cli.train {file}": True,
    "torchrun --nproc-per-node=8 -m axolotl.cli.train {file}": True,
    "torchrun --nproc_per_node gpu train.py --config {file}": True,
    "accelerate launch --multi_gpu train.py --config={file}": True,
    "axolotl train {file} --launcher torchrun -- --nproc_per_node=2": True,
    "trl sft --config {file} --num_processes 4": True,
    "FORCE_TORCHRUN=1 NPROC_PER_NODE=4 llamafactory-cli train {file}": True,
    "deepspeed --num_gpus 4 train.py --config {file}": True,
    "accelerate launch --num_processes 1 -m axolotl.cli.train {file}": False,
    "torchrun --nproc_per_node=1 train.py --config {file}": False,
    "NPROC_PER_NODE=1 llamafactory-cli train {file}": False,
    "axolotl train {file}": False,
    "accelerate launch --num_processes 4 -m axolotl.cli.train other.yaml": False,
    "accelerate launch --num_processes 4 -m axolotl.cli.train elsewhere/sft.yaml": False,
}


@pytest.mark.parametrize("command", LAUNCHES)
def test_commands_that_start_settings_as_several_processes(command: str, tmp_path: Path) -> None:
    path = laid(tmp_path, {"base_model": "a/b"})
    (tmp_path / "run.sh").write_text(
        "#!/bin/bash\n" + command.format(file="configs/sft.yaml") + "\n"
    )
    assert bool(list(commands_that_launch_several_processes(path))) is LAUNCHES[command]


@pytest.mark.parametrize(("processes", "several"), [(4, True), (1, False)])
def test_a_configuration_of_accelerate_says_how_many_processes_start(
    tmp_path: Path, processes: int, several: bool
) -> None:
    script = tmp_path / "train.py"
    script.write_text("", encoding="utf-8")
    (tmp_path / "ddp.yaml").write_text(f"num_processes: {processes}\n", encoding="utf-8")
    command = "accelerate launch --config_file ddp.yaml train.py\n"
    (tmp_path / "README.md").write_text(command, encoding="utf-8")
    assert bool(list(commands_that_launch_several_processes(script))) is several
