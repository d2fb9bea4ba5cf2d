"""LLaMA-Factory's YAML and JSON: values that take effect, and the data sets that dataset_info.json explains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from truetune.errors import SpecError
from truetune.settings.config import Config
from truetune.settings.stacks.read_config_of_any_stack import read_config

LORA = """\
model_name_or_path: some/model
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 16
lora_target: all
additional_target: embed_tokens,lm_head
quantization_bit: 4
dataset: rows
template: qwen3
cutoff_len: 2048
neat_packing: true
per_device_train_batch_size: 2
learning_rate: 1.0e-4
warmup_ratio: 0.1
bf16: true
flash_attn: fa2
val_size: 0.1
eval_strategy: steps
eval_steps: 100
overwrite_output_dir: true
add_special_tokens: <a>,<b>
resize_vocab: true
tokenized_path: cache
"""


def config(folder: Path, text: str, info: dict[str, Any] | None = None) -> Config:
    (folder / "data").mkdir(exist_ok=True)
    (folder / "data" / "dataset_info.json").write_text(
        json.dumps(info or {"rows": {"file_name": "rows.json"}})
    )
    (folder / "data" / "rows.json").write_text("[]")
    (folder / "conf").mkdir(exist_ok=True)
    path = folder / "conf" / "config.yaml"
    path.write_text(text)
    return read_config(path, "llama-factory")


def test_values_places_and_defaults(tmp_path: Path) -> None:
    found = config(tmp_path, LORA)
    assert (found.stack, found.version, found.limit, found.unknown, found.renamed) == (
        "llama-factory", "0.9.5", 2048, (), (),
    )  # fmt: skip
    spec, training = found.spec, found.spec.training
    assert (spec.data, spec.format, spec.map) == ((str(tmp_path / "data/rows.json"),), "alpaca", {})
    assert (spec.tokenizer, spec.max_length, spec.history) == ("some/model", 2048, "single")
    assert (training.method, training.learning_rate, training.warmup_ratio) == ("sft", 1e-4, 0.1)
    assert (training.packing, training.packing_strategy, training.load_in) == (True, "neat", 4)
    assert training.lora is not None
    assert (training.lora.r, training.lora.lora_alpha, training.lora.target_modules) == (
        16,
        32,
        "all-linear",
    )
    assert training.lora.modules_to_save == ("embed_tokens", "lm_head")
    assert (training.attn_implementation, training.gradient_checkpointing) == (
        "flash_attention_2",
        True,
    )
    assert (training.remove_unused_columns, training.added_tokens, training.resize_vocab) == (
        False,
        ("<a>", "<b>"),
        True,
    )
    assert (training.prepared_path, training.val_size, training.eval_steps) == ("cache", 0.1, 100)
    assert training.other == {"do_train": True, "template": "qwen3", "overwrite_output_dir": True}
    assert found.places["training.lora.r"].line == 5
    assert any("qwen3 is LLaMA-Factory's own" in note for note in found.notes)
    assert found.own_prompt


def test_json_and_strings_as_numbers(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(
        '{"stage": "sft", "model_name_or_path": "m", "finetuning_type": "full", "learning_rate":'
        ' "2e-5"}'
    )
    found = read_config(path)
    assert found.spec.training.learning_rate == 2e-5
    assert (found.spec.training.lora, found.limit) == (None, 2048)
    assert found.places["training.learning_rate"] == (str(path), 1, "learning_rate", 72)


@pytest.mark.parametrize(
    ("settings", "method", "learn"),
    [
        ("stage: pt", "pretrain", "all"),
        ("stage: sft\ntrain_on_prompt: true", "sft", "all"),
        ("stage: sft\nmask_history: true", "sft", "last"),
        ("stage: dpo", "dpo", "assistant"),
        ("stage: dpo\npref_loss: orpo", "orpo", "assistant"),
        ("stage: dpo\npref_loss: simpo", "cpo", "assistant"),
        ("stage: kto", "kto", "assistant"),
        ("stage: rm", "reward", "assistant"),
        ("stage: ppo", "ppo", "assistant"),
    ],
)
def test_methods(tmp_path: Path, settings: str, method: str, learn: str) -> None:
    found = config(tmp_path, f"model_name_or_path: m\nfinetuning_type: full\n{settings}\n")
    assert (found.spec.training.method, found.spec.learn.what) == (method, learn)
    assert found.spec.training.packing == (method == "pretrain")
    assert found.spec.append_eos == (method == "pretrain")


@pytest.mark.parametrize(
    ("about", "format", "columns"),
    [
        ({}, "alpaca", {}),
        ({"columns": {"prompt": "q", "response": "a"}}, "alpaca", {"instruction": "q", "output": "a"}),
        ({"columns": {"prompt": "q", "response": "a", "system": "s", "history": "h"}}, "alpaca",
         {"instruction": "q", "output": "a", "system": "s", "history": "h"}),
        ({"formatting": "sharegpt"}, "sharegpt", {}),
        ({"formatting": "sharegpt", "columns": {"messages": "chat", "tools": "tools"}}, "sharegpt",
         {"conversations": "chat"}),
        ({"formatting": "sharegpt", "columns": {"messages": "messages"},
          "tags": {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"}},
         "messages", {}),
        ({"ranking": True, "columns": {"prompt": "q", "chosen": "good", "rejected": "bad"}}, "preference",
         {"instruction": "q", "chosen": "good", "rejected": "bad"}),
        ({"formatting": "sharegpt", "ranking": True,
          "columns": {"messages": "conversations", "chosen": "chosen", "rejected": "rejected"}}, "preference", {}),
        ({"columns": {"prompt": "instruction", "response": "output", "kto_tag": "label"}}, "kto", {}),
        ({"columns": {"prompt": "q", "images": "pics"}}, "alpaca", {"instruction": "q", "images": "pics"}),
        ({"columns": {"prompt": "q", "images": "images"}}, "alpaca", {"instruction": "q"}),
        ({"formatting": "sharegpt", "tags": {"user_tag": "customer"}}, "messages", {
            "messages": "conversations", "message.role": "from", "message.content": "value", "role.user": "customer",
            "role.assistant": "gpt,function_call", "role.system": "system", "role.tool": "observation"}),
    ],
)  # fmt: skip
def test_data_sets(
    tmp_path: Path, about: dict[str, Any], format: str, columns: dict[str, str]
) -> None:
    info = {"rows": {"file_name": "rows.json", **about}}
    found = config(tmp_path, "model_name_or_path: m\nstage: sft\ndataset: rows\n", info)
    assert (len(found.spec.data), found.spec.format, found.spec.map) == (1, format, columns)


def test_text_of_pretraining(tmp_path: Path) -> None:
    info = {"rows": {"file_name": "rows.json", "columns": {"prompt": "text"}}}
    found = config(tmp_path, "model_name_or_path: m\nstage: pt\ndataset: rows\n", info)
    assert (found.spec.format, found.spec.map, found.spec.learn.what) == ("text", {}, "all")


def test_data_sets_elsewhere(tmp_path: Path) -> None:
    info = {
        "rows": {"file_name": "rows.json"},
        "hub": {"hf_hub_url": "some/rows"},
        "gone": {"file_name": "gone.json"},
    }
    found = config(
        tmp_path, "model_name_or_path: m\nstage: sft\ndataset: rows, hub, gone, typo\n", info
    )
    assert len(found.spec.data) == 1
    assert found.spec.training.other["datasets"] == ["hub", "gone", "typo"]
    assert [place.key for place in found.missing] == ["typo"]
    found = config(
        tmp_path, "model_name_or_path: m\nstage: sft\ndataset: a\ndataset_dir: REMOTE:some/repo\n"
    )
    assert "not looked at, because they are not on this machine: a" in found.notes


def test_unknown_and_old_keys(tmp_path: Path) -> None:
    found = config(
        tmp_path, "model_name_or_path: m\nstage: sft\nevaluation_strategy: epoch\nlr: 1e-4\n"
    )
    assert [place.key for place in found.unknown] == ["evaluation_strategy", "lr"]
    assert [(old.place.key, old.now) for old in found.renamed] == [
        ("evaluation_strategy", "eval_strategy")
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cutoff_len: long", "config.yaml:3: cutoff_len: input should be a valid integer"),
        ("lora_rank: 0", "config.yaml:3: lora_rank: input should be greater than 0"),
        ("num_train_epochs: []", "config.yaml:3: num_train_epochs: input should be a valid number"),
    ],
)
def test_values_of_the_wrong_kind(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SpecError) as error:
        config(tmp_path, f"model_name_or_path: m\nstage: sft\n{text}\n")
    assert said in str(error.value)


def test_a_broken_dataset_info(tmp_path: Path) -> None:
    config(tmp_path, "model_name_or_path: m\nstage: sft\n")
    (tmp_path / "data" / "dataset_info.json").write_text('{"rows": \n}')
    path = tmp_path / "conf" / "config.yaml"
    path.write_text("model_name_or_path: m\nstage: sft\ndataset: rows\n")
    with pytest.raises(SpecError, match=r"dataset_info.json:2: not JSON"):
        read_config(path)
