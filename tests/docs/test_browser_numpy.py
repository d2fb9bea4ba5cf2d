"""The page's stand-in of NumPy, function by function against NumPy."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

PATH = Path(__file__).parents[2] / "docs/browser_check/stand_ins/numpy/__init__.py"
RANDOM = random.Random(7)
NUMBERS = [RANDOM.randrange(-9, 9) for _ in range(40)]
COUNTS = [RANDOM.randrange(4) for _ in range(40)]
RISING = sorted(RANDOM.randrange(60) for _ in range(40))
MASK = [RANDOM.random() < 0.5 for _ in range(40)]
PAIRS = [(i, i + 3) for i in range(0, 30, 5)]
NOT_IN_STAND_IN = "einsum"

CASES: dict[str, Callable[[Any], Any]] = {
    "arithmetic": lambda np: np.array(NUMBERS) + np.array(COUNTS) - 1,
    "arithmetic from the left": lambda np: 2 + np.array(NUMBERS),
    "masks": lambda np: (np.array(NUMBERS) > 0) & ~np.array(MASK) | (np.array(COUNTS) == 2),
    "bits": lambda np: (np.frombuffer("aé🫠".encode(), dtype=np.uint8) & 0xC0) != 0x80,
    "less": lambda np: np.array(NUMBERS) < np.array(COUNTS),
    "chosen by a mask": lambda np: np.array(NUMBERS)[np.array(MASK)],
    "chosen by indices": lambda np: np.array(NUMBERS)[np.array([3, 0, 3])],
    "chosen by a slice": lambda np: np.array(NUMBERS)[5:-2],
    "column": lambda np: np.array(PAIRS)[:, 1],
    "concatenate": lambda np: np.concatenate((np.zeros(1, dtype=np.int64), np.array(NUMBERS))),
    "append": lambda np: np.append(np.array(RISING), 70),
    "cumsum": lambda np: np.cumsum(np.array(COUNTS), dtype=np.int64),
    "cumsum of a mask": lambda np: np.cumsum(np.array(MASK)),
    "diff": lambda np: np.diff(np.array(RISING)),
    "repeat": lambda np: np.repeat(np.array(NUMBERS), np.array(COUNTS)),
    "repeat once for all": lambda np: np.repeat(np.array(NUMBERS), 2),
    "searchsorted": lambda np: np.searchsorted(np.array(RISING), np.array(NUMBERS)),
    "searchsorted right": lambda np: np.searchsorted(np.array(RISING), np.array(COUNTS), "right"),
    "searchsorted pairs": lambda np: np.searchsorted(np.array(RISING), np.array(PAIRS)),
    "flatnonzero": lambda np: np.flatnonzero(np.array(MASK)),
    "isin": lambda np: np.isin(np.array([3, 1, 2, 3]), [3, 7]),
    "unique": lambda np: np.unique(np.array(NUMBERS)),
    "clip": lambda np: np.clip(np.array(NUMBERS), -2, 3),
    "minimum": lambda np: np.minimum(np.array(NUMBERS), 0),
    "maximum accumulate": lambda np: np.maximum.accumulate(np.array(NUMBERS)),
    "arange": lambda np: np.arange(5),
    "full": lambda np: np.full(3, -1, dtype=np.int64),
    "ones": lambda np: np.ones(3, dtype=np.bool_),
    "fromiter": lambda np: np.fromiter(map(abs, NUMBERS), dtype=np.int64, count=len(NUMBERS)),
    "frombuffer": lambda np: np.frombuffer(bytes(range(16)), dtype=np.uint64),
    "astype": lambda np: np.array(NUMBERS).astype(np.bool_),
}


def stand_in() -> Any:
    spec = importlib.util.spec_from_file_location("numpy_in_browser", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", CASES)
def test_it_gives_what_numpy_gives(name: str) -> None:
    expected, found = CASES[name](numpy), CASES[name](stand_in())
    assert found.tolist() == expected.tolist()
    assert found.dtype.__name__.strip("_") == expected.dtype.name.strip("_")
    assert found.shape == expected.shape


def test_elements_are_set_and_added_as_numpy_does() -> None:
    for np in (numpy, stand_in()):
        values = np.zeros(6, dtype=np.int32)
        values[1:3] = 7
        values[np.array([True, False, False, False, False, True])] = np.array([1, 2])
        values[[3]] = 5
        np.add.at(values, np.array([4, 4]), -1)
        assert values.tolist() == [1, 7, 7, 5, -2, 2]
        assert np.array([65, 66]).astype(np.uint8).tobytes() == b"AB"
        assert not np.zeros(0, dtype=np.bool_).any()
        assert int(np.array(COUNTS).sum()) == sum(COUNTS)


def test_what_is_not_there_is_an_error_and_no_number() -> None:
    np = stand_in()
    with pytest.raises(AttributeError):
        getattr(np, NOT_IN_STAND_IN)
    with pytest.raises(AttributeError):
        list(np.random.default_rng(1).integers(3))
    with pytest.raises(IndexError):
        np.array(NUMBERS)[np.array(MASK[1:])]
    with pytest.raises(ValueError, match="zip"):
        np.array([1, 2]) + np.array([1, 2, 3])
