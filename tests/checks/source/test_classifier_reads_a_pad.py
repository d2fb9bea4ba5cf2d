"""Classifiers whose config names another pad than the tokenizer pads with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from truetune.checks.findings import Finding
from truetune.checks.lint import lint

SCRIPT = """
from transformers import {model}, AutoTokenizer
tok = AutoTokenizer.from_pretrained("{folder}")
model = {model}.from_pretrained("{folder}")
{more}
logits = model(**tok(texts, {padding}return_tensors="pt")).logits
"""
TOKENS = {"5": {"content": "<end>"}, "6": {"content": "<pad>"}}


def found(
    folder: Path,
    config: dict[str, Any],
    settings: dict[str, Any],
    *,
    more: str = "",
    padding: str = "padding=True, ",
    model: str = "AutoModelForSequenceClassification",
) -> list[Finding]:
    saved = folder / "out"
    saved.mkdir()
    (saved / "config.json").write_text(json.dumps({"model_type": "qwen2", **config}))
    tokenizer = {"added_tokens_decoder": TOKENS, **settings}
    (saved / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    path = folder / "eval.py"
    path.write_text(SCRIPT.format(folder="out", more=more, padding=padding, model=model))
    return list(lint([str(path)], select=("classifier-reads-a-pad",)).findings)


@pytest.mark.parametrize(
    ("config", "settings", "model"),
    [
        ({"pad_token_id": 5}, {"pad_token": "<pad>"}, "AutoModelForSequenceClassification"),
        ({"pad_token_id": 0}, {"pad_token": "<end>"}, "AutoModelForSequenceClassification"),
        (
            {"pad_token_id": 5, "model_type": "llama"},
            {"pad_token": {"content": "<pad>"}},
            "LlamaForSequenceClassification",
        ),
        (
            {"pad_token_id": 6, "model_type": "gpt2"},
            {"pad_token": "<end>"},
            "GPT2ForSequenceClassification",
        ),
        (
            {"pad_token_id": 6, "model_type": "mistral"},
            {"pad_token": "<end>", "padding_side": "right"},
            "AutoModelForSequenceClassification",
        ),
    ],
)
def test_two_pad_tokens_are_named(
    tmp_path: Path, config: dict[str, Any], settings: dict[str, Any], model: str
) -> None:
    [finding] = found(tmp_path, config, settings, model=model)
    assert f"not {config['pad_token_id']}" in finding.message
    assert "model.config.pad_token_id = tokenizer.pad_token_id" in finding.remedy


@pytest.mark.parametrize(
    ("config", "settings", "more", "padding"),
    [
        ({"pad_token_id": 6}, {"pad_token": "<pad>"}, "", "padding=True, "),
        ({"pad_token_id": 5}, {"pad_token": "<pad>", "padding_side": "left"}, "", "padding=True, "),
        (
            {"pad_token_id": 5},
            {"pad_token": "<pad>"},
            "model.config.pad_token_id = tok.pad_token_id",
            "padding=True, ",
        ),
        (
            {"pad_token_id": 5},
            {"pad_token": "<pad>"},
            "tok.padding_side = 'left'",
            "padding=True, ",
        ),
        ({"pad_token_id": 5}, {"pad_token": "<pad>"}, "", ""),
        ({"pad_token_id": 5, "model_type": "bert"}, {"pad_token": "<pad>"}, "", "padding=True, "),
        ({}, {"pad_token": "<pad>"}, "", "padding=True, "),
        ({"pad_token_id": 5}, {"pad_token": "<unlisted>"}, "", "padding=True, "),
    ],
)
def test_one_pad_token_and_other_models_are_sound(
    tmp_path: Path, config: dict[str, Any], settings: dict[str, Any], more: str, padding: str
) -> None:
    assert found(tmp_path, config, settings, more=more, padding=padding) == []
