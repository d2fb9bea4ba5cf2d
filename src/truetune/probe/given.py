"""The rows that the user gave: those from which the batches seem to come."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from truetune.probe.batches import Peeked

WINDOW = 16
"""Characters by which a row is recognised in the text of a batch"""
FEW = 200
"""A data set of up to so many rows is taken whole"""
SECONDS = 10.0


def given_rows(given: Any, peeked: list[Peeked], tokenizer: Any) -> tuple[list[dict[str, Any]], list[int], bool]:
    """Rows as JSON, their numbers, and whether all rows were looked at.

    A row is taken where 16 characters from the middle of its longest text stand in what the batches decode to.
    """
    from truetune.probe.observe import plain

    if given is None or not hasattr(given, "__len__") or not hasattr(given, "__getitem__"):
        return [], [], given is None
    if len(given) <= FEW:
        return [plain(given[i]) for i in range(len(given))], list(range(len(given))), True
    tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
    if tokenizer is None or not peeked:
        return [], [], False
    windows = {text[i : i + WINDOW] for text in _texts(peeked, tokenizer) for i in range(len(text) - WINDOW + 1)}
    until, rows, numbers = time.perf_counter() + SECONDS, [], []
    for number in range(len(given)):
        row = given[number]
        longest = max((" ".join(text.split()) for text in strings(row)), key=len, default="")
        middle = max((len(longest) - WINDOW) // 2, 0)
        if longest[middle : middle + WINDOW] in windows or (longest and len(longest) < WINDOW):
            rows.append(plain(row))
            numbers.append(number)
        if time.perf_counter() > until:
            return rows, numbers, number == len(given) - 1
    return rows, numbers, True


def _texts(peeked: list[Peeked], tokenizer: Any) -> Iterator[str]:
    for batch in peeked:
        for value in batch.inputs.values():
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
