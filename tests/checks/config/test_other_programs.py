"""Settings that belong to another program, class or release than the one that is known: no alarm on them."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml

from tests.checks.config.settings import TRL
from tests.settings.unasked import UNASKED
from truetune.checks.judge_settings import judge_settings
from truetune.checks.lint import lint
from truetune.settings.run_spec import RunSpec
from truetune.settings.stacks.read_config_of_any_stack import identify_stack, read_config

DPO = {
    **{key: value for key, value in TRL.items() if key != "assistant_only_loss"},
    "learning_rate": 1e-6,
    "loss_type": "sigmoid",
    "beta": 0.1,
    "dataset_train_split": "train",
}


def said_of_yaml(folder: Path, settings: dict[str, Any], *rules: str) -> list[tuple[str, str]]:
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(settings))
    return [
        (f.severity, f.message)
        for f in judge_settings(read_config(path), RunSpec(select=rules)).findings
    ]


def said_of_script(folder: Path, text: str, *rules: str) -> list[tuple[str, str]]:
    path = folder / "train.py"
    path.write_text(dedent(text), encoding="utf-8")
    return [(f.severity, f.message) for f in lint([path], select=rules).findings]


NAMES = ("unknown-setting", "setting-renamed")
FALLBACK = """
try:
    from trl import SFTConfig
    Arguments = SFTConfig
except ImportError:
    from transformers import TrainingArguments
    Arguments = TrainingArguments
"""


@pytest.mark.parametrize(
    "text",
    [
        FALLBACK + "Arguments(output_dir='o', packing=True, dataset_text_field='text')",
        FALLBACK + "Arguments(output_dir='o', max_length=2048, assistant_only_loss=True)",
        FALLBACK
        + "def build(**more):\n    return Arguments(output_dir='o', completion_only_loss=True,"
        " **more)",
        (
            "from unsloth import FastLanguageModel\nfrom trl import SFTConfig\nSFTConfig('o',"
            " max_seq_length=2048)"
        ),
        (
            "import unsloth\nfrom trl import GRPOConfig\nGRPOConfig('o', vllm_sampling_params=None,"
            " max_seq_length=1)"
        ),
        (
            "import unsloth\nfrom trl import GRPOConfig\nmore = {}\nif fast:\n   "
            " more['vllm_sampling_params'] = 1\nGRPOConfig('o', **more)"
        ),
        (
            "from unsloth import PatchDPOTrainer\nfrom trl import DPOConfig\nDPOConfig('o',"
            " unsloth_num_chunks=2)"
        ),
        (
            "import inspect\nfrom trl import SFTConfig\nmore = {}\nif 'max_seq_length' in"
            " inspect.signature(SFTConfig).parameters:\n    more['max_seq_length'] ="
            " 2048\nSFTConfig('o', **more)"
        ),
        (
            "import trl\nfrom trl import SFTConfig\n"
            "if trl.__version__ < '0.20':\n    a = SFTConfig('o', max_seq_length=8)\n"
            "else:\n    a = SFTConfig('o', max_length=8)"
        ),
        (
            "from trl import SFTConfig\ntry:\n    a = SFTConfig('o', max_seq_length=8)\nexcept"
            " TypeError:\n    a = SFTConfig('o', max_length=8)"
        ),
        (
            "from transformers import TrainingArguments\ntry:\n    a = TrainingArguments('o',"
            " eval_strategy='no')\nexcept TypeError:\n    a = TrainingArguments('o',"
            " evaluation_strategy='no')"
        ),
        (
            "from dataclasses import dataclass\nfrom trl import SFTConfig\n@dataclass\nclass"
            " Mine(SFTConfig):\n    rows_of_mine: int = 0\n    max_seq_length: int = 5\nMine('o',"
            " rows_of_mine=3, max_seq_length=8)"
        ),
    ],
)
def test_arguments_that_some_class_may_take_are_no_fault(text: str, tmp_path: Path) -> None:
    assert said_of_script(tmp_path, text, *NAMES) == []


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (FALLBACK + "Arguments(output_dir='o', lerning_rate=1e-4)", "lerning_rate"),
        (
            "import unsloth\nfrom trl import SFTConfig\nSFTConfig('o', lerning_rate=1e-4)",
            "lerning_rate",
        ),
        (
            (
                "from trl import SFTConfig\nif __name__ == '__main__':\n    SFTConfig('o',"
                " max_seq_length=8)"
            ),
            "max_seq_length",
        ),
        (
            (
                "from trl import SFTConfig\ntry:\n    SFTConfig('o', max_seq_length=8)\n"
                "except Exception as e:\n    print(e)"
            ),
            "max_seq_length",
        ),
    ],
)
def test_an_argument_that_all_classes_refuse_is_a_fault(
    text: str, key: str, tmp_path: Path
) -> None:
    ((severity, message),) = said_of_script(tmp_path, text, *NAMES)
    expected = UNASKED if key == "max_seq_length" else "warning"
    assert (severity, message.partition(" ")[0]) == (expected, key)


@pytest.mark.parametrize(
    "settings",
    [
        {"model_name_or_path": "a/b", "block_size": 1024, "dataset_name": "a/rows", "dialogue_template": "no_system",
         "preprocessing_num_workers": 12, "do_train": True, "learning_rate": 2e-5},
        {"model_name_or_path": "a/b", "use_lora": True, "lora_rank": 64, "tokenizer_name": "a/b", "dataset_name": "r",
         "preprocessing_num_workers": 16, "with_tracking": True, "learning_rate": 1e-4},
        {"model_name_or_path": "a/b", "train_file": "x", "validation_split_percentage": 1, "lora_dropout": 0.1,
         "preprocessing_num_workers": 8, "per_device_train_batch_size": 1, "cache_dir": "c"},
    ],
)  # fmt: skip
def test_shared_words_do_not_make_a_file_llama_factorys(settings: dict[str, Any]) -> None:
    assert identify_stack(settings) != "llama-factory"


@pytest.mark.parametrize(
    "more",
    [
        {"stage": "sft"}, {"finetuning_type": "lora"}, {"dataset": "alpaca_en", "template": "llama3"},
        {"template": "qwen", "infer_backend": "vllm"}, {"export_dir": "out", "template": "qwen"},
        {"cutoff_len": 2048, "dataset": "x"},
    ],
)  # fmt: skip
def test_llama_factorys_own_files_stay_its_own(more: dict[str, Any]) -> None:
    assert (
        identify_stack(
            {"model_name_or_path": "a/b", "lora_rank": 8, "trust_remote_code": True, **more}
        )
        == "llama-factory"
    )


@pytest.mark.parametrize(
    "key", ["use_lora", "data_seeds_of", "logging_path", "eval_split", "save_format", "beta_max"]
)
def test_words_that_other_names_have_are_spelt_right(key: str, tmp_path: Path) -> None:
    assert all(
        severity == "info" for severity, _ in said_of_yaml(tmp_path, {**TRL, key: 1}, *NAMES)
    ), key


OLD = {"evaluation_strategy": "steps", "max_seq_length": 2048, "torch_dtype": "bfloat16"}


def test_old_names_beside_keys_of_a_script_are_one_note(tmp_path: Path) -> None:
    ((severity, message),) = said_of_yaml(
        tmp_path, {**TRL, **OLD, "dataset_mixer": {"a/b": 1}}, "setting-renamed"
    )
    assert severity == "info"
    assert all(key in message for key in OLD)


def test_old_names_in_a_file_of_another_program_are_its_own(tmp_path: Path) -> None:
    own = {
        f"{word}_of_mine": 1
        for word in ("rows", "mix", "cache", "split", "merge", "track", "judge", "seeded")
    }
    assert said_of_yaml(tmp_path, {**TRL, **OLD, **own}, "setting-renamed") == []


def test_old_names_without_a_release_stay_warnings_where_only_trl_reads_the_file(
    tmp_path: Path,
) -> None:
    severities = [
        severity for severity, _ in said_of_yaml(tmp_path, {**TRL, **OLD}, "setting-renamed")
    ]
    assert severities == ["warning"] * len(OLD)


@pytest.mark.parametrize(
    ("more", "severities"),
    [
        ({"beta": 5.0}, ["warning"]), ({"beta": 5.0, "loss_type": "robust"}, ["warning"]),
        ({"beta": 5.0, "loss_type": ["sigmoid", "sft"]}, ["warning"]), ({"beta": -0.1}, ["error"]),
        ({"beta": 0.0, "loss_type": "ipo"}, ["error"]), ({"beta": 0.5}, []),
        ({"beta": 5.0, "loss_type": "sigmoid_norm"}, []), ({"beta": 2.0, "loss_type": "ipo"}, []),
        ({"beta": 10.0, "loss_type": "simpo"}, []), ({"beta": 2.5, "loss_type": "sppo_hard"}, []),
        ({"beta": 2.5, "loss_type": None, "gamma_beta_ratio": 0.5}, []),
        ({"beta": 10.0, "loss_type": None, "simpo_gamma": 1.0, "dataset_mixer": {}}, []),
        ({"beta": 5.0, "loss_type": None, "dpo_loss_type": "dpo_norm"}, []),
    ],
)  # fmt: skip
def test_beta_is_judged_where_the_loss_is_known(
    more: dict[str, Any], severities: list[str], tmp_path: Path
) -> None:
    settings = {key: value for key, value in {**DPO, **more}.items() if value is not None}
    said = said_of_yaml(
        tmp_path, {**settings, "precompute_ref_log_probs": False}, "preference-beta-out-of-range"
    )
    assert [severity for severity, _ in said] == severities


def test_beta_of_the_class_is_judged(tmp_path: Path) -> None:
    text = "from trl import DPOConfig\nDPOConfig('o', beta=5.0)"
    assert said_of_script(tmp_path, text, "preference-beta-out-of-range")


@pytest.mark.parametrize(
    ("more", "count"),
    [
        ({"eval_steps": 100}, 1), ({"eval_steps": 100, "eval_strategy": "no"}, 0),
        ({"eval_steps": 100, "evaluation_strategy": "no"}, 0), ({"eval_steps": 100, "do_eval": False}, 0),
        ({"eval_steps": 100, "eval_strategy": "steps"}, 0), ({"eval_steps": 100, "do_eval": True}, 0),
        ({"max_steps": 100, "num_train_epochs": 3}, 0), ({"max_steps": 100}, 0), ({"eval_steps": None}, 0),
        ({"eval_steps": 100, "do_eval": False, "evaluation_strategy": "no"}, 0),
    ],
)  # fmt: skip
def test_what_is_switched_off_in_so_many_words_is_meant(
    more: dict[str, Any], count: int, tmp_path: Path
) -> None:
    base = {key: value for key, value in TRL.items() if key not in ("eval_strategy", "eval_steps")}
    assert len(said_of_yaml(tmp_path, {**base, **more}, "setting-overruled")) == count


@pytest.mark.parametrize(
    ("limit", "severities"),
    [(10, ["warning"]), (70, ["info"]), (80, []), (300, []), (-1, [])],
)
def test_a_limit_that_cuts_the_epochs_short_is_told_where_the_rows_are_at_hand(
    limit: int, severities: list[str], tmp_path: Path
) -> None:
    """A limit that leaves most rows unseen, below epochs that were asked for, is more than a note."""
    rows = "".join('{"messages": [{"role": "user", "content": "a"}]}\n' for _ in range(100))
    (tmp_path / "rows.jsonl").write_text(rows)
    settings = {
        **TRL,
        "dataset_name": "rows.jsonl",
        "per_device_train_batch_size": 2,
        "num_train_epochs": 3,
        "gradient_accumulation_steps": 1,
        "max_steps": limit,
    }
    said = said_of_yaml(tmp_path, settings, "setting-overruled")
    assert [severity for severity, _ in said] == severities


FULL = """
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("a/b", torch_dtype=torch.bfloat16)
"""


@pytest.mark.parametrize(
    ("before", "count"),
    [
        ("", 1),
        ("for p in model.parameters():\n    p.requires_grad = False\n", 0),
        ("model.requires_grad_(False)\n", 0),
        ("model.model.embed_tokens.weight.requires_grad = False\n", 0),
        ("for p in model.parameters():\n    p.requires_grad = True\n", 1),
        ("model.requires_grad_(True)\n", 1),
    ],
)
def test_where_parameters_are_frozen_by_hand_the_trained_ones_are_not_known(
    before: str, count: int, tmp_path: Path
) -> None:
    text = FULL + before + "Trainer(model, TrainingArguments('o', learning_rate=1e-6)).train()"
    assert len(said_of_script(tmp_path, text, "pure-bf16-updates-rounded-away")) == count


ZERO3_OF_ACCELERATE = """
distributed_type: DEEPSPEED
deepspeed_config: {zero_stage: 3, zero3_init_flag: true}
mixed_precision: bf16
num_processes: 8
"""
FSDP_OF_ACCELERATE = """
distributed_type: FSDP
fsdp_config: {fsdp_sharding_strategy: FULL_SHARD}
mixed_precision: bf16
num_processes: 8
"""
DDP_OF_ACCELERATE = "distributed_type: MULTI_GPU\nmixed_precision: bf16\nnum_processes: 8\n"


@pytest.mark.parametrize(
    ("files", "count"),
    [
        ({"zero3.yaml": ZERO3_OF_ACCELERATE}, 0),
        ({"accelerate/fsdp.yaml": FSDP_OF_ACCELERATE}, 0),
        ({"ds.json": '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}'}, 0),
        (
            {
                "launch/zero3.yaml": ZERO3_OF_ACCELERATE,
                "run.slurm": "#!/bin/bash\n#SBATCH --gres=gpu:8\n"
                "srun accelerate launch --config_file launch/zero3.yaml train.py\n",
            },
            0,
        ),
        ({"run.sh": "accelerate launch --use_fsdp --num_processes 8 train.py\n"}, 0),
        ({"run.sh": "deepspeed --num_gpus 8 train.py\n"}, 0),
        ({"ddp.yaml": DDP_OF_ACCELERATE}, 1),
        ({"run.sh": "torchrun --nproc_per_node 8 train.py\n"}, 1),
        (
            {
                "ddp.yaml": DDP_OF_ACCELERATE,
                "other_zero3.yaml": ZERO3_OF_ACCELERATE,
                "run.sh": "accelerate launch --config_file ddp.yaml train.py\n",
            },
            1,
        ),
        ({"settings.yaml": "learning_rate: 1.0e-6\n"}, 1),
    ],
)
def test_sharding_beside_a_script_keeps_float32_weights(
    files: dict[str, str], count: int, tmp_path: Path
) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    text = FULL + "Trainer(model, TrainingArguments('o', learning_rate=1e-6)).train()"
    assert len(said_of_script(tmp_path, text, "pure-bf16-updates-rounded-away")) == count


@pytest.mark.parametrize(
    ("row", "count"),
    [
        (None, 0), ({"input_ids": [1], "completion_mask": [1]}, 0), ({"input_ids": [1], "labels": [1]}, 0),
        ({"text": "a"}, 1), ({"prompt": "a", "completion": "b"}, 1), ({"pixel_values": [1], "labels": [1]}, 0),
    ],
)  # fmt: skip
def test_masking_of_rows_that_are_left_as_they_are_is_judged_by_their_columns(
    row: dict[str, Any] | None, count: int, tmp_path: Path
) -> None:
    if row is not None:
        (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    settings = {
        **{key: value for key, value in TRL.items() if key != "assistant_only_loss"},
        "dataset_name": "rows.jsonl",
        "completion_only_loss": True,
        "dataset_kwargs": {"skip_prepare_dataset": True},
    }
    assert len(said_of_yaml(tmp_path, settings, "pretokenized-rows-bypass-masking")) == count


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        ("seed: 42\nseed: 42", 0), ("seed: 42\nseed: 42  # again", 0), ("seed: 42\nseed: 43", 1),
        ("fsdp_config:\n  a: 1\nfsdp_config:\n  a: 2", 1), ("report_to: [wandb]\nreport_to: [wandb]", 1),
    ],
)  # fmt: skip
def test_a_key_that_stands_twice_with_one_value_changes_nothing(
    lines: str, count: int, tmp_path: Path
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        yaml.safe_dump({key: value for key, value in TRL.items() if key != "seed"}) + lines + "\n"
    )
    assert (
        len(judge_settings(read_config(path), RunSpec(select=("duplicate-setting",))).findings)
        == count
    )
