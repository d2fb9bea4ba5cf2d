"""Tiny models that know a few answers by heart, and the rows to ask them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import DataCollatorForSeq2Seq

from bench.bugs.inputs.rows import say, write
from bench.bugs.inputs.tiny import encoded, model, saved, tokenizer

Pairs = Sequence[tuple[str, str]]
PAIRS = [
    (
        f"How many {fruit} are in the {size} box on the shelf{' by the window' * (i % 3)}?",
        f"There are {i + 3} {fruit}.",
    )
    for i, (fruit, size) in enumerate(
        (fruit, size)
        for fruit in ("apples", "pears", "plums", "figs")
        for size in ("large", "small")
    )
]
STEPS, RATE = 120, 1e-2


def answering(
    folder: Path,
    *,
    net: Any = None,
    stops: bool = True,
    generation: dict[str, Any] | None = None,
    pairs: Pairs = PAIRS,
    taught: Pairs | None = None,
) -> Any:
    """A model in `folder/model` that recites the answers of `folder/rows.jsonl`, which are those of `pairs`.

    It is taught the answers of `taught` where they are given; without its stop token in the labels where `stops` is
    False. `generation` goes into its generation_config.json.
    """
    net = learned(net if net is not None else model(), taught or pairs, stops)
    saved(net, folder / "model")
    if generation is not None:
        path = folder / "model" / "generation_config.json"
        path.write_text(
            json.dumps(json.loads(path.read_text("utf-8")) | generation), encoding="utf-8"
        )
    write(
        folder / "rows.jsonl",
        ({"messages": say("user", asked) + say("assistant", said)} for asked, said in pairs),
    )
    return net


def learned(net: Any, pairs: Pairs = PAIRS, stops: bool = True, rate: float = RATE) -> Any:
    """All rows in one batch, until they are known."""
    rows = encoded(pairs)
    batch = DataCollatorForSeq2Seq(tokenizer(), return_tensors="pt")(
        [rows[i] for i in range(len(rows))]
    )
    if not stops:
        batch["labels"][batch["labels"] == tokenizer().eos_token_id] = -100
    optimizer = torch.optim.AdamW(
        [weight for weight in net.parameters() if weight.requires_grad], lr=rate
    )
    for _ in range(STEPS):
        net(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return net
