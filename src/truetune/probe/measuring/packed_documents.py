"""Which documents stand in a line of a batch, by the keys that the collator gives."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch

Span = tuple[int, int]
"""A document's first place, and the one behind its last"""


def holds_packed_line(batch: dict[str, Any]) -> bool:
    """Does any line hold several documents that the batch tells apart?"""
    return any(len(document_spans(batch, line)) > 1 for batch, line in lines_of([batch]))


def lines_of(batches: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], int]]:
    """Every line of every batch with ids: the batch and the line's number."""
    for batch in batches:
        ids = batch.get("input_ids")
        for line in range(len(ids)) if isinstance(ids, torch.Tensor) and ids.dim() == 2 else ():
            yield batch, line


def document_spans(batch: dict[str, Any], line: int) -> list[Span]:
    """Documents of two tokens or more in a line; one where nothing tells documents apart."""
    length = batch["input_ids"].shape[1]
    attended = _attended_tokens(batch, line, length)
    starts = _document_starts(batch, line, length, attended)
    bounds = [*torch.nonzero(starts).flatten().tolist(), length]
    spans = []
    for begin, end in pairwise(bounds):
        places = torch.nonzero(attended[begin:end]).flatten()
        if len(places) > 1:
            spans.append((begin + int(places[0]), begin + int(places[-1]) + 1))
    return spans


def _attended_tokens(batch: dict[str, Any], line: int, length: int) -> torch.Tensor:
    mask = batch.get("attention_mask")
    if isinstance(mask, torch.Tensor) and mask.dim() == 2:
        return (mask[line] != 0).cpu()
    return torch.ones(length, dtype=torch.bool)


def _document_starts(
    batch: dict[str, Any], line: int, length: int, attended: torch.Tensor
) -> torch.Tensor:
    """(tokens,) does a document begin here?"""
    starts = torch.zeros(length, dtype=torch.bool)
    starts[0] = True
    positions, mask = batch.get("position_ids"), batch.get("attention_mask")
    if isinstance(positions, torch.Tensor) and positions.dim() == 2:
        own = positions[min(line, len(positions) - 1)].cpu()
        starts[1:] |= (own[1:] != own[:-1] + 1) & ((own[1:] == 0) | ~attended[:-1])
    for numbers in (batch.get("seq_idx"), mask):
        if isinstance(numbers, torch.Tensor) and numbers.dim() == 2:
            own = numbers[min(line, len(numbers) - 1)].cpu()
            starts[1:] |= (own[1:] != own[:-1]) & attended[1:] & attended[:-1]
    if isinstance(mask, torch.Tensor) and mask.dim() == 4:
        own = mask[line, 0]
        visible = own if own.dtype == torch.bool else own == own.max()
        first = visible.int().argmax(-1).cpu()
        starts |= first == torch.arange(length)
    for name in ("cu_seq_lens_q", "cu_seqlens"):
        bounds = batch.get(name)
        if isinstance(bounds, torch.Tensor) and len(batch["input_ids"]) == 1:
            starts[[i for i in bounds.flatten().tolist() if 0 < i < length]] = True
    return starts
