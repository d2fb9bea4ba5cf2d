"""The first batches of a data loader, taken with its own sampler, data set and collator, without moving it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, IterableDataset

from truetune.probe.still import still


class Peeked(NamedTuple):
    """One micro-batch."""

    indices: list[int] | None
    """Rows of the prepared data; None where they have no number"""
    rows: list[Any]
    """What the collator was given"""
    inputs: dict[str, Any]
    """What the collator made"""


def peek(loader: DataLoader[Any], count: int) -> list[Peeked]:
    """The first `count` batches of this process. Raises what the user's data set or collator raises.

    A data set that is its own iterator can't be looked at without taking its rows away: then there is none.
    """
    dataset, collate = loader.dataset, loader.collate_fn or torch.utils.data.default_collate
    if isinstance(dataset, IterableDataset) or loader.batch_sampler is None:
        if isinstance(dataset, Iterator):
            return []
        with still(dataset):
            return list(islice(_streamed(loader, collate), count))
    holders = list(_chain(loader.batch_sampler))
    with still(dataset, *holders) if hasattr(dataset, "__dict__") else still(*holders):
        taken = []
        for indices in islice(iter(loader.batch_sampler), count):
            rows = _rows(dataset, list(indices))
            taken.append(Peeked(list(indices), rows, _mapping(collate(rows))))
        return taken


def _streamed(loader: DataLoader[Any], collate: Any) -> Iterator[Peeked]:
    rows = iter(loader.dataset)
    while batch := list(islice(rows, loader.batch_size or 1)):
        yield Peeked(None, batch, _mapping(collate(batch)))


def _rows(dataset: Any, indices: list[int]) -> list[Any]:
    if hasattr(dataset, "__getitems__"):
        return list(dataset.__getitems__(indices))
    return [dataset[i] for i in indices]


def _mapping(batch: Any) -> dict[str, Any]:
    """A collator may give a tuple: its tensors are then named as most loops unpack them."""
    if isinstance(batch, Mapping):
        return dict(batch)
    values = list(batch) if isinstance(batch, tuple | list) else [batch]
    names = ("input_ids", "labels") if len(values) == 2 else ("input_ids", "attention_mask", "labels")
    return dict(zip(names, values, strict=False))


def _chain(sampler: Any) -> Iterator[Any]:
    """A batch sampler, and what it draws from."""
    seen: list[Any] = []
    while sampler is not None and sampler not in seen:
        seen.append(sampler)
        yield sampler
        sampler = getattr(sampler, "batch_sampler", None) or getattr(sampler, "sampler", None)
