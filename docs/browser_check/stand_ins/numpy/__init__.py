"""The part of NumPy that labelling one chat takes, in plain Python: flat arrays, and tables of pairs.

No package registry has NumPy for a browser, so the page brings this instead. Only what truetune calls there is here;
anything else is an AttributeError and never a wrong number. Slices are copies and not views. The trade-off: some
hundred times slower than NumPy, which is milliseconds for one chat. `tests/docs/test_browser_numpy.py` compares each
function with NumPy's, and `tests/docs/test_browser_check.py` whole results.
"""

from __future__ import annotations

import operator
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain
from itertools import repeat as repeated
from typing import Any

inf = float("inf")


class generic:  # noqa: N801 - NumPy's name
    """A type of elements; called, it converts one value."""

    convert: Callable[[Any], Any] = staticmethod(int)
    itemsize = 8

    def __new__(cls, value: Any = 0) -> Any:
        return cls.convert(value)


class integer(generic):  # noqa: N801 - NumPy's name
    """Whole numbers."""


class floating(generic):  # noqa: N801 - NumPy's name
    """Numbers with a fraction."""

    convert = staticmethod(float)


class bool_(generic):  # noqa: N801 - NumPy's name
    """True or false."""

    convert = staticmethod(bool)
    itemsize = 1


def _named(base: type[generic], name: str, itemsize: int) -> type[generic]:
    """A type of elements with a name and a width."""
    return type(name, (base,), {"itemsize": itemsize})


int8, int16, int32, int64 = (_named(integer, f"int{8 * n}", n) for n in (1, 2, 4, 8))
uint8, uint16, uint32, uint64 = (_named(integer, f"uint{8 * n}", n) for n in (1, 2, 4, 8))
float16, float32, float64 = (_named(floating, f"float{8 * n}", n) for n in (2, 4, 8))


class ndarray:  # noqa: N801 - NumPy's name
    """A flat array, or a table whose rows are lists of one length."""

    def __init__(self, values: Iterable[Any], dtype: Any = None) -> None:
        self.values = list(values)
        self.dtype = _dtype_of(self.values) if dtype is None else _element_type(dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of elements; of a table the numbers of rows and columns."""
        return (len(self.values), len(self.values[0])) if self._is_table() else (len(self.values),)

    @property
    def size(self) -> int:
        """The number of elements."""
        return len(self.values) * (self.shape[1] if self._is_table() else 1)

    def _is_table(self) -> bool:
        return bool(self.values) and isinstance(self.values[0], list)

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def __bool__(self) -> bool:
        if len(self.values) > 1:
            raise ValueError("the truth of several elements is not one value")
        return bool(self.values and self.values[0])

    def __repr__(self) -> str:
        return f"array({self.values})"

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, tuple):
            rows, column = key
            return ndarray([row[column] for row in self.values[rows]], self.dtype)
        if isinstance(key, slice):
            return ndarray(self.values[key], self.dtype)
        if isinstance(key, ndarray | list):
            return ndarray([self.values[i] for i in self._indices(key)], self.dtype)
        return self.values[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(key, slice):
            indices: Sequence[int] = range(len(self.values))[key]
        elif isinstance(key, ndarray | list):
            indices = self._indices(key)
        else:
            indices = [key]
        several = isinstance(value, ndarray | list | tuple)
        for i, one in zip(indices, value if several else repeated(value), strict=several):
            self.values[i] = self.dtype(one)

    def _indices(self, key: ndarray | list[Any]) -> list[int]:
        """The indices that an array of indices or a mask chooses."""
        chosen = list(key)
        if isinstance(key, ndarray) and key.dtype is bool_:
            if len(chosen) != len(self.values):
                raise IndexError(f"a mask of {len(chosen)} for {len(self.values)} elements")
            return [i for i, is_chosen in enumerate(chosen) if is_chosen]
        return chosen

    def _with(self, other: Any, function: Callable[[Any, Any], Any], dtype: Any) -> ndarray:
        """The results of a function of each element and another value."""
        pairs = _paired(self, other)
        return ndarray([function(one, two) for one, two in pairs], dtype)

    def _arithmetic(self, other: Any, function: Callable[[Any, Any], Any]) -> ndarray:
        dtype = self.dtype if self.dtype is not bool_ else int64
        others = other.dtype if isinstance(other, ndarray) else type(other)
        if others is float or (isinstance(others, type) and issubclass(others, floating)):
            dtype = float64
        elif isinstance(other, ndarray) and other.dtype.itemsize > dtype.itemsize:
            dtype = other.dtype
        return self._with(other, function, dtype)

    def __add__(self, other: Any) -> ndarray:
        return self._arithmetic(other, operator.add)

    __radd__ = __add__

    def __sub__(self, other: Any) -> ndarray:
        return self._arithmetic(other, operator.sub)

    def __and__(self, other: Any) -> ndarray:
        return self._with(other, operator.and_, self.dtype)

    def __or__(self, other: Any) -> ndarray:
        return self._with(other, operator.or_, self.dtype)

    def __invert__(self) -> ndarray:
        if self.dtype is not bool_:
            raise TypeError("only masks are inverted here")
        return ndarray([not one for one in self.values], bool_)

    def __eq__(self, other: object) -> Any:
        return self._with(other, operator.eq, bool_)

    def __ne__(self, other: object) -> Any:
        return self._with(other, operator.ne, bool_)

    def __lt__(self, other: Any) -> ndarray:
        return self._with(other, operator.lt, bool_)

    def __gt__(self, other: Any) -> ndarray:
        return self._with(other, operator.gt, bool_)

    def tolist(self) -> list[Any]:
        """The elements as a list."""
        return [list(one) if isinstance(one, list) else one for one in self.values]

    def astype(self, dtype: Any, copy: bool = True) -> ndarray:
        """The elements as another type."""
        kind = _element_type(dtype)
        return ndarray([kind(one) for one in self.values], kind)

    def any(self) -> bool:
        """Is any element true?"""
        return any(self.values)

    def sum(self) -> Any:
        """The sum of the elements."""
        return sum(self.values)

    def tobytes(self) -> bytes:
        """The bytes of an array of bytes."""
        if self.dtype is not uint8:
            raise TypeError("only arrays of bytes are written here")
        return bytes(self.values)


def _element_type(dtype: Any) -> Any:
    """The type of elements that a type of Python or of NumPy stands for."""
    return {int: int64, float: float64, bool: bool_}.get(dtype, dtype)


def _dtype_of(values: Sequence[Any]) -> Any:
    """The type that NumPy would give these values."""
    flat = list(chain.from_iterable(values)) if values and isinstance(values[0], list) else values
    if any(isinstance(one, float) for one in flat) or not flat:
        return float64
    return bool_ if all(isinstance(one, bool) for one in flat) else int64


def _paired(one: ndarray, other: Any) -> Iterator[tuple[Any, Any]]:
    """The elements of an array, each with its counterpart: an element, or the one value."""
    if isinstance(other, ndarray | list | tuple):
        others = list(other)
        if len(others) == 1 and len(one) != 1:
            others *= len(one)
        return zip(one.values, others, strict=True)
    return zip(one.values, repeated(other))


def array(values: Iterable[Any], dtype: Any = None) -> ndarray:
    """An array of these values; of pairs, a table."""
    given = [list(one) if isinstance(one, list | tuple | ndarray) else one for one in values]
    made = ndarray(given, dtype)
    if dtype is None or made._is_table():
        return made
    return made.astype(dtype)


def asarray(values: Any, dtype: Any = None) -> ndarray:
    """The array itself, or an array of these values."""
    if isinstance(values, ndarray) and dtype in (None, values.dtype):
        return values
    return array(values, dtype)


def zeros(count: int, dtype: Any = float64) -> ndarray:
    """An array of zeros."""
    return full(count, 0, dtype)


empty = zeros


def ones(count: int, dtype: Any = float64) -> ndarray:
    """An array of ones."""
    return full(count, 1, dtype)


def full(count: int, value: Any, dtype: Any = None) -> ndarray:
    """An array of one value."""
    kind = _dtype_of([value]) if dtype is None else _element_type(dtype)
    return ndarray([kind(value)] * count, kind)


def arange(count: int) -> ndarray:
    """The numbers below `count`."""
    return ndarray(range(count), int64)


def fromiter(values: Iterable[Any], dtype: Any, count: int = -1) -> ndarray:
    """An array of these values."""
    return array(values, dtype)


def frombuffer(data: bytes, dtype: Any) -> ndarray:
    """The numbers that bytes hold, in the order of this machine."""
    letter = {uint8: "B", int32: "i", uint32: "I", int64: "q", uint64: "Q"}[dtype]
    return ndarray(memoryview(data).cast(letter), dtype)


def concatenate(arrays: Iterable[Any]) -> ndarray:
    """Arrays, end to end."""
    parts = [asarray(part) for part in arrays]
    widest = max((part.dtype for part in parts), key=lambda dtype: dtype.itemsize)
    return ndarray(chain.from_iterable(parts), widest)


def append(values: ndarray, added: Any) -> ndarray:
    """An array with more behind it."""
    return concatenate((values, added if isinstance(added, ndarray | list) else [added]))


def cumsum(values: Any, dtype: Any = None) -> ndarray:
    """The running sums."""
    given = asarray(values)
    kind = dtype or (given.dtype if issubclass(given.dtype, floating) else int64)
    return ndarray(accumulate(given.values), kind)


def diff(values: Any) -> ndarray:
    """What each element has over the one before."""
    given = asarray(values)
    return ndarray(map(operator.sub, given.values[1:], given.values), given.dtype)


def repeat(values: Any, counts: Any) -> ndarray:
    """Each element as often as its count says."""
    given = asarray(values)
    times = [counts] * len(given) if isinstance(counts, int) else list(counts)
    pairs = zip(given.values, times, strict=True)
    return ndarray(chain.from_iterable([one] * count for one, count in pairs), given.dtype)


def searchsorted(rising: Any, values: Any, side: str = "left") -> Any:
    """Where values would be put into a rising array."""
    find, ordered = (bisect_left if side == "left" else bisect_right), asarray(rising).values
    if not isinstance(values, ndarray | list):
        return find(ordered, values)
    rows = (
        [find(ordered, one) for one in row] if isinstance(row, list) else find(ordered, row)
        for row in values
    )
    return ndarray(rows, int64)


def flatnonzero(values: Any) -> ndarray:
    """The indices of the elements that are true."""
    return ndarray([i for i, one in enumerate(values) if one], int64)


def isin(values: Any, wanted: Any) -> ndarray:
    """Which elements are among others."""
    among = set(asarray(wanted).values)
    return ndarray([one in among for one in asarray(values).values], bool_)


def unique(values: Any) -> ndarray:
    """The different elements, rising."""
    given = asarray(values)
    return ndarray(sorted(set(given.values)), given.dtype)


def clip(values: Any, low: Any, high: Any) -> ndarray:
    """The elements, none below `low` or above `high`."""
    return minimum(maximum(values, low), high)


class _Ufunc:
    """A function of two values, for arrays."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self.function = function

    def __call__(self, one: Any, other: Any) -> ndarray:
        given = asarray(one)
        return given._with(other, self.function, given.dtype)

    def accumulate(self, values: Any) -> ndarray:
        """The running results."""
        given = asarray(values)
        return ndarray(accumulate(given.values, self.function), given.dtype)

    def at(self, target: ndarray, indices: Iterable[int], value: Any) -> None:
        """Change elements of an array, one index after the other."""
        for i in indices:
            target.values[i] = self.function(target.values[i], value)


add = _Ufunc(operator.add)
minimum = _Ufunc(min)
maximum = _Ufunc(max)


class _NotHere:
    """What other parts of truetune make of random numbers at import. To use it for anything is an error."""

    def __getattr__(self, name: str) -> _NotHere:
        return self

    def __call__(self, *arguments: Any, **named: Any) -> _NotHere:
        return self

    def __or__(self, other: Any) -> _NotHere:
        return self

    def __iter__(self) -> Iterator[Any]:
        raise AttributeError("numpy.random is not there in the browser")

    __getitem__ = __bool__ = __len__ = __iter__  # type: ignore[assignment]


random = _NotHere()
