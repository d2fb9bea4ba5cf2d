"""A training whose every draw is watched: `python still_life.py KIND` prints its log and its state afterwards as JSON.

All that an audit could disturb is there: shuffling, dropout, gradient accumulation, collators that draw numbers.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from transformers import DataCollatorForSeq2Seq, Trainer, TrainerCallback

from tests.auditing import tiny

OWN = random.Random(3)
TIMES = ("train_runtime", "train_samples_per_second", "train_steps_per_second")


class Drawing:
    """A collator that draws from generators of every kind, its own too."""

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self.collate, self.calls, self.seen = collate, 0, {"rows": 0}
        self.generator = torch.Generator().manual_seed(5)
        self.arrays = np.random.default_rng(7)

    def __call__(self, rows: list[Any]) -> Any:
        batch = self.collate(rows)
        self.calls += 1
        self.seen["rows"] += len(rows)
        drawn = (
            OWN.random(),
            random.random(),
            np.random.rand(),
            self.arrays.random(),
            torch.rand(()).item(),
        )
        other = int(sum(drawn) * 1000 + torch.rand((), generator=self.generator).item() * 1000)
        batch["input_ids"][:, 0] = (other + self.calls + self.seen["rows"]) % 100 + 4
        return batch


class Counting:
    """A loss that draws, and whose size depends on how often it was called."""

    def __init__(self) -> None:
        self.calls, self.generator = 0, torch.Generator().manual_seed(11)

    def __call__(self, outputs: Any, labels: Any, num_items_in_batch: Any = None) -> Any:
        self.calls += 1
        size = self.calls + torch.rand((), generator=self.generator).item() + torch.rand(()).item()
        logits, targets = outputs.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
        return size * torch.nn.functional.cross_entropy(logits, targets)


def make(kind: str) -> Any:
    settings: dict[str, Any] = {"gradient_accumulation_steps": 2, "max_steps": 4}
    model = tiny.model(attention_dropout=0.1)
    if kind == "dpo":
        return tiny.dpo(tiny.pairs(16), model, **settings)
    if kind == "packing":
        return tiny.sft(tiny.chats(60), model, packing=True, max_length=64, **settings)
    if kind == "workers":
        return tiny.sft(tiny.chats(16), model, dataloader_num_workers=2, **settings)
    if kind in ("trainer", "own loss"):
        tokenizer = tiny.tokenizer()
        return Trainer(
            model,
            tiny.arguments(**settings),
            Drawing(DataCollatorForSeq2Seq(tokenizer, model)),
            tiny.encoded(tiny.chats(16)),
            processing_class=tokenizer,
            compute_loss_func=Counting() if kind == "own loss" else None,
        )
    made = tiny.sft(tiny.chats(16), model, **settings)
    made.data_collator = Drawing(made.data_collator)
    return made


def life(kind: str, *callbacks: TrainerCallback) -> dict[str, Any]:
    """Train; the losses, and whatever an audit might have left behind."""
    OWN.seed(3)
    trainer = make(kind)
    for callback in callbacks:
        trainer.add_callback(callback)
    trainer.train()
    return {
        "log": [
            {k: v for k, v in line.items() if k not in TIMES} for line in trainer.state.log_history
        ],
        "weights": [parameter.double().sum().item() for parameter in trainer.model.parameters()],
        "random": [random.random(), np.random.rand(), torch.rand(()).item(), OWN.random()],
        "loaders": [
            len(trainer.accelerator._dataloaders),
            trainer.accelerator.gradient_state.in_dataloader,
        ],
    }


if __name__ == "__main__":
    print(json.dumps(life(sys.argv[1])))
