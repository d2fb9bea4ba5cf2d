"""Pairs: after a few steps of preference training, is the chosen answer the likelier one?"""

from __future__ import annotations

from typing import Any

import torch

from truetune.probe.memorise import Example, memorise
from truetune.probe.say import forced

STEPS = 40
ROWS = 6


def rehearsed(
    trainer: Any, model: Any, loader: Any, found: list[Example], tokenizer: Any, stops: set[int], until: float
) -> dict[str, Any]:
    """The margin of each pair, in nats, before and after training on it by the trainer's own loss."""
    short = sorted(found, key=lambda example: len(example.ids))[:ROWS]
    margins = [[_margin(model, example, stops) for example in short]]
    device = next(model.parameters()).device
    batch = {key: value.to(device) if isinstance(value, torch.Tensor) else value
             for key, value in dict(loader.collate_fn([example.row for example in short])).items()}  # fmt: skip
    learned = memorise(model, trainer.compute_loss, batch, STEPS, until)
    margins.append([_margin(model, example, stops) for example in short])
    pairs = [
        {"prompt": _text(tokenizer, prompt), "chosen": _text(tokenizer, chosen),
         "rejected": _text(tokenizer, rejected), "before": before, "after": after}
        for example, before, after in zip(short, *margins, strict=True)
        for prompt, chosen, rejected in [split(example)]
    ]  # fmt: skip
    return {"pairs": pairs, "loss": learned.losses, "steps": len(learned.losses), "fell": learned.fell}


def split(example: Example) -> tuple[list[int], list[int], list[int]]:
    """Ids of the prompt, of the chosen and of the rejected answer: the first and the second line, from where their
    labels begin, or else from where they differ."""
    (chosen, labels), (rejected, others) = example.lines[:2]
    start = _begin(labels)
    other = _begin(others)
    if start is None or other is None:
        start = other = next((i for i, (a, b) in enumerate(zip(chosen, rejected, strict=False)) if a != b), 1)
    return chosen[:start], chosen[start:], rejected[other:]


def _begin(labels: list[int] | None) -> int | None:
    return next((i for i, label in enumerate(labels) if label != -100), None) if labels else None


def _margin(model: Any, example: Example, stops: set[int]) -> float:
    prompt, chosen, rejected = split(example)
    return (forced(model, prompt, chosen, stops).log_probability
            - forced(model, prompt, rejected, stops).log_probability)  # fmt: skip


def _text(tokenizer: Any, ids: list[int]) -> str:
    return str(tokenizer.decode(ids, skip_special_tokens=True)).strip()
