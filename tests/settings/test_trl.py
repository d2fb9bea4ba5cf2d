"""TRL's YAML: values that take effect, where they stand, and which trainer they are for."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.errors import SpecError
from truetune.settings.config import Config
from truetune.settings.stacks.read_config_of_any_stack import read_config

SFT = """\
model_name_or_path: some/model
dataset_name: rows
learning_rate: 2e-4
packing: true
use_peft: true
lora_r: 32
lora_target_modules: [all-linear]
load_in_4bit: true
gradient_checkpointing_kwargs: {use_reentrant: false}
deepspeed: conf/ds.json
num_processes: 4
pad_token: <|pad|>
report_to: none
"""


def config(folder: Path, text: str, name: str = "config.yaml") -> Config:
    path = folder / name
    path.write_text(text)
    return read_config(path, "trl")


def test_values_places_and_defaults(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/ds.json").write_text('{\n\t"zero_optimization": {"stage": 3}}')
    found = config(tmp_path, SFT)
    assert (found.stack, found.version, found.limit, found.unknown) == ("trl", "1.16.0", 1024, ())
    assert found.spec.data == (str(tmp_path / "rows"),)
    assert found.spec.tokenizer == found.spec.model == "some/model"
    assert found.spec.max_length is None
    assert (found.spec.append_eos, found.spec.history) == (True, "single")
    training = found.spec.training
    assert (training.method, training.learning_rate, training.num_train_epochs) == (
        "sft",
        2e-4,
        3.0,
    )
    assert (training.packing, training.eval_packing, training.packing_strategy) == (
        True,
        True,
        "bfd",
    )
    assert (training.bf16, training.dtype, training.gradient_checkpointing) == (
        True,
        "float32",
        True,
    )
    assert (training.use_reentrant, training.deepspeed_stage, training.load_in) == (False, 3, 4)
    assert training.lora is not None
    assert (training.lora.r, training.lora.lora_alpha, training.lora.target_modules) == (
        32,
        32,
        "all-linear",
    )
    assert (training.devices, training.shuffle, training.special_tokens) == (
        4,
        True,
        {"pad_token": "<|pad|>"},
    )
    assert training.other == {"report_to": "none"}
    place = found.places["training.learning_rate"]
    assert (place.file, place.line, place.key, place.column) == (found.path, 3, "learning_rate", 1)
    assert found.places["training.lora.r"].key == "lora_r"
    assert "training.num_train_epochs" not in found.places
    assert found.notes == ("read as the settings of SFTConfig (sft)",)


def test_null_is_a_value(tmp_path: Path) -> None:
    found = config(tmp_path, "model_name_or_path: m\nmax_length:\nassistant_only_loss: true\n")
    assert (found.limit, found.spec.max_length) == (None, None)
    assert found.places["max_length"].line == 2
    assert (found.spec.learn.what, found.spec.mask_by) == ("assistant", "contract")
    (tmp_path / "m").mkdir()
    (tmp_path / "m/chat_template.jinja").write_text("{%- generation -%}{{ x }}{% endgeneration %}")
    found = config(tmp_path, "model_name_or_path: m\nassistant_only_loss: true\n")
    assert (found.spec.learn.what, found.spec.mask_by) == ("assistant", "generation-tags")


def test_what_the_release_does_not_know_has_no_effect(tmp_path: Path) -> None:
    text = (
        "model_name_or_path: m\nmax_seq_length: 4096\nwarmup_ratio: 0.1\nlearning_rte:"
        " 1.0\ntorch_dtype: bfloat16\n"
    )
    found = config(tmp_path, text)
    assert [(place.line, place.key) for place in found.unknown] == [
        (2, "max_seq_length"),
        (3, "warmup_ratio"),
        (4, "learning_rte"),
        (5, "torch_dtype"),
    ]
    assert {old.place.key: old.now for old in found.renamed} == {
        "max_seq_length": "max_length",
        "warmup_ratio": "warmup_steps",
        "torch_dtype": "dtype",
    }
    assert (found.limit, found.spec.training.warmup_ratio, found.spec.training.dtype) == (
        1024,
        None,
        "float32",
    )
    assert found.raw["max_seq_length"] == 4096


@pytest.mark.parametrize(
    ("keys", "method", "sure"),
    [
        ("beta: 0.1\nloss_type: sigmoid\nprecompute_ref_log_probs: true", "dpo", False),
        ("beta: 0.1\nf_divergence_type: reverse_kl", "dpo", True),
        ("beta: 0.1\ndesirable_weight: 1.3", "kto", True),
        ("num_generations: 8", "grpo", True),
        ("center_rewards_coefficient: 0.01", "reward", True),
        ("packing: true", "sft", True),
        ("logging_steps: 5", "sft", False),
    ],
)
def test_the_trainer_is_told_by_the_keys(
    tmp_path: Path, keys: str, method: str, sure: bool
) -> None:
    found = config(tmp_path, f"model_name_or_path: m\n{keys}\n")
    assert found.spec.training.method == method
    assert any("because no key speaks for another" in note for note in found.notes) != sure


def test_where_keys_leave_it_open_the_name_helps(tmp_path: Path) -> None:
    text = "model_name_or_path: m\nbeta: 0.1\n"
    assert config(tmp_path, text, "kto.yaml").spec.training.method == "kto"
    assert config(tmp_path, text, "dpo.yaml").spec.training.method == "dpo"
    assert (
        config(tmp_path, "model_name_or_path: m\n", "reward_small.yaml").spec.training.learning_rate
        == 1e-4
    )


def test_data_sets_here_and_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "x"}\n')
    found = config(
        tmp_path,
        "model_name_or_path: m\nmax_length: 64\ndatasets:\n  - path: json\n    data_files:"
        " a.jsonl\n  - path: some/rows\n  - {path: json, data_files: [none.jsonl]}\n",
    )
    assert found.spec.data == (str(tmp_path / "a.jsonl"),)
    assert found.spec.training.other["datasets"] == ["some/rows", "json"]
    assert found.notes[-1] == "not looked at, because they are not on this machine: some/rows, json"
    assert (found.limit, found.spec.max_length) == (64, 64)


@pytest.mark.parametrize(
    ("row", "settings", "learned"),
    [
        ('{"messages": []}', "", "all"),
        ('{"prompt": "a", "completion": "b"}', "", "completion"),
        ('{"prompt": "a", "completion": "b"}', "completion_only_loss: false", "all"),
        ('{"messages": []}', "completion_only_loss: true", "all"),
        ('{"messages": []}', "assistant_only_loss: true", "assistant"),
        ("", "", "assistant"),
    ],
)
def test_what_is_learned(tmp_path: Path, row: str, settings: str, learned: str) -> None:
    (tmp_path / "a.jsonl").write_text(f"{row}\n")
    found = config(
        tmp_path, f"model_name_or_path: m\ndataset_name: a.jsonl\npacking: false\n{settings}\n"
    )
    assert found.spec.learn.what == learned


def test_the_text_field_counts_where_there_is_one(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"body": "x"}\n')
    text = "model_name_or_path: m\ndataset_name: a.jsonl\npacking: false\ndataset_text_field: "
    assert config(tmp_path, f"{text}body\n").spec.map == {"text": "body"}
    assert config(tmp_path, f"{text}other\n").spec.map == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("learning_rate: abc", "config.yaml:2: learning_rate: input should be a valid number"),
        ("max_length: 12.5", "config.yaml:2: max_length: input should be a valid integer"),
        ("max_length: 0", "config.yaml:2: max_length: input should be greater than 0"),
        ("packing: [1]", "config.yaml:2: packing: input should be a valid boolean"),
        (
            "model_init_kwargs: 3",
            "config.yaml:2: model_init_kwargs: expected keys and values, found 3",
        ),
        ("use_peft: true\nlora_r: -1", "config.yaml:3: lora_r: input should be greater than 0"),
        (
            "deepspeed: {zero_optimization: {stage: 7}}",
            "config.yaml:2: zero_optimization.stage: expected 0, 1, 2 or 3",
        ),
    ],
)
def test_values_of_the_wrong_kind(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SpecError) as error:
        config(tmp_path, f"model_name_or_path: m\n{text}\n")
    assert said in str(error.value)


def test_duplicates_are_facts(tmp_path: Path) -> None:
    found = config(
        tmp_path, "model_name_or_path: m\nseed: 1\nlearning_rate: 1e-5\nlearning_rate: 3e-5\n"
    )
    assert [(first.line, second.line, first.key) for first, second in found.repeated] == [
        (3, 4, "learning_rate")
    ]
    assert found.spec.training.learning_rate == 3e-5
