"""Rehearses preference training on a few pairs: has the margin of the chosen answer grown after some steps?.

The margin is log p(chosen) - log p(rejected) after one prompt, in nats. It is computed here from the miniature's
logits, before and after the trainer's own loss has trained it: a loss with the wrong sign falls, and the margin
shrinks.

The trade-off: margins of the trained pairs themselves are compared, so this shows the direction of the training, and
not whether it generalises.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from truetune.probe import build_miniatures_instead_of_models
from truetune.probe.generate_and_score_answers import score_answer
from truetune.probe.measuring.trainer_loss import TrainerLoss
from truetune.probe.memorise_batch import Example, memorise_batch

# Chosen, not measured: forty steps move a miniature far from its start, in a few seconds. Half leaves margins within
# noise; more take the time of the rehearsal.
MAX_STEPS = 40
# As many as rows are recited (`rehearse_run.MAX_MEMORISED_ROWS`).
MAX_PAIRS = 6


@dataclass
class Pair:
    """Ids of a prompt and of its two answers, and the rows of the prepared data that hold them."""

    prompt: list[int]
    chosen: list[int]
    rejected: list[int]
    rows: list[Any]

    @property
    def token_count(self) -> int:
        """The number of tokens of the prompt and both answers."""
        return len(self.prompt) + len(self.chosen) + len(self.rejected)


def measure_pair_margins_around_training(
    trainer: Any,
    model: Any,
    loader: Any,
    examples: list[Example],
    tokenizer: Any,
    stops: set[int],
    until: float,
) -> dict[str, Any]:
    """Rehearse training on pairs: the margin of each, before and after some steps by the trainer's own
    loss.

    Args:
        trainer: of preferences; its loss is computed.
        model: the miniature, which is trained.
        loader: its `collate_fn` makes the batch; a mutant gives another one.
        examples: documents of the prepared data.
        tokenizer: None where the trainer has none.
        stops: ids that end an answer.
        until: by `time.perf_counter`; after it no further step begins.

    Returns:
        pairs (texts, and margins `before` and `after`, in nats), loss and fell, as JSON; empty if there are no pairs.
    """
    # The shortest pairs, since each step costs their tokens.
    shortest = sorted(_pairs_in_or_across_examples(examples), key=lambda pair: pair.token_count)[
        :MAX_PAIRS
    ]
    if not shortest or tokenizer is None:
        build_miniatures_instead_of_models.note_once(
            "no pairs of answers to one prompt were found: their margin is not rehearsed"
        )
        return {}
    margins_before = [_log_probability_margin(model, pair, stops) for pair in shortest]
    device = next(model.parameters()).device
    collated = loader.collate_fn([row for pair in shortest for row in pair.rows])
    batch = {
        key: value.to(device) if isinstance(value, torch.Tensor) else value
        for key, value in dict(collated).items()
    }
    learned = memorise_batch(
        model,
        TrainerLoss(trainer, ()),
        batch,
        MAX_STEPS,
        until,
        weights=_adapter_weights_if_reference_is_base(trainer, model),
    )
    margins_after = [_log_probability_margin(model, pair, stops) for pair in shortest]
    pairs = [
        {
            "prompt": _decode_text(tokenizer, pair.prompt),
            "chosen": _decode_text(tokenizer, pair.chosen),
            "rejected": _decode_text(tokenizer, pair.rejected),
            "before": before,
            "after": after,
        }
        for pair, before, after in zip(shortest, margins_before, margins_after, strict=True)
    ]
    return {"pairs": pairs, "loss": learned.losses, "fell": learned.did_loss_fall}


def _adapter_weights_if_reference_is_base(trainer: Any, model: Any) -> list[Any] | None:
    """The adapter's alone where the reference is the policy without it; None for all weights.

    Training the base as well would move the reference with the policy, and the loss would teach nothing.
    """
    if not hasattr(model, "peft_config") or getattr(trainer, "ref_model", model) is not None:
        return None
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def _pairs_in_or_across_examples(examples: list[Example]) -> Iterator[Pair]:
    """Both lines of each example; or of two examples with one prompt, of which one is labelled as wanted (KTO)."""
    wanted_by_prompt: dict[tuple[int, ...], Example] = {}
    unwanted_by_prompt: dict[tuple[int, ...], Example] = {}
    for example in examples:
        is_mapping = isinstance(example.row, Mapping)
        is_flagged = is_mapping and "label" in example.row
        if len(example.lines) == 2 and not is_flagged:
            prompt, chosen, rejected = split_pair(example)
            if prompt and chosen and rejected:
                yield Pair(prompt, chosen, rejected, [example.row])
        elif is_mapping:
            start = _first_labelled(example.labels)
            if start:
                flag = example.row.get("label")
                by_prompt = wanted_by_prompt if flag else unwanted_by_prompt
                by_prompt[tuple(example.ids[:start])] = example
    for begin in wanted_by_prompt.keys() & unwanted_by_prompt.keys():
        wanted, unwanted = wanted_by_prompt[begin], unwanted_by_prompt[begin]
        size = len(begin)
        yield Pair(list(begin), wanted.ids[size:], unwanted.ids[size:], [wanted.row, unwanted.row])


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
    """The first position with a label; None where there is none."""
    if labels is None:
        return None
    return next((i for i, label in enumerate(labels) if label != -100), None)


def _log_probability_margin(model: Any, pair: Pair, stops: set[int]) -> float:
    """log p(chosen) - log p(rejected) after the prompt, in nats; the reference has no part in it."""
    chosen = score_answer(model, pair.prompt, pair.chosen, stops)
    rejected = score_answer(model, pair.prompt, pair.rejected, stops)
    return chosen.log_probability - rejected.log_probability


def _decode_text(tokenizer: Any, ids: list[int]) -> str:
    """Ids as a reader sees them, without special tokens."""
    return str(tokenizer.decode(ids, skip_special_tokens=True)).strip()
