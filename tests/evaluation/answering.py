"""Tiny models that answer: one that has learned its rows by heart, and the same without its stop token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from tests.auditing import tiny

LIMIT = 24


def learned(folder: Path, rows: list[dict[str, Any]], steps: int = 100) -> Path:
    """A model that recites the answers of some chats and stops."""
    tokenizer = tiny.tokenizer()
    model = tiny.model(eos_token_id=tokenizer.eos_token_id)
    encoded = tiny.encoded(rows)
    longest = max(len(row["input_ids"]) for row in encoded)

    def padded(name: str, pad: int) -> torch.Tensor:
        return torch.tensor([row[name] + [pad] * (longest - len(row[name])) for row in encoded])

    ids, labels = padded("input_ids", tokenizer.pad_token_id), padded("labels", -100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(steps):
        model(
            input_ids=ids, attention_mask=ids.ne(tokenizer.pad_token_id), labels=labels
        ).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return saved(model, folder)


def unending(source: Path, folder: Path) -> Path:
    """The same model, which never stops: the row of its stop token in the head is turned round."""
    model = AutoModelForCausalLM.from_pretrained(source)
    with torch.no_grad():
        model.lm_head.weight[tiny.tokenizer().eos_token_id] *= -1
    return saved(model, folder)


def saved(model: Any, folder: Path) -> Path:
    model.save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return folder


def written(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path
