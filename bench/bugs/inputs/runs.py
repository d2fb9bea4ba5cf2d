"""Rows, models and settings for training scripts that the bench runs, beside those of the tests' tiny trainers."""

from __future__ import annotations

from typing import Any

from datasets import Dataset
from transformers import PreTrainedModel

from tests.auditing.tiny import arguments, chats, encoded, model, pairs, tokenizer

__all__ = [
    "arguments",
    "chats",
    "completions",
    "documents",
    "encoded",
    "model",
    "of",
    "pairs",
    "table",
    "tokenizer",
]


def completions(count: int = 8, words: int = 0) -> list[dict[str, Any]]:
    """Rows of prompt and completion; every other answer has so many words more."""
    rows = [
        {"prompt": row["messages"][:1], "completion": row["messages"][1:]} for row in chats(count)
    ]
    for row in rows[::2]:
        row["completion"][0]["content"] += " and tomorrow" * words
    return rows


def documents(count: int = 8) -> list[str]:
    """Plain texts of unequal length."""
    return [
        f"Box {i} holds {i + 3} things that were counted" + " and counted again" * (i % 4)
        for i in range(count)
    ]


def of(tokenizer: Any, **settings: Any) -> PreTrainedModel:
    """A tiny Llama for a tokenizer."""
    return model(len(tokenizer), eos_token_id=tokenizer.eos_token_id, **settings)


def table(rows: list[dict[str, Any]]) -> Dataset:
    """A data set of these rows."""
    return Dataset.from_list(rows)
