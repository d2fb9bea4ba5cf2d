"""Which token a loop's own loss teaches at each position, read from the gradient that it gives the logits.

A loop that computes its loss itself gives the model no labels, and its loss can't be called again. But its backward
pass tells: the gradient of a cross-entropy at the logits is w(p - e_y), where p are the probabilities. Its only
negative entry is the token y that is taught, and it is 0 throughout where nothing is learned. So labels are known
whatever the loop calls them, and whether it shifts them.

The trade-off: a loss on whole distributions (distillation) has many negative entries and is not judged, and neither is
a loss that is computed from hidden states (fused kernels), which leaves the logits without a gradient. A token that the
model gives a probability of exactly 1 has no gradient either, and looks like one that is not learned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from truetune.probe.measuring.targets_read_from_loss_gradient import AFTER, IGNORED, NEXT, SAME

# Share of the negative part of a gradient that one token has in a cross-entropy. Label smoothing by 0.1 leaves it some
# 0.9 and more; the gradient of a divergence from a teacher spreads over all tokens that the teacher finds likelier.
MIN_SHARE_OF_ONE_TOKEN = 0.7
# Share of the taught positions that have to agree on which token they are taught. Chosen, not measured: the three
# candidates are the same token only where a row repeats itself.
MIN_AGREEMENT = 0.9
# docs/laws.md: the tolerance of the law on targets, whose outcome this is.
TOLERANCE = 0.001
MAX_SHOWN_PLACES = 4
OFFSETS = {NEXT: 1, AFTER: 2, SAME: 0}
# Positions that are read at a time: a copy of the whole gradient may not fit beside it on the device.
CHUNK_POSITIONS = 1024


@dataclass(frozen=True)
class TaughtTokens:
    """What the backward pass of one batch taught, (rows, positions) each."""

    token: torch.Tensor
    """int64: the token that is made likelier"""
    learns: torch.Tensor
    """bool: has the loss a gradient here?"""
    is_of_one_token: torch.Tensor
    """bool: does the gradient make one token likelier, and not many?"""


@dataclass(frozen=True)
class LoopLabels:
    """The labels of one batch, as a batch of transformers would hold them."""

    labels: torch.Tensor
    """(rows, positions) int64, IGNORED where nothing is learned"""
    target: str
    """Which token of the row they teach: NEXT, AFTER or SAME"""


def read_taught_tokens(gradient: torch.Tensor) -> TaughtTokens:
    """Read a gradient.

    Args:
        gradient: of the loss at the logits, (rows, positions, vocabulary).
    """
    chunks = torch.split(gradient.flatten(0, 1), CHUNK_POSITIONS)
    parts = [_read_positions(part) for part in chunks]
    token, learns, is_of_one_token = (
        torch.cat(columns).view(gradient.shape[:2]) for columns in zip(*parts, strict=True)
    )
    return TaughtTokens(token, learns, is_of_one_token)


def _read_positions(gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The three parts of TaughtTokens, (positions,) each, of a gradient (positions, vocabulary)."""
    smallest, token = gradient.min(-1)
    negative = gradient.clamp(max=0).sum(-1, dtype=torch.float32)
    learns = smallest < 0
    is_of_one_token = smallest.float() <= MIN_SHARE_OF_ONE_TOKEN * negative
    return token, learns, learns & is_of_one_token


def labels_taught(ids: torch.Tensor, taught: TaughtTokens) -> LoopLabels | None:
    """The labels that a batch was taught by.

    Args:
        ids: (rows, positions) that the model was given.
        taught: of the same shape.

    Returns:
        None where most of what is learned is not one token, or no single token of the row.
    """
    count = int(taught.learns.sum())
    if not count or int(taught.is_of_one_token.sum()) < MIN_AGREEMENT * count:
        return None
    for target in OFFSETS:
        is_taught = taught.is_of_one_token & _is_target(ids, taught, target)
        if int(is_taught.sum()) >= MIN_AGREEMENT * count:
            return LoopLabels(_labels_of_positions(taught, target), target)
    return None


def _labels_of_positions(taught: TaughtTokens, target: str) -> torch.Tensor:
    """The token of each position at the place where a label of transformers stands: one further on."""
    tokens = taught.token.masked_fill(~taught.is_of_one_token, IGNORED)
    if target == SAME:
        return tokens
    return torch.nn.functional.pad(tokens[:, :-1], (1, 0), value=IGNORED)


def outcome_of_loss_targets(
    ids: Sequence[torch.Tensor], taught: Sequence[TaughtTokens], tokenizer: Any
) -> dict[str, Any]:
    """The outcome of the law `loss-targets`, from what was seen and not from a pass of its own.

    Args:
        ids: of each batch, (rows, positions).
        taught: of each batch, of that shape.
        tokenizer: spells the places that are shown; None where it is not known.

    Returns:
        As `measure_laws` gives it.
    """
    fits = _count_fits(ids, taught)
    # Where a row repeats itself one token fits two targets: the one that fits more positions of all is meant.
    order = (NEXT, *sorted((AFTER, SAME), key=lambda target: -fits[target]))
    counts = dict.fromkeys(order, 0)
    places: list[dict[str, Any]] = []
    for number, (row_ids, one) in enumerate(zip(ids, taught, strict=True)):
        left = one.is_of_one_token
        for target in order:
            is_taught = left & _is_target(row_ids, one, target)
            counts[target] += int(is_taught.sum())
            left = left & ~is_taught
            if target != NEXT:
                places += [
                    _describe_place(row_ids, number, line, at, tokenizer)
                    for line, at in is_taught.nonzero().tolist()[:MAX_SHOWN_PLACES]
                ]
    looked_at = sum(int(one.learns.sum()) for one in taught)
    others = {target: count for target, count in counts.items() if target != NEXT and count}
    evidence = {
        "positions with gradient": looked_at,
        "looked at": looked_at,
        "labelled": 0,
        "without a label": 0,
        "without gradient": 0,
        "other targets": others,
        "places": {
            "other targets": places[:MAX_SHOWN_PLACES],
            "without a label": [],
            "without gradient": [],
        },
    }
    return {
        "value": sum(others.values()) / max(1, looked_at),
        "tolerance": TOLERANCE,
        "unit": "share of positions that learn what they should not",
        "evidence": evidence,
        "seconds": 0.0,
    }


def _count_fits(ids: Sequence[torch.Tensor], taught: Sequence[TaughtTokens]) -> dict[str, int]:
    """How many positions each target explains."""
    return {
        target: sum(
            int((one.is_of_one_token & _is_target(row_ids, one, target)).sum())
            for row_ids, one in zip(ids, taught, strict=True)
        )
        for target in OFFSETS
    }


def _is_target(ids: torch.Tensor, taught: TaughtTokens, target: str) -> torch.Tensor:
    """(rows, positions) bool: is the taught token this one of the row?"""
    padded = torch.nn.functional.pad(ids, (0, max(OFFSETS.values())), value=IGNORED)
    offset = OFFSETS[target]
    return taught.token == padded[:, offset : offset + ids.shape[1]]


def _describe_place(
    ids: torch.Tensor, batch: int, line: int, at: int, tokenizer: Any
) -> dict[str, Any]:
    """Where, and the tokens there: the one read, the next, and the one after it."""
    shown = ids[line, at : at + 3].tolist()
    spell = getattr(tokenizer, "decode", str)
    return {
        "batch": batch,
        "line": line,
        "position": at,
        "ids": shown,
        "tokens": [spell([one]) for one in shown],
    }
