"""Pairs: after a few steps of preference training, is the chosen answer the likelier one?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from truetune.probe import miniature_model
from truetune.probe.generate_and_score_answers import score_answer
from truetune.probe.measuring.trainer_loss import TrainerLoss
from truetune.probe.memorise_batch import Example, memorise_batch

# Chosen, not measured: forty steps move a miniature far from its start, in a few seconds. Half leaves margins within
# noise; more take the time of the rehearsal.
STEPS = 40
# As many as rows are recited.
ROWS = 6


@dataclass
class Pair:
    """Ids of a prompt and of its two answers, and the rows of the prepared data that hold them."""

    prompt: list[int]
    chosen: list[int]
    rejected: list[int]
    rows: list[Any]


def rehearse_pairs(
    trainer: Any,
    model: Any,
    loader: Any,
    examples: list[Example],
    tokenizer: Any,
    stops: set[int],
    until: float,
) -> dict[str, Any]:
    """The margin of each pair, in nats, before and after training on it by the trainer's own loss."""
    # The shortest pairs, since each step costs their tokens.
    short = sorted(
        _pairs_of(examples),
        key=lambda pair: len(pair.prompt) + len(pair.chosen) + len(pair.rejected),
    )[:ROWS]
    if not short or tokenizer is None:
        miniature_model.note_once(
            "no pairs of answers to one prompt were found: their margin is not rehearsed"
        )
        return {}
    margins = [[_log_ratio_margin(model, pair, stops) for pair in short]]
    device = next(model.parameters()).device
    collated = loader.collate_fn([row for pair in short for row in pair.rows])
    batch = {
        key: value.to(device) if isinstance(value, torch.Tensor) else value
        for key, value in dict(collated).items()
    }
    learned = memorise_batch(
        model,
        TrainerLoss(trainer, ()),
        batch,
        STEPS,
        until,
        weights=_weights_to_train(trainer, model),
    )
    margins.append([_log_ratio_margin(model, pair, stops) for pair in short])
    pairs = [
        {
            "prompt": _decode_text(tokenizer, pair.prompt),
            "chosen": _decode_text(tokenizer, pair.chosen),
            "rejected": _decode_text(tokenizer, pair.rejected),
            "before": before,
            "after": after,
        }
        for pair, before, after in zip(short, *margins, strict=True)
    ]
    return {"pairs": pairs, "loss": learned.losses, "fell": learned.fell}


def _weights_to_train(trainer: Any, model: Any) -> list[Any] | None:
    """Where the reference is the policy without its adapter, only the adapter makes a difference; else all weights."""
    if not hasattr(model, "peft_config") or getattr(trainer, "ref_model", model) is not None:
        return None
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def _pairs_of(examples: list[Example]) -> Iterator[Pair]:
    """Both lines of each example; or of two examples with one prompt, of which one is labelled as wanted (KTO)."""
    wanted: dict[tuple[int, ...], Example] = {}
    others: dict[tuple[int, ...], Example] = {}
    for example in examples:
        if len(example.lines) == 2 and not (
            isinstance(example.row, Mapping) and "label" in example.row
        ):
            prompt, chosen, rejected = split_pair(example)
            if prompt and chosen and rejected:
                yield Pair(prompt, chosen, rejected, [example.row])
        elif isinstance(example.row, Mapping) and (start := _first_labelled(example.labels)):
            (wanted if example.row.get("label") else others)[tuple(example.ids[:start])] = example
    for begin in wanted.keys() & others.keys():
        yes, no = wanted[begin], others[begin]
        yield Pair(list(begin), yes.ids[len(begin) :], no.ids[len(begin) :], [yes.row, no.row])


def split_pair(example: Example) -> tuple[list[int], list[int], list[int]]:
    """Ids of the prompt, of the chosen and of the rejected answer: the first and the second line, from where their
    labels begin, or else from where they differ."""
    (chosen, labels), (rejected, others) = example.lines[:2]
    start = _first_labelled(labels)
    other = _first_labelled(others)
    if start is None or other is None:
        start = other = next(
            (i for i, (a, b) in enumerate(zip(chosen, rejected, strict=False)) if a != b), 1
        )
    return chosen[:start], chosen[start:], rejected[other:]


def _first_labelled(labels: list[int] | None) -> int | None:
    return next((i for i, label in enumerate(labels) if label != -100), None) if labels else None


def _log_ratio_margin(model: Any, pair: Pair, stops: set[int]) -> float:
    return (
        score_answer(model, pair.prompt, pair.chosen, stops).log_probability
        - score_answer(model, pair.prompt, pair.rejected, stops).log_probability
    )


def _decode_text(tokenizer: Any, ids: list[int]) -> str:
    return str(tokenizer.decode(ids, skip_special_tokens=True)).strip()
