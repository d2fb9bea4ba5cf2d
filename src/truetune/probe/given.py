"""The rows that the user gave: those from which the batches seem to come."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import torch

from truetune.probe.batches import Peeked

WINDOW = 16
"""Characters by which a row is recognised in the text of a batch"""
FEW = 200
"""A data set of up to so many rows is taken whole"""
SECONDS = 10.0


def given_rows(given: Any, peeked: list[Peeked], tokenizer: Any) -> tuple[list[dict[str, Any]], list[int], bool]:
    """Rows as JSON, their numbers, and whether all rows were looked at that the batches may come from.

    A row is taken where 16 characters from the middle of its longest text stand in what the batches decode to. Rows
    without text, encoded before they were given, are taken where the batches name them.
    """
    from truetune.probe.observe import plain

    if given is None or not hasattr(given, "__len__") or not hasattr(given, "__getitem__"):
        return [], [], given is None
    named = sorted({index for batch in peeked for index in batch.indices or () if 0 <= index < len(given)})
    if len(given) <= FEW:
        numbers = list(range(len(given)))
    elif not any(any(strings(given[i])) for i in range(8)):
        numbers = named
    else:
        return _recognised(given, named, peeked, tokenizer)
    return [plain(row) if isinstance(row := given[number], Mapping) else {} for number in numbers], numbers, True


def _recognised(
    given: Any, named: list[int], peeked: list[Peeked], tokenizer: Any
) -> tuple[list[dict[str, Any]], list[int], bool]:
    """Where the trainer kept the order of the rows, those that the batches name are found at once."""
    from truetune.probe.observe import plain

    tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
    if tokenizer is None or not peeked:
        return [], [], False
    windows = {text[i : i + WINDOW] for text in _texts(peeked, tokenizer) for i in range(len(text) - WINDOW + 1)}
    found: dict[int, dict[str, Any]] = {}
    until = time.perf_counter() + SECONDS

    def look(numbers: Iterable[int]) -> bool:
        for number in numbers:
            row = given[number]
            if number not in found and _stands(row, windows):
                found[number] = plain(row) if isinstance(row, Mapping) else {}
            if time.perf_counter() > until:
                return False
        return True

    complete = look(named)
    if not named or len(found) < len(named):
        complete = look(range(len(given)))
    return [found[number] for number in sorted(found)], sorted(found), complete


def _stands(row: Any, windows: set[str]) -> bool:
    longest = max((" ".join(text.split()) for text in strings(row)), key=len, default="")
    middle = max((len(longest) - WINDOW) // 2, 0)
    return longest[middle : middle + WINDOW] in windows or 0 < len(longest) < WINDOW


def _texts(peeked: list[Peeked], tokenizer: Any) -> Iterator[str]:
    for value in chain.from_iterable(batch.inputs.values() for batch in peeked):
        if isinstance(value, torch.Tensor) and value.dim() == 2 and not value.is_floating_point():
            for row in value.tolist():
                yield " ".join(tokenizer.decode([id for id in row if id >= 0]).split())


def strings(value: Any) -> Iterator[str]:
    """All texts of a row."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from strings(item)
