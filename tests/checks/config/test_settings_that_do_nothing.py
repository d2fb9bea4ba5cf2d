"""Settings that a stack takes and does nothing with: plug-ins, continued adapters, tasks, evaluations, resumes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.checks.config.settings import AXOLOTL, LLAMA_FACTORY, TRL
from truetune.checks.config.best_model_cannot_be_picked import BestModelCannotBePicked
from truetune.checks.config.lora_settings_without_lora import LoraSettingsWithoutLora
from truetune.checks.config.served_template_differs import ServedTemplateDiffers
from truetune.checks.config.setting_overruled import SettingOverruled
from truetune.checks.config.settings_train_nothing import SettingsTrainNothing
from truetune.checks.config.unknown_setting import UnknownSetting
from truetune.checks.rule import ConfigRule
from truetune.settings.stacks.read_config_of_any_stack import read_config

LIGER = "axolotl.integrations.liger.LigerPlugin"
QLORA = {**AXOLOTL, "adapter": "lora", "lora_r": 32, "lora_alpha": 64, "lora_target_linear": True}
SWIFT = {
    "model": "some/model",
    "tuner_type": "lora",
    "split_dataset_ratio": 0.1,
    "dataset": ["some/rows"],
    "lora_rank": 32,
}
SMALL = {"r": 8, "lora_alpha": 16, "target_modules": ["q_proj", "v_proj"]}
WHOLE = {
    "r": 32,
    "lora_alpha": 64,
    "target_modules": [f"{name}_proj" for name in ("q", "k", "v", "o", "gate", "up", "down")],
}


def messages(folder: Path, kind: type[ConfigRule], settings: dict[str, Any]) -> list[str]:
    """What a rule says of settings, with the severity."""
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    rule = kind(read_config(path))
    return [] if rule.unmet() else [f"{one.severity}: {one.message}" for one in rule.findings()]


def without(settings: dict[str, Any], *keys: str) -> dict[str, Any]:
    """Settings without some of their keys."""
    return {key: value for key, value in settings.items() if key not in keys}


@pytest.mark.parametrize(
    ("plugins", "count"),
    [
        (None, 1),
        ([LIGER], 0),
        (["axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin"], 1),
        (["mine.Plugin"], 0),
    ],
)
def test_settings_of_a_plugin_need_it_in_the_list(
    tmp_path: Path, plugins: list[str] | None, count: int
) -> None:
    settings = {**AXOLOTL, "liger_rope": True, "liger_swiglu": True}
    told = messages(
        tmp_path, UnknownSetting, {**settings, "plugins": plugins} if plugins else settings
    )
    assert len(told) == count, told
    if told:
        assert (
            told[0]
            == f"warning: liger_rope, liger_swiglu have no effect: plugins does not list {LIGER}"
        )


@pytest.mark.parametrize(
    ("settings", "adapter", "told"),
    [
        ({**QLORA, "lora_model_dir": "first"}, SMALL, "r 32 (there: 8), lora_alpha 64 (there: 16), target_modules"),
        ({**QLORA, "lora_model_dir": "first"}, WHOLE, ""),
        (QLORA, SMALL, ""),
        ({**LLAMA_FACTORY, "lora_rank": 32, "adapter_name_or_path": "first"}, SMALL, "r 32 (there: 8)"),
        ({**LLAMA_FACTORY, "lora_rank": 32, "adapter_name_or_path": "other,first"}, SMALL, "r 32 (there: 8)"),
        ({**LLAMA_FACTORY, "lora_rank": 32, "adapter_name_or_path": "first", "create_new_adapter": True}, SMALL, ""),
        ({**SWIFT, "adapters": ["first"]}, SMALL, "r 32 (there: 8)"),
        ({**SWIFT, "adapters": ["elsewhere"]}, SMALL, ""),
    ],
)  # fmt: skip
def test_a_continued_adapter_decides_its_own_settings(
    tmp_path: Path, settings: dict[str, Any], adapter: dict[str, Any], told: str
) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "first/adapter_config.json").write_text(json.dumps(adapter), encoding="utf-8")
    found = [one for one in messages(tmp_path, SettingOverruled, settings) if "LoRA" in one]
    assert bool(found) == bool(told), found
    assert not told or told in found[0]


@pytest.mark.parametrize(
    ("settings", "count"),
    [
        (without(LLAMA_FACTORY, "do_train", "eval_strategy", "eval_steps", "val_size"), 1),
        ({**without(LLAMA_FACTORY, "eval_strategy", "eval_steps", "val_size"), "do_train": False}, 1),
        ({**without(LLAMA_FACTORY, "do_train", "eval_strategy"), "do_predict": True}, 0),
        (LLAMA_FACTORY, 0),
        ({"model_name_or_path": "some/model", "template": "qwen", "infer_backend": "vllm"}, 0),
    ],
)  # fmt: skip
def test_llama_factory_without_a_task_trains_nothing(
    tmp_path: Path, settings: dict[str, Any], count: int
) -> None:
    assert len(messages(tmp_path, SettingsTrainNothing, settings)) == count


@pytest.mark.parametrize(
    ("more", "count"),
    [({}, 1), ({"eval_strategy": "steps", "eval_steps": 10}, 0), ({"do_predict": True}, 0)],
)
def test_rows_to_evaluate_need_a_strategy(tmp_path: Path, more: dict[str, Any], count: int) -> None:
    base = without(LLAMA_FACTORY, "eval_strategy", "eval_steps", "val_size")
    told = messages(tmp_path, SettingOverruled, {**base, "eval_dataset": "held", **more})
    assert len(told) == count, told


@pytest.mark.parametrize(
    ("more", "count"), [({"train_on_inputs": True}, 1), ({"train_on_inputs": False}, 0), ({}, 0)]
)
def test_roles_to_train_do_nothing_where_inputs_are_trained(
    tmp_path: Path, more: dict[str, Any], count: int
) -> None:
    table = {**AXOLOTL["datasets"][0], "roles_to_train": ["assistant"]}
    told = messages(tmp_path, SettingOverruled, {**AXOLOTL, "datasets": [table], **more})
    assert len(told) == count, told


@pytest.mark.parametrize(
    ("release", "count"), [("trl==0.24.0", 1), ("trl==1.9.0", 1), ("trl==1.16.0", 0), ("trl", 0)]
)
def test_a_checkpoint_that_the_release_does_not_read(
    tmp_path: Path, release: str, count: int
) -> None:
    (tmp_path / "requirements.txt").write_text(release + "\n", encoding="utf-8")
    settings = {**TRL, "resume_from_checkpoint": "out/checkpoint-200"}
    assert len(messages(tmp_path, SettingOverruled, settings)) == count


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"eval_strategy": "epoch", "save_strategy": "epoch"}, "save_steps and eval_steps not set"),
        ({"eval_steps": 20, "save_steps": 50}, "save_steps 50 is not a multiple of eval_steps 20"),
        ({"eval_steps": 20, "save_steps": 40}, ""),
        ({"eval_steps": 20, "save_steps": 40, "val_set_size": 0}, ""),
        ({"evals_per_epoch": 4, "saves_per_epoch": 1}, ""),
    ],
)
def test_axolotl_switches_the_best_model_off(
    tmp_path: Path, more: dict[str, Any], told: str
) -> None:
    base = without(AXOLOTL, "evals_per_epoch", "saves_per_epoch")
    found = messages(
        tmp_path, BestModelCannotBePicked, {**base, "load_best_model_at_end": True, **more}
    )
    assert bool(found) == bool(told), found
    assert not told or told in found[0]


@pytest.mark.parametrize(
    ("row", "release", "count"),
    [
        ({"messages": [{"role": "user", "content": "a"}], "rendered": "a"}, "trl", 1),
        ({"prompt": "a", "completion": "b", "rendered": "a b"}, "trl", 1),
        ({"rendered": "a b"}, "trl", 0),
        ({"messages": [{"role": "user", "content": "a"}], "rendered": "a"}, "trl==0.12.0", 0),
    ],
)
def test_a_column_of_text_beside_chats(
    tmp_path: Path, row: dict[str, Any], release: str, count: int
) -> None:
    (tmp_path / "requirements.txt").write_text(release + "\n", encoding="utf-8")
    rows = tmp_path / "rows.jsonl"
    rows.write_text((json.dumps(row) + "\n") * 3, encoding="utf-8")
    settings = {**TRL, "dataset_name": str(rows), "dataset_text_field": "rendered"}
    assert len(messages(tmp_path, SettingOverruled, settings)) == count


@pytest.mark.parametrize(("tuner", "count"), [("full", 1), ("lora", 0), (None, 0)])
def test_settings_of_lora_in_a_full_training_of_swift(
    tmp_path: Path, tuner: str | None, count: int
) -> None:
    settings = {**without(SWIFT, "tuner_type"), "torch_dtype": "bfloat16"}
    if tuner is not None:
        settings["tuner_type"] = tuner
    else:
        settings["train_type"] = "lora"
    assert len(messages(tmp_path, LoraSettingsWithoutLora, settings)) == count


@pytest.mark.parametrize(
    ("root", "of_rows", "count"),
    [(None, "chatml", 1), ("llama3", "llama3", 0), (None, "llama3", 0), (None, None, 0)],
)
def test_a_template_of_a_data_set_alone_is_not_saved(
    tmp_path: Path, root: str | None, of_rows: str | None, count: int
) -> None:
    table = {**AXOLOTL["datasets"][0], **({"chat_template": of_rows} if of_rows else {})}
    settings = {
        **without(AXOLOTL, "chat_template"),
        "base_model": "meta-llama/Llama-3.1-8B-Instruct",
        "datasets": [table],
        **({"chat_template": root} if root else {}),
    }
    assert len(messages(tmp_path, ServedTemplateDiffers, settings)) == count
