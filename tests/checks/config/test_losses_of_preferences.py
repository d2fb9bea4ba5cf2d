"""Settings that a preference loss reads in its own way: SimPO's beta, KTO's batch, ORPO's learning rate."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.checks.config.settings import LLAMA_FACTORY
from truetune.checks.config.preference_beta_out_of_range import PreferenceBetaOutOfRange
from truetune.checks.config.setting_out_of_range import SettingOutOfRange
from truetune.checks.lint import lint
from truetune.settings.stacks.read_config_of_any_stack import read_config

CODES = ("CFG015", "CFG016", "CFG043")
SCRIPT = """
from trl import {kind}Config, {kind}Trainer
args = {kind}Config(output_dir="out", max_length=1024, {settings})
{kind}Trainer(model="some/base", args=args, train_dataset=rows{lora}).train()
"""
LORA = ', peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear")'


def findings(path: Path, text: str) -> list[str]:
    """The rules that fire on a file of settings, with their severity."""
    path.write_text(text, encoding="utf-8")
    return [f"{found.code} {found.severity}" for found in lint([str(path)], select=CODES).findings]


@pytest.mark.parametrize(
    ("kind", "settings", "expected"),
    [
        ("CPO", 'loss_type="simpo", cpo_alpha=0.0, learning_rate=1e-6', ["CFG016 warning"]),
        ("CPO", 'loss_type="simpo", learning_rate=1e-6, beta=2.0', ["CFG043 info"]),
        ("CPO", 'loss_type="simpo", learning_rate=1e-6, beta=2.5, cpo_alpha=0.05', ["CFG043 info"]),
        ("CPO", 'loss_type="simpo", learning_rate=1e-6, beta=2.0, cpo_alpha=0.0', []),
        ("CPO", "learning_rate=1e-6", []),
        ("CPO", 'loss_type="hinge", learning_rate=1e-6', []),
        ("CPO", 'loss_type="ipo", learning_rate=1e-6', []),
        ("DPO", "learning_rate=1e-6, per_device_train_batch_size=1", []),
        ("KTO", "learning_rate=1e-6, per_device_train_batch_size=2", ["CFG043 info"]),
        (
            "KTO",
            "learning_rate=1e-6, per_device_train_batch_size=3, gradient_accumulation_steps=32",
            ["CFG043 info"],
        ),
        ("KTO", "learning_rate=1e-6, per_device_train_batch_size=4", []),
        ("KTO", "learning_rate=1e-6", []),
        (
            "KTO",
            'learning_rate=1e-6, per_device_train_batch_size=2, loss_type="apo_zero_unpaired"',
            [],
        ),
        ("ORPO", "learning_rate=5e-7", ["CFG015 warning"]),
        ("ORPO", "learning_rate=2e-7, beta=0.2", ["CFG015 warning"]),
        ("ORPO", "learning_rate=1e-2", ["CFG015 warning"]),
        ("ORPO", "learning_rate=1e-6", []),
        ("ORPO", "learning_rate=8e-6", []),
        ("ORPO", "learning_rate=5e-5", []),
    ],
)
def test_settings_of_scripts(kind: str, settings: str, expected: list[str], tmp_path: Path) -> None:
    text = SCRIPT.format(kind=kind, settings=settings, lora="")
    assert findings(tmp_path / "train.py", text) == expected


@pytest.mark.parametrize(
    ("rate", "expected"), [("5e-7", ["CFG015 warning"]), ("8e-6", []), ("2e-4", []), ("5e-4", [])]
)
def test_adapters_by_orpo(rate: str, expected: list[str], tmp_path: Path) -> None:
    text = "from peft import LoraConfig\n" + SCRIPT.format(
        kind="ORPO", settings=f"learning_rate={rate}", lora=LORA
    )
    assert findings(tmp_path / "train.py", text) == expected


@pytest.mark.parametrize(
    ("over", "expected"),
    [
        ({"stage": "dpo", "pref_loss": "simpo", "pref_beta": 0.1}, 1),
        ({"stage": "dpo", "pref_loss": "simpo", "pref_beta": 2.0, "simpo_gamma": 1.0}, 0),
        ({"stage": "dpo", "pref_loss": "sigmoid"}, 0),
        ({"stage": "kto", "per_device_train_batch_size": 1}, 0),
    ],
)
def test_settings_of_llama_factory(over: dict[str, object], expected: int, tmp_path: Path) -> None:
    path = tmp_path / "train.yaml"
    path.write_text(yaml.safe_dump({**LLAMA_FACTORY, **over}), encoding="utf-8")
    config = read_config(path)
    found = [*PreferenceBetaOutOfRange(config).findings(), *SettingOutOfRange(config).findings()]
    assert len(found) == expected
