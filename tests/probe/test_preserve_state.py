"""Whatever is drawn, counted or set inside `still` is put back; the rows of big data are found."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import numpy as np
import pytest
import torch

from truetune.probe.find_source_rows_of_batches import find_source_rows
from truetune.probe.peek_batches import PeekedBatch
from truetune.probe.restore_state_changed_by_observing_run import preserve_state

MODULE = random.Random(1)


class Holder:
    def __init__(self) -> None:
        self.count, self.seen, self.names = 0, deque([1], maxlen=2), {"a": 1}
        self.python, self.arrays, self.old = (
            random.Random(2),
            np.random.default_rng(3),
            np.random.RandomState(4),
        )
        self.tensors = torch.Generator().manual_seed(5)

    def __call__(self) -> list[float]:
        self.count += 1
        self.seen.append(self.count)
        self.names["b"] = 2
        self.lazy = True
        drawn = [self.python.random(), self.arrays.random(), self.old.rand(), MODULE.random()]
        drawn += [
            random.random(),
            np.random.rand(),
            torch.rand(()).item(),
            torch.rand((), generator=self.tensors).item(),
        ]
        return [*drawn, self.count, *self.seen, *self.names.values()]


def test_everything_is_put_back() -> None:
    holder = Holder()
    with preserve_state(holder):
        first = holder()
    assert not hasattr(holder, "lazy")
    with preserve_state(holder):
        assert holder() == first


def test_a_function_and_what_it_closes_over() -> None:
    inside = random.Random(3)

    def draw() -> tuple[float, float]:
        return inside.random(), MODULE.random()

    with preserve_state(draw):
        first = draw()
    assert draw() == first


def test_also_after_an_error() -> None:
    before = random.getstate()
    with pytest.raises(IndexError), preserve_state():
        random.choice([])
    with pytest.raises(ZeroDivisionError), preserve_state():
        random.randrange(int(1 / (random.random() * 0)))
    assert random.getstate() == before


class Words:
    """A tokenizer of one word per id."""

    def decode(self, ids: list[int]) -> str:
        return " ".join(f"number {id} of many" for id in ids)


class Table:
    """Rows that count how often they are read."""

    def __init__(self, count: int, text: bool = True) -> None:
        self.count, self.text, self.read = count, text, 0

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        self.read += 1
        return {"text": f"number {index} of many"} if self.text else {"input_ids": [index]}


def peeked(indices: list[int] | None, ids: list[int]) -> PeekedBatch:
    return PeekedBatch(indices, [], {"input_ids": torch.tensor([ids])})


def test_rows_in_order_are_found_at_once() -> None:
    table = Table(100_000)
    rows, numbers, complete = find_source_rows(table, [peeked([7000, 9000], [7000, 9000])], Words())
    assert (numbers, complete) == ([7000, 9000], True)
    assert [row["text"] for row in rows] == ["number 7000 of many", "number 9000 of many"]
    assert table.read < 20


def test_rows_out_of_order_are_searched() -> None:
    assert find_source_rows(Table(1000), [peeked([0, 1], [500, 600])], Words())[1:] == (
        [500, 600],
        True,
    )
    assert find_source_rows(Table(1000), [peeked(None, [500, 600])], Words())[1:] == (
        [500, 600],
        True,
    )


def test_encoded_rows_are_those_that_the_batches_name() -> None:
    table = Table(100_000, text=False)
    assert find_source_rows(table, [peeked([5, 3], [1])], Words())[1:] == ([3, 5], True)
    assert table.read < 20
