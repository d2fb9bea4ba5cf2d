"""Classifiers whose config has another pad than their tokenizer (SRC294)."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer
MODEL = {name!r}
tok = AutoTokenizer.from_pretrained(MODEL)
model = AutoModelForSequenceClassification.from_pretrained(MODEL, num_labels=4)
"""
LLAMA, MISTRAL = "meta-llama/Llama-3.2-1B", "mistralai/Mistral-7B-v0.3"
OTHER = [
    (LLAMA, "tok.pad_token = tok.eos_token\nmodel.config.pad_token_id = 0"),
    (MISTRAL, "tok.pad_token_id = tok.eos_token_id\nmodel.config.pad_token_id = 0"),
    ("Qwen/Qwen2.5-0.5B", "tok.pad_token = tok.eos_token\nmodel.config.pad_token_id = 2"),
    (LLAMA, "tok.pad_token = tok.eos_token\nmodel.config.pad_token_id = 128004"),
    ("ours/base", "tok.pad_token = '[PAD]'\nmodel.config.pad_token_id = tok.eos_token_id"),
    (
        "ours/base",
        "tok.add_special_tokens({'pad_token': '<pad>'})\nmodel.resize_token_embeddings(len(tok))\n"
        "model.config.pad_token_id = model.config.eos_token_id",
    ),
    ("ours/base", "tok.pad_token = tok.unk_token\nmodel.config.pad_token_id = tok.eos_token_id"),
    (
        "ours/base",
        "if tok.pad_token is None:\n    tok.pad_token = tok.eos_token\nconfig = model.config\n"
        "config.pad_token_id = tok.convert_tokens_to_ids('<|pad|>')",
    ),
]
SAME = [
    (LLAMA, "tok.pad_token = tok.eos_token\nmodel.config.pad_token_id = tok.pad_token_id"),
    (LLAMA, "tok.pad_token = tok.eos_token\nmodel.config.pad_token_id = tok.eos_token_id"),
    (LLAMA, "tok.pad_token = tok.eos_token\nmodel.config.pad_token_id = 128001"),
    (
        LLAMA,
        "tok.pad_token = '<|end_of_text|>'\nmodel.config.pad_token_id = model.config.eos_token_id",
    ),
    ("ours/base", "tok.pad_token = tok.eos_token\nmodel.config.pad_token_id = 0"),
    (
        LLAMA,
        "tok.padding_side = 'left'\ntok.pad_token = tok.eos_token\nmodel.config.pad_token_id = 0",
    ),
    ("bert-base-uncased", "model.config.pad_token_id = 0"),
    ("roberta-base", "tok.pad_token = '<x>'\nmodel.config.pad_token_id = tok.eos_token_id"),
    (
        LLAMA,
        "tok.pad_token = '[PAD]'\nmodel.config.pad_token_id = tok.convert_tokens_to_ids('[PAD]')",
    ),
    (LLAMA, "tok.pad_token = tok.eos_token\nmodel.config.pad_token_id = pad_id"),
    (
        LLAMA,
        "model.config.pad_token_id = tok.eos_token_id\ntok.pad_token = tok.eos_token\n"
        "model.config.pad_token_id = tok.pad_token_id",
    ),
]


def count(name: str, text: str) -> int:
    """The findings on a script."""
    module = parse_module(HEAD.format(name=name) + text, "train.py")
    return len(run_rule(module, find_rule("classifier-pads-with-another-token")).findings)


@pytest.mark.parametrize(("name", "text"), OTHER)
def test_pads_that_are_others(name: str, text: str) -> None:
    assert count(name, text) == 1


@pytest.mark.parametrize(("name", "text"), SAME)
def test_pads_that_are_the_same_or_not_known(name: str, text: str) -> None:
    assert count(name, text) == 0
