"""Chooses the collator of a run: batches padded, or without padding; whichever costs less.

A kernel of variable length takes the documents as they are, without padding. Any other attention makes a mask of
(tokens x tokens) where documents share a row, and then computes all of it: without padding there are fewer tokens,
and more pairs of them. Of one layer of width h, tokens cost about 12 h^2 multiplications each, and pairs 2 h each
(Kaplan 2020, "Scaling Laws for Neural Language Models", section 2.1): a pair costs 1 / 6h of a token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from truetune.collate import PaddingCollator, PaddingFreeCollator
from truetune.training.does_attention_keep_documents_apart import ModelAttention

# Chosen by memory, not by speed: at twice as many the mask takes four times the room (1 GiB as
# float32); at half, batches of long rows are padded that need not be.
MAX_MASKED_TOKENS = 8192
"""Tokens in one row with a mask: the mask of as many takes 64 MiB as bits of truth, 256 MiB as float32"""
Collate = Callable[[Sequence[Mapping[str, Any]]], dict[str, Any]]


@dataclass(frozen=True)
class CheaperCollator:
    """A collator that pads a batch, or lays its rows end to end, by which costs less. Raises
    DataError as the two collators do.
    """

    pad_id: int
    width: int
    """Of the model"""

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        lengths = [len(row["input_ids"]) for row in rows]
        if is_padding_free_cheaper(lengths, self.width):
            return PaddingFreeCollator()(rows)
        return PaddingCollator(self.pad_id)(rows)


@dataclass(frozen=True)
class UnpackingCollator:
    """A collator that takes packs apart and pads their documents, for a model that would mix them.
    Raises DataError.
    """

    pad_id: int

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return PaddingCollator(self.pad_id)(
            [document for row in rows for document in split_packed_row_into_documents(row)]
        )


def split_packed_row_into_documents(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row for each document of a packed one."""
    tokens = len(row["input_ids"])
    lengths = [int(length) for length in row.get("seq_lengths", (tokens,))]
    columns = {
        # They describe the whole pack, and would be wrong for a document on its own.
        name: values
        for name, values in row.items()
        if name not in ("seq_lengths", "position_ids")
    }
    return [
        {name: values[end - length : end] for name, values in columns.items()}
        for end, length in zip(accumulate(lengths), lengths, strict=True)
    ]


def is_padding_free_cheaper(lengths: Sequence[int], width: int) -> bool:
    """Is a batch of rows with these lengths cheaper without padding?"""
    total, padded = sum(lengths), len(lengths) * max(lengths, default=0)
    if total > MAX_MASKED_TOKENS:
        return False
    # Both sides in units of one token's work in a layer of this width: tokens, and pairs of tokens
    # at 1 / (6 * width) each. The head and norms are left out, which favours neither side much.
    return total + total**2 / (6 * width) < padded + padded * max(lengths, default=0) / (6 * width)


def choose_collator_by_attention(attention: ModelAttention, tokenizer: Any, model: Any) -> Collate:
    """The collator for a model, by whether its attention keeps the documents of a packed row apart."""
    pad_id = PaddingCollator.of(tokenizer).pad_id
    # Contamination between documents changes what is learned and no loss shows it, so the packs are
    # given up rather than their separation.
    if not attention.packs:
        return UnpackingCollator(pad_id)
    if attention.varlen:
        return PaddingFreeCollator(varlen=True)
    return CheaperCollator(pad_id, int(model.config.get_text_config().hidden_size))
