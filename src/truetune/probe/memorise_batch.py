"""Memorising: a few rows of the trainer's own data, by its own collator and loss, until the miniature knows them.

`collect_first_documents` reads documents of the prepared data through the collator, from which the rows are chosen
(`choose_rows_to_recite`). `memorise_batch` trains on one batch of them with an optimizer of ours. It ends at the first
of these: the answers are known, the loss is flat, its steps or its time are used up, the loss is no number or has no
gradient. `truetune.checks.recitation.loss_does_not_fall` judges the losses, and counts on 60 steps of a loss that does
not fall: an end before them would silence that rule.

The trade-off: the run's own optimizer, rate and schedule are not used. They are made for thousands of steps of a large
model, and would not teach a miniature six rows in seconds; what they do to the weights is measured by laws.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import isnan
from typing import Any

import torch

# Prepared rows among which short ones are looked for. Chosen, not measured: each goes through the collator alone.
MAX_PREPARED_ROWS = 64
# Tokens of a row that is memorised, where there are any so short. Chosen, not measured: the time of a step grows with
# them.
MAX_ROW_TOKENS = 512
# The next four were measured on miniatures of Llama, Qwen3 and Gemma3 with 4 short chats
# (tests/rehearsal/test_faults.py): all answers are known after 60 steps. At half of the rate it takes 120; at a tenth
# of it the loss is 0.6 after 150; at four times the rate Llama recites 3 of 4.
LEARNING_RATE = 3e-3
# More than twice what was needed. The rest is for longer rows, and for those whose prompts are learned as well.
MAX_STEPS = 150
# Kept for architectures that were not measured: with 1, 5, 10 or 20 steps these three need 50 to 60 in all.
WARMUP_STEPS = 10
# A mean loss at which the answers are asked for. At twice that it ends 10 steps earlier, at half 10 steps later.
KNOWN_LOSS = 0.01
# Steps between two questions for the answers, since each is a pass over all of them.
STEPS_BETWEEN_QUESTIONS = 10
# The next ones are chosen, not measured. Below this share of the first loss, the rows count as learned.
LEARNED_SHARE = 0.1
# A loss of less, in nats/token, is next to nothing: a batch that begins with it has nothing to learn.
NOTHING_TO_LEARN_LOSS = 0.05
# A loss that fell by less than 2 % in 20 steps is flat. In its first 80 steps one may stand still and fall again.
MIN_STEPS_BEFORE_FLAT = 80
FLAT_STEPS = 20
FLAT_SHARE = 0.98


@dataclass
class MemoriseOutcome:
    """How the loss fell."""

    losses: list[float]
    """Of each step, before the weights were changed, as the trainer computes it"""
    seconds: float

    @property
    def did_loss_fall(self) -> bool:
        """Did the loss fall to less than a tenth of the first one, or next to nothing? Not if it was nothing
        at first.
        """
        if not self.losses:
            return False
        first, last = self.losses[0], self.losses[-1]
        if first <= NOTHING_TO_LEARN_LOSS:
            return False
        return last < max(LEARNED_SHARE * first, NOTHING_TO_LEARN_LOSS)


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
        """The ids of its first line."""
        return self.lines[0][0]

    @property
    def labels(self) -> list[int] | None:
        """The labels of its first line; None where it has none."""
        return self.lines[0][1]


def collect_first_documents(dataset: Any, collate: Any) -> list[Example]:
    """The first documents of the prepared data, packs taken apart where they say how. Raises what the user's raise."""
    examples = []
    for index, row in enumerate(_first_rows(dataset)):
        for document in _unpack_documents(row):
            lines = unpadded_ids_and_labels_of_batch(collate([document]))
            if lines and lines[0][0]:
                examples.append(Example(index, document, lines))
    return examples


def _first_rows(dataset: Any) -> Iterator[Any]:
    """The first rows of a data set, MAX_PREPARED_ROWS at most."""
    if hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        return (dataset[i] for i in range(min(len(dataset), MAX_PREPARED_ROWS)))
    return islice(iter(dataset), MAX_PREPARED_ROWS)


def _unpack_documents(row: Any) -> Iterator[Any]:
    """The documents that were packed into one row, where it holds their lengths (`seq_lengths`, as TRL packs)."""
    lengths = row.get("seq_lengths") if isinstance(row, Mapping) else None
    if not isinstance(lengths, list) or len(lengths) < 2:
        yield row
        return
    total, begin = sum(lengths), 0
    for length in lengths:
        end = begin + length
        document = dict(row)
        for key, value in row.items():
            # A list with one item a token is cut; anything else belongs to the pack as a whole.
            if isinstance(value, list) and len(value) == total:
                document[key] = value[begin:end]
        document["seq_lengths"] = [length]
        yield document
        begin = end


def unpadded_ids_and_labels_of_batch(batch: Any) -> list[tuple[list[int], list[int] | None]]:
    """Ids and labels of each line of a batch, without padding; [] where it holds no ids by a usual name.

    Of a batch of pairs the chosen lines come first, then the rejected ones. Three layouts are known: whole lines
    (`input_ids`), prompts apart from both answers (`prompt_input_ids`), and whole lines by their side
    (`chosen_input_ids`).
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
    """(ids, labels) of each line of one side; `side` is the prefix of its keys. Labels are None where it has none."""
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
    """Mean cross-entropy of the labels as transformers' own loss takes them, in nats; None where there are none.

    It tells whether the labels were learned, where a loss of the user's own may be low for another reason.
    """
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
    loss_of: Callable[[torch.nn.Module, dict[str, Any]], torch.Tensor],
    batch: dict[str, Any],
    steps: int = MAX_STEPS,
    until: float = float("inf"),
    known: Callable[[], bool] = lambda: True,
    weights: Sequence[torch.nn.Parameter] | None = None,
) -> MemoriseOutcome:
    """Train the model on one batch, until the loss is low and all is `known`. It is in eval mode afterwards.

    Args:
        model: a miniature; its dropout is switched off for good.
        loss_of: (model, inputs) -> loss, as the trainer computes it.
        batch: on the model's device; each step is given a copy, since a trainer may pop keys.
        steps: at most.
        until: by `time.perf_counter`; after it no further step begins.
        known: are all answers known? Asked only at a low loss, as it is a pass over each of them.
        weights: those to train; all where None.
    """
    started = time.perf_counter()
    weights = _weights_of_floating_dtype(model) if weights is None else weights
    for parameter in weights:
        parameter.requires_grad_(True)
    _switch_dropout_off_for_good(model)
    # Without weight decay: the rows shall be known by heart, not generalised.
    optimizer = torch.optim.AdamW(weights, lr=LEARNING_RATE, weight_decay=0.0, betas=(0.9, 0.95))
    losses: list[float] = []
    model.train()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * min(1.0, (step + 1) / WARMUP_STEPS)
        loss = loss_of(model, dict(batch))
        losses.append(float(loss.detach()))
        if not loss.requires_grad or isnan(losses[-1]):
            break
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        # Without it, it takes 70 steps instead of 60: a row with a large gradient undoes some of the others.
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        if _has_loss_become_flat(losses) or time.perf_counter() > until:
            break
        is_asked = step % STEPS_BETWEEN_QUESTIONS == STEPS_BETWEEN_QUESTIONS - 1
        if is_asked and losses[-1] < KNOWN_LOSS and known():
            break
    model.eval()
    return MemoriseOutcome(losses, time.perf_counter() - started)


def _weights_of_floating_dtype(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    """The parameters of a model that a gradient can change."""
    return [parameter for parameter in model.parameters() if parameter.is_floating_point()]


def _has_loss_become_flat(losses: list[float]) -> bool:
    """Has the loss fallen, and falls no more? Where prompts are learned too, some of it stays for ever."""
    if len(losses) <= MIN_STEPS_BEFORE_FLAT:
        return False
    first, earlier, last = losses[0], losses[-FLAT_STEPS], losses[-1]
    return last < LEARNED_SHARE * first and last > FLAT_SHARE * earlier


def _switch_dropout_off_for_good(model: torch.nn.Module) -> None:
    """Switch all dropout of a model off, for good: with it a few rows are not known by heart to the last token."""
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        for name in ("attention_dropout", "dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
