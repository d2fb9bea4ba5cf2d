"""Collators: the rows that `truetune encode` wrote, as the tensors of one batch.

A pad is a place, not a token: what is padding follows from lengths, and no label from an id. So any id can pad, a stop
token too. Torch is imported when the first batch is made.

transformers keeps the documents of a packed row apart, with any attention, by positions that start again at 0; but
only in a batch without `attention_mask` and without a cache. Batches of packed rows are made so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from truetune.errors import DataError, TokenizerError, UsageError
from truetune.render.rendering import IGNORED

if TYPE_CHECKING:
    import torch


MORE: dict[str, type[np.generic]] = {"loss_weights": np.float32, "sources": np.uint8}
"""Columns that a batch gets where its rows have them; 0 where there is no token."""


@dataclass(frozen=True)
class PaddingCollator:
    """A collator that pads rows to a batch of (rows, longest) on one side.

    Gives `input_ids`, `labels`, `attention_mask`, and `loss_weights` and `sources` where the rows have them. Left
    padding adds `position_ids` that start at each row's first token. Packed rows get `position_ids` and `use_cache`
    instead of `attention_mask`; flash attention heeds their positions in a batch of one row only: use
    PaddingFreeCollator there.

    Raises DataError where a row's columns disagree.
    """

    pad_id: int
    """Any id that the model's embedding holds."""
    side: Literal["right", "left"] = "right"
    pad_to_multiple_of: int | None = None
    """In tokens."""

    def __post_init__(self) -> None:
        if self.pad_id < 0:
            raise UsageError(
                f"pad_id is {self.pad_id}; it must be an id of the model's embedding, 0 or more"
            )
        if self.side not in ("right", "left"):
            raise UsageError(f"side is {self.side!r}; it must be 'right' or 'left'")
        if self.pad_to_multiple_of is not None and self.pad_to_multiple_of < 1:
            raise UsageError(
                f"pad_to_multiple_of is {self.pad_to_multiple_of}; it must be 1 or more"
            )

    @classmethod
    def of(
        cls,
        tokenizer: Any,
        side: Literal["right", "left"] = "right",
        pad_to_multiple_of: int | None = None,
    ) -> PaddingCollator:
        """A collator with the pad id of a transformers tokenizer, else its EOS id, which is as
        good.
        """
        for id in (tokenizer.pad_token_id, tokenizer.eos_token_id):
            if id is not None:
                return cls(int(id), side, pad_to_multiple_of)
        raise TokenizerError(
            "the tokenizer has neither a pad token nor an EOS token; name an id: PaddingCollator(0)"
        )

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        columns = _read_and_check_columns(rows)
        lengths = [len(ids) for ids in columns.ids]
        multiple = self.pad_to_multiple_of or 1
        width = -(-max(lengths) // multiple) * multiple
        batch: dict[str, Any] = {
            "input_ids": self._pad_column(columns.ids, width, self.pad_id),
            "labels": self._pad_column(columns.labels, width, IGNORED),
        }
        if not columns.packed:
            ones = [np.ones_like(ids) for ids in columns.ids]
            batch["attention_mask"] = self._pad_column(ones, width, 0)
        if columns.packed or self.side == "left":
            positions = [_positions_in_documents(documents) for documents in columns.documents]
            batch["position_ids"] = self._pad_column(positions, width, 0)
        if columns.packed:
            batch["use_cache"] = False
        for name, parts in columns.more.items():
            batch[name] = self._pad_column(parts, width, 0)
        return batch

    def _pad_column(self, parts: Sequence[NDArray[Any]], width: int, fill: int) -> torch.Tensor:
        """One column of the rows as (rows, width), filled up on the side of the pads."""
        padded = np.full((len(parts), width), fill, dtype=parts[0].dtype)
        for line, part in zip(padded, parts, strict=True):
            start = width - len(part) if self.side == "left" else 0
            line[start : start + len(part)] = part
        return _to_tensor(padded)


@dataclass(frozen=True)
class PaddingFreeCollator:
    """A collator that lays rows, packed or not, end to end in one row of (1, tokens) without
    padding.

    Gives `input_ids`, `labels`, `position_ids` that start at 0 in each document, `use_cache`, and `loss_weights` and
    `sources` where the rows have them. Never an `attention_mask`. Raises DataError where a row's columns disagree.
    """

    varlen: bool = False
    """Adds what kernels of variable length take: `cu_seq_lens_q`, `cu_seq_lens_k` (documents + 1,) int32,
    `max_length_q`, `max_length_k`, and `seq_idx` (1, tokens) int32, the document of each token."""

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        columns = _read_and_check_columns(rows)
        documents = np.concatenate(columns.documents)
        batch: dict[str, Any] = {
            "input_ids": _to_tensor(np.concatenate(columns.ids)[None]),
            "labels": _to_tensor(np.concatenate(columns.labels)[None]),
            "position_ids": _to_tensor(_positions_in_documents(documents)[None]),
            "use_cache": False,
        }
        for name, parts in columns.more.items():
            batch[name] = _to_tensor(np.concatenate(parts)[None])
        if self.varlen:
            borders = _to_tensor(np.concatenate(([0], np.cumsum(documents))).astype(np.int32))
            batch["cu_seq_lens_q"] = batch["cu_seq_lens_k"] = borders
            batch["max_length_q"] = batch["max_length_k"] = int(documents.max())
            batch["seq_idx"] = _to_tensor(
                np.repeat(np.arange(len(documents), dtype=np.int32), documents)[None]
            )
        return batch


def weighted_loss(
    logits: torch.Tensor,
    labels: torch.Tensor,
    vocab_size: int,
    num_items_in_batch: torch.Tensor | int | None = None,
    loss_weights: torch.Tensor | None = None,
    shift_labels: torch.Tensor | None = None,
    **others: Any,
) -> torch.Tensor:
    """The training loss: the sum of weight x cross-entropy (nats) over the supervised tokens,
    divided by their number.

    Set it as `model.loss_function` of a transformers model before the Trainer is made. `logits` is (rows, tokens,
    vocab_size), `labels` and `loss_weights` are (rows, tokens); `num_items_in_batch` is the number of supervised
    tokens of all batches of a step, as the Trainer counts them. Raises UsageError where no weights arrive.
    """
    import torch

    if loss_weights is None:
        raise UsageError(
            "the batch holds no loss_weights: encode data that has weights, use a collator of"
            " truetune.collate, and set remove_unused_columns=False"
        )
    if shift_labels is not None:
        raise UsageError(
            "weighted_loss shifts the labels itself; it can't be used where a sequence is split"
            " over ranks"
        )
    pad, cross_entropy = torch.nn.functional.pad, torch.nn.functional.cross_entropy
    targets = pad(labels[:, 1:], (0, 1), value=IGNORED).reshape(-1).to(logits.device)
    weights = pad(loss_weights[:, 1:], (0, 1)).reshape(-1).to(logits.device)
    losses = cross_entropy(
        logits.reshape(-1, vocab_size).float(), targets, ignore_index=IGNORED, reduction="none"
    )
    count = (targets != IGNORED).sum() if num_items_in_batch is None else num_items_in_batch
    return (losses * weights).sum() / torch.as_tensor(count, device=logits.device).clamp(min=1)


class _Columns(NamedTuple):
    """The columns of a batch's rows, one array for each row."""

    ids: list[NDArray[np.int64]]
    labels: list[NDArray[np.int64]]
    documents: list[NDArray[np.int64]]
    """Their lengths, in tokens."""
    packed: bool
    more: dict[str, list[NDArray[Any]]]
    """Those of MORE that the rows have."""


def _read_and_check_columns(rows: Sequence[Mapping[str, Any]]) -> _Columns:
    """Read the columns of a batch's rows, and check that their lengths agree. Raises UsageError or
    DataError.
    """
    if not rows:
        raise UsageError("a batch of no rows can't be collated")
    more = {
        name: kind for name, kind in MORE.items() if any(row.get(name) is not None for row in rows)
    }
    columns = _Columns(
        [], [], [], any(_is_packed_row(row) for row in rows), {name: [] for name in more}
    )
    for number, row in enumerate(rows):
        ids = _read_column(row, number, "input_ids")
        documents = _document_lengths(row, number, len(ids))
        labels = _read_column(row, number, "labels", len(ids))
        labels[np.cumsum(documents) - documents] = IGNORED
        columns.ids.append(ids)
        columns.documents.append(documents)
        columns.labels.append(labels)
        for name, kind in more.items():
            columns.more[name].append(_read_column(row, number, name, len(ids), kind))
    return columns


def _is_packed_row(row: Mapping[str, Any]) -> bool:
    """Does a row say where its documents begin?"""
    return row.get("seq_lengths") is not None or row.get("position_ids") is not None


def _document_lengths(row: Mapping[str, Any], number: int, tokens: int) -> NDArray[np.int64]:
    """(documents,) the lengths of a row's documents: by `seq_lengths`, else by where `position_ids`
    is 0, else the row is one.
    """
    if not tokens:
        raise DataError(
            f"{_describe_row_place(row, number)} holds no token; expected at least one: encode the data again"
        )
    positions = (
        None
        if row.get("position_ids") is None
        else _read_column(row, number, "position_ids", tokens)
    )
    if row.get("seq_lengths") is not None:
        lengths = _read_column(row, number, "seq_lengths")
    elif positions is not None:
        lengths = np.diff(np.append(np.flatnonzero(positions == 0), tokens))
    else:
        lengths = np.array([tokens])
    if (lengths < 1).any() or lengths.sum() != tokens:
        raise DataError(
            f"{_describe_row_place(row, number)} has documents of {lengths.sum()} tokens in all, and {tokens}"
            " input_ids; expected as many: was it cut after it was encoded?"
        )
    if positions is not None and not np.array_equal(positions, _positions_in_documents(lengths)):
        raise DataError(
            f"{_describe_row_place(row, number)} has position_ids that do not count up from 0 in each of its"
            " documents"
        )
    return lengths


def _positions_in_documents(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """(documents,) lengths -> (tokens,) positions, from 0 in each document."""
    return np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)


def _read_column(
    row: Mapping[str, Any],
    number: int,
    name: str,
    tokens: int | None = None,
    kind: type[np.generic] = np.int64,
) -> NDArray[Any]:
    """A column of a row as a new array; as long as `tokens`, where that is given."""
    values: ArrayLike | None = row.get(name)
    if values is None:
        raise DataError(
            f"{_describe_row_place(row, number)} has no {name}; its columns are {', '.join(row)}"
        )
    array = np.asarray(values)
    if tokens is not None and len(array) != tokens:
        raise DataError(
            f"{_describe_row_place(row, number)} has {len(array)} {name} and {tokens} input_ids; expected as"
            " many: was one of them cut after it was encoded?"
        )
    return array.astype(kind)


def _describe_row_place(row: Mapping[str, Any], number: int) -> str:
    """Where a row came from, if it still says so; a packed row says it with lists."""
    file, line = row.get("file"), row.get("line")
    return f"{file}:{line}" if isinstance(file, str) else f"row {number + 1} of the batch"


def _to_tensor(array: NDArray[Any]) -> torch.Tensor:
    """An array as a tensor."""
    import torch

    return torch.from_numpy(array)
