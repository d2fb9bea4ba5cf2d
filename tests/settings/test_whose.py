"""Whose settings a file holds, and which of its keys are faults."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from truetune.checks.config.unknown_setting import UnknownSetting
from truetune.checks.judge_settings import judge_settings
from truetune.errors import SpecError
from truetune.settings.run_spec import RunSpec
from truetune.settings.stacks.known_keys import load_known_keys
from truetune.settings.stacks.read_config_of_any_stack import identify_stack, read_config
from truetune.settings.suggest_spelling import find_misspelt_key

TRL = {
    "model_name_or_path": "a/b",
    "dataset_name": "a/rows",
    "learning_rate": 1e-5,
    "output_dir": "out",
    "per_device_train_batch_size": 2,
    "dataset_train_split": "train",
}


def found(settings: dict[str, Any], folder: Path) -> list[tuple[str, str]]:
    """(severity, message) of what is said on keys."""
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(settings))
    spec = RunSpec(select=("unknown-setting", "setting-renamed"))
    return [(f.severity, f.message) for f in judge_settings(read_config(path), spec).findings]


def test_every_script_of_trl_is_written_down() -> None:
    """Each script merges dataclasses into one set of keys; none of those may be unknown."""
    scripts = pytest.importorskip("trl.scripts")
    if importlib.import_module("trl").__version__ != load_known_keys("trl").release:
        pytest.skip("another release than the one that is written down")
    trained = {name for name in load_known_keys("trl").classes if name.endswith("Config")}
    seen = set()
    for info in pkgutil.iter_modules(scripts.__path__):
        module = importlib.import_module(f"trl.scripts.{info.name}")
        if not hasattr(module, "make_parser"):
            continue
        kinds = {kind.__name__: kind for kind in module.make_parser().dataclass_types}
        if not trained & kinds.keys():
            continue  # a server
        seen.add(info.name)
        known = {key for name in kinds for key in load_known_keys("trl").classes.get(name, {})}
        known |= set(load_known_keys("transformers").classes["TrainingArguments"])
        assert {
            key for kind in kinds.values() for key in kind.__dataclass_fields__
        } - known == set(), info.name
    assert {"sft", "dpo", "grpo", "rloo", "kto", "reward"} <= seen


@pytest.mark.parametrize(
    "more",
    [
        {"num_generations": 8, "reward_funcs": ["accuracy_reward", "think_format_reward"]},
        {
            "num_generations": 8,
            "max_completion_length": 512,
            "reward_model_name_or_path": "a/reward",
        },
        {"rloo_k": None, "reward_funcs": ["my_lib.reward"], "num_generations": 2},
        {"beta": 0.1, "dataset_config": "default", "ignore_bias_buffers": True},
        {"datasets": [{"path": "a/rows"}], "streaming": True, "test_split_size": 0.1},
        {"use_peft": True, "lora_r": 8, "attn_implementation": "sdpa", "num_processes": 2},
    ],
)
def test_what_a_script_of_trl_merges_is_known(more: dict[str, Any], tmp_path: Path) -> None:
    more = {key: value for key, value in more.items() if value is not None}
    assert found({**TRL, **more}, tmp_path) == []


@pytest.mark.parametrize(
    "own",
    [
        {
            "dataset_mixer": {"a/rows": 1.0},
            "dataset_splits": ["train", "test"],
            "chat_template": "{{ x }}",
        },
        {
            "dataset_prompt_column": "problem",
            "system_prompt": "Think.",
            "callbacks": ["push"],
            "benchmarks": ["b"],
        },
        {"hub_model_revision": "v1", "wandb_entity": "me", "wandb_project": "p"},
        {
            "reward_funcs": ["format"],
            "num_generations": 4,
            "cosine_min_value_wrong": 0.0,
            "code_language": "python",
            "code_provider": "e2b",
        },
        {"dataset_split": "train", "pass_rate_min": 0.1, "top_n": 4, "min_length": 3},
        {"torch_dtype": "bfloat16", "max_seq_length": 2048, "dataset_mixture": {"datasets": []}},
    ],
)
def test_a_script_with_keys_of_its_own_is_no_fault(own: dict[str, Any], tmp_path: Path) -> None:
    said = found({**TRL, **own}, tmp_path)
    assert [severity for severity, _ in said] == ["info"] * ("max_seq_length" in own)
    config = read_config(tmp_path / "config.yaml")
    assert any(note.startswith("TRL-like, with keys of its own") for note in config.notes)
    names = {place.key for place in config.unknown} & own.keys() - {"torch_dtype", "max_seq_length"}
    unmet = UnknownSetting(config).unmet()
    assert unmet is not None
    assert all(name in unmet.reason for name in names)


@pytest.mark.parametrize("own", [{"lr": 2e-4}, {"system_prompt": "Think.", "epochs": 3}])
def test_one_or_two_strange_keys_are_one_note(own: dict[str, Any], tmp_path: Path) -> None:
    ((severity, message),) = found({**TRL, **own}, tmp_path)
    assert severity == "info"
    assert message.startswith(f"{', '.join(sorted(own))}: unknown to trl 1.16.0, ")


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("learning_rte", "learning_rate"), ("lerning_rate", "learning_rate"), ("num_train_epoch", "num_train_epochs"),
        ("gradient_acumulation_steps", "gradient_accumulation_steps"), ("warmup_step", "warmup_steps"),
        ("per_device_train_batchsize", "per_device_train_batch_size"), ("max_lenght", "max_length"),
        ("gradientcheckpointing", "gradient_checkpointing"), ("Learning_Rate", "learning_rate"),
        ("lr_schedular_type", "lr_scheduler_type"),
    ],
)  # fmt: skip
def test_a_misspelling_is_a_warning_beside_keys_of_ones_own(
    key: str, meant: str, tmp_path: Path
) -> None:
    said = found({**TRL, "system_prompt": "Think.", key: 1}, tmp_path)
    assert ("warning", f"{key} is not a setting of trl 1.16.0; did you mean {meant}?") in said


@pytest.mark.parametrize(
    "key",
    ["dataset_mixer", "chat_template", "hub_model_revision", "top_n", "min_length", "eta_min"],
)
def test_another_word_is_another_name(key: str) -> None:
    assert (
        find_misspelt_key(
            key,
            {
                "dataset_name",
                "chat_template_path",
                "hub_revision",
                "model_revision",
                "top_k",
                "top_p",
                "max_length",
                "eta_max",
            },
        )
        is None
    )


def test_keys_of_a_newer_release_are_a_note_with_the_release(tmp_path: Path) -> None:
    axolotl = {
        "base_model": "a/b",
        "datasets": [{"path": "a", "type": "alpaca"}],
        "sequence_len": 512,
        "micro_batch_size": 1,
        "num_epochs": 1,
        "kernel_of_tomorrow": True,
    }
    assert found(axolotl, tmp_path) == [
        (
            "info",
            (
                "kernel_of_tomorrow: unknown to axolotl 0.21.0, the release against which keys are"
                " checked"
            ),
        ),
    ]


@pytest.mark.parametrize("value", [["full_shard", "auto_wrap"], "full_shard"])
def test_axolotls_deprecated_fsdp_is_a_note(value: object, tmp_path: Path) -> None:
    axolotl = {
        "base_model": "a/b",
        "datasets": [{"path": "a", "type": "alpaca"}],
        "sequence_len": 512,
        "micro_batch_size": 1,
        "num_epochs": 1,
        "fsdp": value,
        "fsdp_config": {"offload_params": True},
    }
    assert found(axolotl, tmp_path) == [("info", "fsdp is fsdp_config in axolotl 0.21.0")]


@pytest.mark.parametrize("listed", ["datasets", "test_datasets"])
@pytest.mark.parametrize(
    ("own", "severity"),
    [
        ({"field_prompt": "a", "field_completion": "b"}, "info"),
        ({"colour": 1}, "info"),
        ({"spilt": "train"}, "warning"),
    ],
)
def test_keys_of_a_data_set_are_told_once(
    listed: str, own: dict[str, Any], severity: str, tmp_path: Path
) -> None:
    axolotl = {
        "base_model": "a/b",
        "datasets": [{"path": "a", "type": "completion"}],
        "sequence_len": 512,
        "micro_batch_size": 1,
        "num_epochs": 1,
    }
    said = found({**axolotl, listed: [{"path": "a", "type": "completion", **own}]}, tmp_path)
    assert [told for told, _ in said] == [severity]


V1: list[dict[str, Any]] = [
    {"model": "a/b", "model_class": "llm", "kernel_config": {"name": "auto"}, "train_dataset": "data/rows.yaml",
     "output_dir": "out", "micro_batch_size": 1, "cutoff_len": 2048, "learning_rate": 1e-4, "max_steps": 10},
    {"model": "a/b", "peft_config": {"name": "lora", "r": 16}, "train_dataset": "data/rows.yaml"},
    {"model": "a/b", "peft_config": {"name": "lora", "export_dir": "merged"}},
    {"model": "a/b", "quant_config": {"name": "bnb"}, "output_dir": "out", "bf16": True},
    {"model": "a/b", "train_dataset": "data/rows.yaml", "output_dir": "out", "learning_rate": 1e-4},
    {"model": "a/b", "sample_backend": "hf", "max_new_tokens": 128},
]  # fmt: skip


@pytest.mark.parametrize("settings", V1)
def test_llama_factorys_v1_form_is_named_and_not_read(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "train.yaml"
    path.write_text(yaml.safe_dump(settings))
    with pytest.raises(SpecError, match="LLaMA-Factory's v1 form"):
        read_config(path)


@pytest.mark.parametrize(
    "settings",
    [
        {"model": {"path": "a/b"}, "data": {"train_files": "x"}, "trainer": {"nnodes": 1}, "algorithm": {"kl": 0}},
        {"model": {"class_path": "x.Model"}, "data": {"class_path": "x.Data"}, "trainer": {"max_epochs": 3}},
        {"model": "a/b", "tuner_type": "lora", "dataset": ["a/rows"], "num_train_epochs": 1, "learning_rate": 1e-4,
         "per_device_train_batch_size": 1, "lora_rank": 8, "output_dir": "out"},
        {"model": "a/b", "data": "rows.jsonl", "lr": 1e-4, "epochs": 3},
        {"checkpoint_dir": "x", "out_dir": "y", "precision": "bf16", "data": {"class_path": "Alpaca"}, "train": {}},
        {"model_name": "a/b", "dataset": "a/rows", "output_dir": "out", "learning_rate": 1e-4, "lora_r": 8},
        {"format": "jsonl", "version": 2},
    ],
)  # fmt: skip
def test_a_file_of_no_known_stack_is_not_read_as_one(settings: dict[str, Any]) -> None:
    assert identify_stack(settings) is None


@pytest.mark.parametrize(
    "settings",
    [
        {"data": "rows.jsonl", "tokenizer": "tok"},
        {"data": ["rows.jsonl"], "tokenizer": "tok", "lern": "answers"},
        {"model": "a/b", "data": "rows.jsonl", "learn": "completion", "surprise": 1},
        {
            "tokenizer": "tok",
            "training": {"learning_rate": 1e-4},
            "data": "rows.jsonl",
            "max-length": 512,
        },
        {"model": "a/b"},
    ],
)
def test_our_own_settings_stay_ours(settings: dict[str, Any]) -> None:
    assert identify_stack(settings) == "truetune"


@pytest.mark.parametrize("key", ["warmup_ratio", "evaluation_strategy", "group_by_length"])
def test_a_key_of_an_earlier_transformers_is_no_scripts_own(key: str, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({**TRL, key: 0.1}))
    notes = read_config(tmp_path / "config.yaml").notes
    assert not any("keys of its own" in note for note in notes)
