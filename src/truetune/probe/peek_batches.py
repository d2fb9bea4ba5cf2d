"""The first batches of a data loader, taken with its own sampler, data set and collator, without moving it.

The loader itself is not iterated: it would start worker processes, and accelerate's would count an epoch. Its sampler,
data set and collator are called in its place, and their state is put back. The trade-off: a loader of a class of the
user's own that does more than that in `__iter__` is not followed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from inspect import ismethod
from itertools import islice
from typing import Any, NamedTuple

from torch.utils.data import DataLoader, IterableDataset

from truetune.probe.recognise_ids_labels_and_mask import Key, NamedBatch, name_batch
from truetune.probe.restore_state_changed_by_observing_run import preserve_state

# Attributes by which a data loader's parts hold each other.
LOADER_PARTS = ("batch_sampler", "sampler", "dataset", "datasets", "collate_fn", "data_collator")


class PeekedBatch(NamedTuple):
    """One micro-batch."""

    indices: list[int] | None
    """Rows of the prepared data; None where they have no number"""
    rows: list[Any]
    """What the collator was given"""
    inputs: dict[str, Any]
    """What the collator made, by our names"""
    named: NamedBatch = NamedBatch({})
    """How it was laid out"""


def peek_batches(
    loader: DataLoader[Any],
    count: int,
    keys: Mapping[str, Key] | None = None,
    vocabulary: int | None = None,
) -> list[PeekedBatch]:
    """The first `count` batches of this process. `keys` and `vocabulary` are those of `name_batch`.

    Raises what the user's data set or collator raises, or UsageError where `keys` names what is not in a batch.

    A data set that is its own iterator can't be looked at without taking its rows away: then there is none.
    """
    if isinstance(loader.dataset, Iterator):
        return []
    # Samplers draw and data sets count: the run shall draw the same rows again.
    with preserve_state(*loader_samplers_datasets_and_collators(loader)):
        peeked = []
        for indices, rows, batch in islice(_planned_batches(loader), count):
            named = name_batch(batch, keys, vocabulary)
            peeked.append(PeekedBatch(indices, rows, named.inputs, named))
        return peeked


def _planned_batches(loader: DataLoader[Any]) -> Iterator[tuple[list[int] | None, list[Any], Any]]:
    """(row numbers or None, rows, collated batch) as the loader would yield them, without its worker processes."""
    dataset, collate = loader.dataset, loader.collate_fn
    if isinstance(dataset, IterableDataset):
        for batch in _dispatched_batches_of_rank(loader, _batches_of_streamed_rows(loader)):
            yield None, batch, collate(batch if loader.batch_size else batch[0])
    elif loader.batch_sampler is None:
        for index in loader.sampler:
            row = dataset[index]
            yield [index], [row], collate(row)
    else:
        for indices in loader.batch_sampler:
            rows = _rows_at(dataset, list(indices))
            yield list(indices), rows, collate(rows)


def _batches_of_streamed_rows(loader: DataLoader[Any]) -> Iterator[list[Any]]:
    """The rows of a stream by batches; a last one that is short is left out where the loader drops it."""
    rows = iter(loader.dataset)
    while batch := list(islice(rows, loader.batch_size or 1)):
        if len(batch) == (loader.batch_size or 1) or not loader.drop_last:
            yield batch


def _dispatched_batches_of_rank(loader: Any, batches: Iterator[list[Any]]) -> Iterator[list[Any]]:
    """accelerate's dispatcher reads in the first process, and gives each one its batch in turn."""
    if not type(loader).__name__.startswith("DataLoaderDispatcher"):
        return batches
    return islice(batches, loader.state.process_index, None, loader.state.num_processes)


def _rows_at(dataset: Any, indices: list[int]) -> list[Any]:
    """Rows of a data set, in one call where it takes several numbers, as torch's fetcher does."""
    if hasattr(dataset, "__getitems__") and dataset.__getitems__:
        return list(dataset.__getitems__(indices))
    return [dataset[i] for i in indices]


def loader_samplers_datasets_and_collators(loader: Any) -> list[Any]:
    """A data loader's samplers, data sets and collators, whatever they are wrapped in: what `preserve_state` takes."""
    components: dict[int, Any] = {}
    waiting = [getattr(loader, name, None) for name in LOADER_PARTS]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list | tuple):
            waiting.extend(part)
        elif part is not None and id(part) not in components:
            components[id(part)] = part
            waiting.extend(
                vars(part).get(name) for name in LOADER_PARTS if hasattr(part, "__dict__")
            )
            waiting.append(part.__self__ if ismethod(part) else None)
    return list(components.values())
