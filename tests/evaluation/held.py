"""Tiny models, held-out rows, and a model that is scored one row at a time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from tests.auditing import tiny
from truetune.data.read_rows_as_conversations import read_conversations
from truetune.demo import TOKENIZER
from truetune.evaluation.held_out_token_losses import EncodedRows, encode_rows_as_trained
from truetune.generation.backends.backend import ScoredIds
from truetune.render.template_probes import Probes, load_tokenizer_and_template_of_run
from truetune.settings.read_truetune_settings import validate_settings


def write(folder: Path, rows: Sequence[dict[str, Any]], name: str = "held.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def probes_of(**settings: Any) -> Probes:
    return load_tokenizer_and_template_of_run(
        validate_settings({"tokenizer": str(TOKENIZER), **settings}, "test")
    )


def examples(path: Path, **settings: Any) -> EncodedRows:
    return encode_rows_as_trained(probes_of(**settings), read_conversations([str(path)]))


def one_by_one(
    model: Any, sequences: Sequence[Sequence[int]], stops: Sequence[int] = ()
) -> list[ScoredIds]:
    """As plainly as can be."""
    found = []
    for ids in sequences:
        with torch.no_grad():
            logprobs = model(torch.tensor([list(ids)])).logits[0].double().log_softmax(-1)
        own = [float("nan"), *(float(logprobs[i, id]) for i, id in enumerate(ids[1:]))]
        stop = [float("nan"), *logprobs[:-1, list(stops)].exp().sum(-1).tolist()]
        found.append(
            ScoredIds(*(torch.tensor(part, dtype=torch.float32).numpy() for part in (own, stop)))
        )
    return found


def saved(folder: Path, *, seed: int = 0) -> Path:
    """A tiny model with its tokenizer."""
    tiny.model(seed=seed, eos_token_id=3).save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return folder
