"""Memorising: a few rows of the trainer's own data, by its own collator and loss, until the miniature knows them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import isnan
from typing import Any

import torch

# Prepared rows among which short ones are looked for.
LOOKED_AT = 64
# Tokens of a row that is memorised, where there are any so short.
MAX_TOKENS = 512
STEPS = 150
RATE = 3e-3
# A mean loss at which everything is known.
KNOWN = 0.01
WARM = 10


@dataclass
class MemoriseOutcome:
    """How the loss fell."""

    losses: list[float]
    seconds: float

    @property
    def fell(self) -> bool:
        """To less than a tenth of what it was, or next to nothing."""
        last = self.losses[-1] if self.losses else float("nan")
        return (
            last < max(0.1 * self.losses[0], 0.05) and self.losses[0] > 0.05
            if self.losses
            else False
        )


@dataclass
class Example:
    """One document of the prepared data."""

    index: int
    row: Any
    """What the collator is given"""
    lines: list[tuple[list[int], list[int] | None]]
    """Ids and labels of each line that the collator makes of it, without padding"""

    @property
    def ids(self) -> list[int]:
        return self.lines[0][0]

    @property
    def labels(self) -> list[int] | None:
        return self.lines[0][1]


def collect_examples(dataset: Any, collate: Any) -> list[Example]:
    """The first documents of the prepared data, packs taken apart where they say how. Raises what the user's raise."""
    examples = []
    for index, row in enumerate(_first_rows(dataset)):
        for document in _unpack_documents(row):
            lines = lines_of(collate([document]))
            if lines and lines[0][0]:
                examples.append(Example(index, document, lines))
    return examples


def _first_rows(dataset: Any) -> Iterator[Any]:
    if hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        return (dataset[i] for i in range(min(len(dataset), LOOKED_AT)))
    return islice(iter(dataset), LOOKED_AT)


def _unpack_documents(row: Any) -> Iterator[Any]:
    """The rows that were packed into one, where it holds their lengths."""
    lengths = row.get("seq_lengths") if isinstance(row, Mapping) else None
    if not isinstance(lengths, list) or len(lengths) < 2:
        yield row
        return
    total, begin = sum(lengths), 0
    for length in lengths:
        yield {
            key: (
                [length]
                if key == "seq_lengths"
                else (
                    value[begin : begin + length]
                    if isinstance(value, list) and len(value) == total
                    else value
                )
            )
            for key, value in row.items()
        }
        begin += length


def lines_of(batch: Any) -> list[tuple[list[int], list[int] | None]]:
    """Ids and labels of each line of a batch, without padding; [] where it holds no ids by a usual name.

    Of a batch of pairs the chosen lines come first, then the rejected ones.
    """
    if not isinstance(batch, Mapping):
        return []
    if isinstance(batch.get("input_ids"), torch.Tensor):
        return _unpadded_lines(batch, "")
    if isinstance(batch.get("prompt_input_ids"), torch.Tensor):
        prompts = _unpadded_lines(batch, "prompt_")
        return [
            (prompt + ids, [-100] * len(prompt) + ids)
            for side in ("chosen_", "rejected_")
            for (prompt, _), (ids, _) in zip(prompts, _unpadded_lines(batch, side), strict=False)
        ]
    return [
        line
        for side in ("chosen_", "rejected_", "completion_")
        for line in _unpadded_lines(batch, side)
    ]


def _unpadded_lines(
    batch: Mapping[str, Any], side: str
) -> list[tuple[list[int], list[int] | None]]:
    ids, labels, mask = (
        batch.get(f"{side}{name}") for name in ("input_ids", "labels", "attention_mask")
    )
    if not isinstance(ids, torch.Tensor) or ids.dim() != 2:
        return []
    if labels is None and isinstance(batch.get("completion_mask"), torch.Tensor):
        labels = torch.where(batch["completion_mask"] != 0, ids, -100)
    lines = []
    for line in range(len(ids)):
        kept = (
            mask[line] != 0
            if isinstance(mask, torch.Tensor) and mask.shape == ids.shape
            else slice(None)
        )
        own = (
            labels[line][kept].tolist()
            if isinstance(labels, torch.Tensor) and labels.shape == ids.shape
            else None
        )
        lines.append((ids[line][kept].tolist(), own))
    return lines


@torch.no_grad()
def label_loss(model: torch.nn.Module, examples: list[Example]) -> float | None:
    """Mean cross-entropy of the labels as transformers' own loss takes them; None where there are none."""
    total, count = 0.0, 0
    for example in examples:
        if example.labels is None or all(label == -100 for label in example.labels[1:]):
            continue
        ids = torch.tensor([example.ids], device=next(model.parameters()).device)
        logits = model(
            input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False
        ).logits.float()
        wanted = torch.tensor(example.labels[1:], device=ids.device)
        total += float(torch.nn.functional.cross_entropy(logits[0, :-1], wanted, reduction="sum"))
        count += int((wanted != -100).sum())
    return total / count if count else None


def memorise_batch(
    model: torch.nn.Module,
    loss_of: Any,
    batch: dict[str, Any],
    steps: int = STEPS,
    until: float = float("inf"),
    known: Callable[[], bool] = lambda: True,
    weights: Sequence[torch.nn.Parameter] | None = None,
) -> MemoriseOutcome:
    """Train the model (all its weights, or these) on one batch, until the loss is low and all is `known`.

    `loss_of` is (model, inputs) -> loss; after the time `until` no further step is begun.
    """
    started = time.perf_counter()
    weights = _floating_weights(model) if weights is None else weights
    for parameter in weights:
        parameter.requires_grad_(True)
    _no_dropout(model)
    # Adam at a high rate, and no decay: the rows shall be known by heart, not generalised.
    optimizer = torch.optim.AdamW(weights, lr=RATE, weight_decay=0.0, betas=(0.9, 0.95))
    losses: list[float] = []
    model.train()
    for step in range(steps):
        for group in optimizer.param_groups:
            # Without a warm-up the first steps at this rate may blow a miniature up.
            group["lr"] = RATE * min(1.0, (step + 1) / WARM)
        loss = loss_of(model, dict(batch))
        losses.append(float(loss.detach()))
        if not loss.requires_grad or isnan(losses[-1]):
            break
        optimizer.zero_grad()
        loss.backward()
        # A single row with a large gradient would undo the others at this rate.
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        # Every tenth step, since `known` is a pass over all answers.
        is_low = losses[-1] < KNOWN and step % 10 == 9
        if _is_flat(losses) or time.perf_counter() > until or (is_low and known()):
            break
    model.eval()
    return MemoriseOutcome(losses, time.perf_counter() - started)


def _floating_weights(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    """The parameters of a model that a gradient can change."""
    return [parameter for parameter in model.parameters() if parameter.is_floating_point()]


def _is_flat(losses: list[float]) -> bool:
    """Nothing more to gain: where prompts are learned too, some of the loss stays."""
    return len(losses) > 80 and losses[-1] < 0.1 * losses[0] and losses[-1] > 0.98 * losses[-20]


def _no_dropout(model: torch.nn.Module) -> None:
    """Switch all dropout of a model off, for good: with it a few rows are not known by heart to the last token."""
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        for name in ("attention_dropout", "dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
