"""Marks of chats that a base never trained, by the published name of the base and the template of the settings."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.checks.config.settings import AXOLOTL, LLAMA_FACTORY
from truetune.checks.config.new_tokens_left_untrained import NewTokensLeftUntrained
from truetune.settings.stacks.read_config_of_any_stack import read_config

BASE = "meta-llama/Meta-Llama-3-8B"
LORA = {"adapter": "qlora", "load_in_4bit": True, "lora_r": 16, "lora_target_linear": True}


def count(path: Path, settings: dict[str, object]) -> int:
    """The findings on settings of a stack."""
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return len(tuple(NewTokensLeftUntrained(read_config(path)).findings()))


@pytest.mark.parametrize(
    ("over", "expected"),
    [
        ({"base_model": BASE, "chat_template": "llama3"}, 1),
        ({"base_model": "NousResearch/Meta-Llama-3.1-8B", "chat_template": "llama3"}, 1),
        ({"base_model": f"{BASE}-Instruct", "chat_template": "llama3"}, 0),
        ({"base_model": BASE, "chat_template": "tokenizer_default"}, 0),
        ({"base_model": BASE, "chat_template": "alpaca"}, 0),  # plain words, no marks
        (
            {
                "base_model": BASE,
                "chat_template": "llama3",
                "lora_modules_to_save": ["embed_tokens", "lm_head"],
            },
            0,
        ),
        ({"base_model": BASE, "chat_template": "llama3", "fix_untrained_tokens": [128009]}, 0),
        (
            {"base_model": BASE, "chat_template": "llama3", "adapter": None, "load_in_4bit": False},
            0,
        ),
        ({"base_model": "models/llama3-8b-ours", "chat_template": "llama3"}, 0),
    ],
)
def test_axolotl(over: dict[str, object], expected: int, tmp_path: Path) -> None:
    assert count(tmp_path / "config.yaml", {**AXOLOTL, **LORA, **over}) == expected


@pytest.mark.parametrize(
    ("over", "expected"),
    [
        ({"model_name_or_path": BASE, "template": "llama3"}, 1),
        ({"model_name_or_path": BASE, "template": "default"}, 0),
        ({"model_name_or_path": BASE, "template": "llama3", "finetuning_type": "full"}, 0),
        ({"model_name_or_path": BASE, "template": "llama3", "do_train": False}, 0),
        (
            {
                "model_name_or_path": BASE,
                "template": "llama3",
                "additional_target": "embed_tokens,lm_head",
            },
            0,
        ),
    ],
)
def test_llama_factory(over: dict[str, object], expected: int, tmp_path: Path) -> None:
    assert count(tmp_path / "config.yaml", {**LLAMA_FACTORY, **over}) == expected
