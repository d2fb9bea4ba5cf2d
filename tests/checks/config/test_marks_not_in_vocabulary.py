"""Axolotl's templates whose marks the base lacks, by the published name of the base and what the settings add."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.checks.config.settings import AXOLOTL
from truetune.checks.config.template_marks_not_in_vocabulary import TemplateMarksNotInVocabulary
from truetune.settings.stacks.read_config_of_any_stack import read_config


@pytest.mark.parametrize(
    ("base", "over", "expected"),
    [
        ("meta-llama/Llama-3.1-8B", {"chat_template": "chatml"}, 1),
        ("mistralai/Mistral-7B-v0.1", {"chat_template": "chatml", "tokens": ["<tool>"]}, 1),
        ("google/gemma-2-9b", {"chat_template": "chatml"}, 1),
        ("unsloth/mistral-7b-v0.3-bnb-4bit", {"chat_template": "llama3"}, 1),
        ("Qwen/Qwen2.5-7B", {"chat_template": "llama3"}, 1),
        (
            "meta-llama/Llama-2-7b-hf",
            {"chat_template": "chatml", "special_tokens": {"pad_token": "<unk>"}},
            1,
        ),
        (
            "meta-llama/Llama-3.1-8B",
            {"chat_template": "chatml", "special_tokens": {"eos_token": "<|im_end|>"}},
            0,
        ),
        (
            "mistralai/Mistral-7B-v0.1",
            {"chat_template": "chatml", "tokens": ["<|im_start|>", "<|im_end|>"]},
            0,
        ),
        ("Qwen/Qwen2.5-7B", {"chat_template": "chatml"}, 0),
        ("meta-llama/Llama-3.1-8B", {"chat_template": "llama3"}, 0),
        ("google/gemma-2-9b", {"chat_template": "gemma"}, 0),
        # a fine-tune with tokens of its own, a folder, and templates of plain words
        ("teknium/Mistral-7B-OpenHermes", {"chat_template": "chatml"}, 0),
        ("./models/llama-3-8b", {"chat_template": "chatml"}, 0),
        ("meta-llama/Llama-3.1-8B", {"chat_template": "alpaca"}, 0),
        ("meta-llama/Llama-3.1-8B", {"chat_template": "tokenizer_default"}, 0),
    ],
)
def test_axolotl(base: str, over: dict[str, object], expected: int, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    settings = {**AXOLOTL, "base_model": base, **over}
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    assert len(tuple(TemplateMarksNotInVocabulary(read_config(path)).findings())) == expected
