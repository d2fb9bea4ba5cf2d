"""Settings that a stack reads only where another setting has certain values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.checks.config.settings import AXOLOTL, LLAMA_FACTORY, TRL
from truetune.checks.config.evidence.settings_read_under_conditions import CONDITIONS
from truetune.checks.config.setting_overruled import SettingOverruled
from truetune.checks.lint import lint
from truetune.settings.stacks.known_keys import load_known_keys
from truetune.settings.stacks.read_config_of_any_stack import read_config

DPO = {
    **{key: value for key, value in TRL.items() if key != "assistant_only_loss"},
    "beta": 0.1,
    "learning_rate": 5.0e-7,
}
SWIFT = {
    "model": "some/model",
    "tuner_type": "lora",
    "split_dataset_ratio": 0.1,
    "dataset": ["some/rows"],
}
SCRIPT = """
from trl import {kind}Config, {kind}Trainer
args = {kind}Config(output_dir="out", max_length=1024, {settings})
{kind}Trainer(model="some/base", args=args, train_dataset=rows).train()
"""


def of_script(path: Path, text: str) -> list[str]:
    """What `setting-overruled` says of a script, with the severity."""
    path.write_text(text, encoding="utf-8")
    report = lint([str(path)], select=("CFG014",))
    return [f"{found.severity}: {found.message}" for found in report.findings]


def of_yaml(folder: Path, settings: dict[str, Any]) -> list[str]:
    """What `setting-overruled` says of a file of settings, with the severity."""
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    rule = SettingOverruled(read_config(path))
    return [f"{found.severity}: {found.message}" for found in rule.findings()]


@pytest.mark.parametrize(
    ("base", "more", "begins"),
    [
        (AXOLOTL, {"cosine_min_lr_ratio": 0.1, "lr_scheduler": "linear"},
         "warning: cosine_min_lr_ratio has no effect: lr_scheduler is linear"),
        (AXOLOTL, {"cosine_constant_lr_ratio": 0.8},
         "warning: cosine_constant_lr_ratio has no effect: cosine_min_lr_ratio is false by default"),
        (AXOLOTL, {"gradient_checkpointing": None, "gradient_checkpointing_kwargs": {"use_reentrant": False}},
         "warning: gradient_checkpointing_kwargs has no effect: gradient_checkpointing is false by default"),
        (AXOLOTL, {"gradient_checkpointing": False, "gradient_checkpointing_kwargs": {"use_reentrant": False}},
         "info: gradient_checkpointing_kwargs has no effect"),
        (AXOLOTL, {"chat_template": "chatml", "chat_template_jinja": "./own.jinja"},
         "warning: chat_template_jinja has no effect: chat_template is chatml"),
        (AXOLOTL, {"overrides_of_model_config": {"router_aux_loss_coef": 0.02}},
         "warning: overrides_of_model_config.router_aux_loss_coef has no effect:"
         " overrides_of_model_config.output_router_logits is false by default"),
        (TRL, {"model_init_kwargs": {"router_aux_loss_coef": 0.001}},
         "warning: model_init_kwargs.router_aux_loss_coef has no effect"),
        (AXOLOTL, {"overrides_of_model_config": {"router_aux_loss_coef": 0.02, "output_router_logits": False}},
         "info: overrides_of_model_config.router_aux_loss_coef has no effect"),
        (LLAMA_FACTORY, {"stage": "dpo", "simpo_gamma": 1.0},
         "warning: simpo_gamma has no effect: pref_loss is sigmoid by default"),
        (LLAMA_FACTORY, {"stage": "dpo", "pref_loss": "simpo", "ref_model": "some/model"},
         "warning: ref_model has no effect: pref_loss is simpo"),
        (LLAMA_FACTORY, {"stage": "kto", "pref_loss": "simpo"}, "warning: pref_loss has no effect: stage is kto"),
        (LLAMA_FACTORY, {"double_quantization": True, "quantization_type": "nf4"},
         "warning: double_quantization, quantization_type have no effect: quantization_bit is false by default"),
        (DPO, {"ref_model_sync_steps": 64},
         "warning: ref_model_sync_steps has no effect: sync_ref_model is false by default"),
        (DPO, {"loss_type": "ipo", "label_smoothing": 0.1},
         "warning: label_smoothing has no effect: loss_type is ipo"),
        (SWIFT, {"quant_bits": 4}, "warning: quant_bits has no effect: quant_method is false by default"),
        (SWIFT, {"bnb_4bit_quant_type": "nf4", "quant_method": "hqq", "quant_bits": 4},
         "warning: bnb_4bit_quant_type has no effect: quant_method is hqq"),
        (TRL, {"packing_strategy": "bfd"}, "warning: packing_strategy has no effect: packing is false by default"),
    ],
)  # fmt: skip
def test_a_setting_that_is_not_read_is_named(
    tmp_path: Path, base: dict[str, Any], more: dict[str, Any], begins: str
) -> None:
    settings = {key: value for key, value in {**base, **more}.items() if value is not None}
    told = of_yaml(tmp_path, settings)
    assert len(told) == 1, told
    assert told[0].startswith(begins)


@pytest.mark.parametrize(
    ("base", "more"),
    [
        (AXOLOTL, {}),
        (AXOLOTL, {"overrides_of_model_config": {"router_aux_loss_coef": 0.02, "output_router_logits": True}}),
        (AXOLOTL, {"overrides_of_model_config": {"router_aux_loss_coef": 0.0}}),
        (AXOLOTL, {"overrides_of_model_config": {"rope_theta": 1.0e6}}),
        (TRL, {"model_init_kwargs": {"router_aux_loss_coef": 0.001, "output_router_logits": True}}),
        (AXOLOTL, {"cosine_min_lr_ratio": 0.1}),
        (AXOLOTL, {"cosine_min_lr_ratio": 0.1, "lr_scheduler": "rex"}),
        (AXOLOTL, {"cosine_min_lr_ratio": 0.1, "cosine_constant_lr_ratio": 0.8}),
        (AXOLOTL, {"chat_template": "jinja", "chat_template_jinja": "./own.jinja"}),
        (AXOLOTL, {"gradient_checkpointing_kwargs": {"use_reentrant": False}}),
        (AXOLOTL, {"gradient_checkpointing": "offload", "gradient_checkpointing_kwargs": {"use_reentrant": True}}),
        (LLAMA_FACTORY, {}),
        (LLAMA_FACTORY, {"stage": "dpo", "pref_loss": "simpo", "simpo_gamma": 1.0}),
        (LLAMA_FACTORY, {"stage": "dpo", "ref_model": "some/model"}),
        (LLAMA_FACTORY, {"double_quantization": True, "quantization_bit": 4}),
        (DPO, {"sync_ref_model": True, "ref_model_sync_steps": 64}),
        (DPO, {"loss_type": ["robust", "sft"], "label_smoothing": 0.1}),
        (SWIFT, {"quant_bits": 4, "quant_method": "bnb", "bnb_4bit_quant_type": "nf4"}),
        (TRL, {"packing": True, "packing_strategy": "bfd", "attn_implementation": "flash_attention_2"}),
        (LLAMA_FACTORY, {"double_quantization": True, "quantization_bit": None}),
        # A script of its own may switch on what the file leaves out.
        (TRL, {"packing_strategy": "bfd", "dataset_mixer": {"some/rows": 1.0}}),
    ],
)  # fmt: skip
def test_a_setting_that_is_read_is_not(
    tmp_path: Path, base: dict[str, Any], more: dict[str, Any]
) -> None:
    assert of_yaml(tmp_path, {**base, **more}) == []


@pytest.mark.parametrize(
    ("kind", "settings", "count"),
    [
        ("DPO", "ref_model_mixup_alpha=0.5", 1),
        ("DPO", "ref_model_mixup_alpha=0.5, sync_ref_model=True", 0),
        ("DPO", "ref_model_mixup_alpha=0.5, sync_ref_model=options.sync", 0),
        ("DPO", "ref_model_mixup_alpha=0.5, **more", 0),
        ("DPO", "loss_type='exo_pair', label_smoothing=0.01", 0),
        ("DPO", "loss_type=kind, label_smoothing=0.01", 0),
        ("GRPO", "vllm_mode='server', vllm_gpu_memory_utilization=0.5, use_vllm=True", 1),
        ("GRPO", "vllm_mode='colocate', vllm_gpu_memory_utilization=0.5, use_vllm=True", 0),
        ("GRPO", "vllm_mode='colocate'", 1),
    ],
)
def test_calls_of_scripts_are_judged_as_files_are(
    tmp_path: Path, kind: str, settings: str, count: int
) -> None:
    told = of_script(tmp_path / "train.py", SCRIPT.format(kind=kind, settings=settings))
    assert len(told) == count, told


@pytest.mark.parametrize(("release", "count"), [("0.24.0", 0), ("1.0.0", 1)])
def test_label_smoothing_of_the_sigmoid_loss_depends_on_the_release(
    tmp_path: Path, release: str, count: int
) -> None:
    (tmp_path / "requirements.txt").write_text(f"trl=={release}\n", encoding="utf-8")
    assert len(of_yaml(tmp_path, {**DPO, "loss_type": "sigmoid", "label_smoothing": 0.1})) == count


def test_all_keys_of_the_table_are_known_to_their_stack() -> None:
    for stack in ("trl", "axolotl", "llama-factory"):
        packages = ("trl", "transformers") if stack == "trl" else (stack,)
        known = {
            key
            for package in packages
            for keys in load_known_keys(package).classes.values()
            for key in keys
        }
        used = {
            key.partition(".")[0]
            for condition in CONDITIONS[stack]
            for key in (*condition.keys, condition.switch)
        }
        assert used <= known, (stack, used - known)


def test_a_model_that_returns_its_router_logits(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    settings = {
        "base_model": str(model),
        "overrides_of_model_config": {"router_aux_loss_coef": 0.02},
    }
    for returns, count in ((True, 0), (False, 1)):
        (model / "config.json").write_text(
            json.dumps({"model_type": "mixtral", "output_router_logits": returns}), encoding="utf-8"
        )
        assert len(of_yaml(tmp_path, {**AXOLOTL, **settings})) == count
