"""Tokens that a training adds, and scripts that ask with them or without."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

BASE = "mistralai/Mistral-7B-v0.3"
TRAIN = f"""
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments
tokenizer = AutoTokenizer.from_pretrained("{BASE}")
tokenizer.add_tokens(["<|reply|>"])
model = AutoModelForCausalLM.from_pretrained("{BASE}")
model.resize_token_embeddings(len(tokenizer))
Trainer(model, TrainingArguments("runs/one"), train_dataset=rows).train()
"""
ASK = """
from transformers import AutoModelForCausalLM, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained("{tokenizer}")
{between}
model = AutoModelForCausalLM.from_pretrained("{model}")
inputs = tokenizer(f"{{question}}{mark}", return_tensors="pt")
print(model.generate(**inputs, max_new_tokens=50))
"""


def count(folder: Path, **given: str) -> int:
    """How often the rule speaks of a script that asks what the training beside it saved."""
    words = {"tokenizer": BASE, "model": "runs/one", "mark": "<|reply|>", "between": ""} | given
    (folder / "train.py").write_text(TRAIN, encoding="utf-8")
    path = folder / "ask.py"
    path.write_text(ASK.format(**words), encoding="utf-8")
    return len(lint([str(path)], select=["tokens-added-at-training-only"]).findings)


def test_the_tokenizer_of_the_base_is_found(tmp_path: Path) -> None:
    assert count(tmp_path) == 1


@pytest.mark.parametrize(
    "given",
    [
        {"tokenizer": "runs/one"},
        {"model": BASE},
        {"mark": "</s>"},
        {"between": 'tokenizer.add_tokens(["<|reply|>"])'},
        {"tokenizer": "someone/tokenizer-with-tokens"},
    ],
)
def test_what_may_have_the_tokens_is_left_alone(given: dict[str, str], tmp_path: Path) -> None:
    assert count(tmp_path, **given) == 0
