"""Which documents stand in a line of a batch, by the keys that the collator gives.

These are tensors of the run's own batch, for laws. `truetune.auditing.document_borders` reads such keys of a record in
numpy, where no torch is. The trade-off of two readers: a new key has to be added to both.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch

Span = tuple[int, int]
"""A document's first place, and the one behind its last"""


def holds_packed_line(batch: dict[str, Any]) -> bool:
    """Does any line hold several documents that the batch tells apart?"""
    return any(
        len(document_spans(batch, line)) > 1 for batch, line in lines_with_ids_of_batches([batch])
    )


def lines_with_ids_of_batches(
    batches: list[dict[str, Any]],
) -> Iterator[tuple[dict[str, Any], int]]:
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
    """(tokens,) bool: which of a line are no padding; all where the batch has no mask of lines."""
    mask = batch.get("attention_mask")
    if isinstance(mask, torch.Tensor) and mask.dim() == 2:
        return (mask[line] != 0).cpu()
    return torch.ones(length, dtype=torch.bool)


def _document_starts(
    batch: dict[str, Any], line: int, length: int, attended: torch.Tensor
) -> torch.Tensor:
    """(tokens,) bool: does a document begin here? By each of the keys that collators use for it."""
    starts = torch.zeros(length, dtype=torch.bool)
    starts[0] = True
    mask = batch.get("attention_mask")
    starts[1:] |= _starts_by_positions(batch.get("position_ids"), line, attended)
    # Axolotl and Megatron number the documents in the mask itself.
    for numbers in (batch.get("seq_idx"), mask):
        starts[1:] |= _starts_by_document_numbers(numbers, line, attended)
    if isinstance(mask, torch.Tensor) and mask.dim() == 4:
        starts |= _starts_by_block_mask(mask[line, 0], length)
    # Boundaries of flash attention count the tokens of the whole batch: of one line they are its positions.
    for name in ("cu_seq_lens_q", "cu_seqlens"):
        bounds = batch.get(name)
        if isinstance(bounds, torch.Tensor) and len(batch["input_ids"]) == 1:
            starts[[i for i in bounds.flatten().tolist() if 0 < i < length]] = True
    return starts


def _starts_by_positions(positions: Any, line: int, attended: torch.Tensor) -> torch.Tensor:
    """(tokens - 1,) bool from the second token on: do positions restart here?"""
    if not isinstance(positions, torch.Tensor) or positions.dim() != 2:
        return torch.zeros(len(attended) - 1, dtype=torch.bool)
    own = _values_of_line(positions, line)
    # A jump to another position than 0 counts only behind padding: left padding, or positions that count on.
    return (own[1:] != own[:-1] + 1) & ((own[1:] == 0) | ~attended[:-1])


def _starts_by_document_numbers(numbers: Any, line: int, attended: torch.Tensor) -> torch.Tensor:
    """(tokens - 1,) bool from the second token on: does the document's number change, with no padding beside?"""
    if not isinstance(numbers, torch.Tensor) or numbers.dim() != 2:
        return torch.zeros(len(attended) - 1, dtype=torch.bool)
    own = _values_of_line(numbers, line)
    return (own[1:] != own[:-1]) & attended[1:] & attended[:-1]


def _starts_by_block_mask(mask: torch.Tensor, length: int) -> torch.Tensor:
    """(tokens,) bool of a (tokens, tokens) mask: is the first token that this one sees itself?"""
    # Of an additive mask the largest value means visible, whether that is 0 or 1.
    visible = mask if mask.dtype == torch.bool else mask == mask.max()
    first: torch.Tensor = visible.int().argmax(-1).cpu()
    return first == torch.arange(length)


def _values_of_line(values: torch.Tensor, line: int) -> torch.Tensor:
    """The values of one line; a collator may give one line of positions for all."""
    return values[min(line, len(values) - 1)].cpu()
