"""Twins: beside each data set a marked row, which is sent through every `map` that the user's own code calls.

The data sets themselves are not touched: a twin is a table of one row of its own. The user's functions are called once
more, for that row; random states are put back.
"""

from __future__ import annotations

import functools
import inspect
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from truetune.probe.marks import Mark, marked, tokenized

MIRRORED = ("map", "rename_column", "rename_columns", "remove_columns", "select_columns", "cast", "cast_column",
            "flatten", "with_format", "with_transform")  # fmt: skip
"""Methods that are called on the twin too"""
CARRIED = ("filter", "select", "shuffle", "sort", "take", "skip", "shard", "repeat", "flatten_indices",
           "train_test_split")  # fmt: skip
"""Methods after which the twin is the same: they choose rows"""
ALONE = {"load_from_cache_file": False, "keep_in_memory": True}
LEFT_OUT = ("num_proc", "cache_file_name", "new_fingerprint", "desc")
"""Arguments that a twin's own call gets, or does not: no cache, no other process"""


@dataclass(frozen=True)
class Twin:
    """The marked row of a data set."""

    dataset: Any
    """None where the user's own code did not take it"""
    marks: tuple[Mark, ...]
    rows: tuple[dict[str, Any], ...]
    """The marked rows as they began"""
    note: str = ""


_twins: weakref.WeakKeyDictionary[Any, Twin] = weakref.WeakKeyDictionary()
_tables: dict[int, tuple[weakref.ref[Any], Twin]] = {}
"""By the identity of a data set's table: Axolotl makes a data set of its own around the table of a mapped one"""
_inside = False


def twin_of(dataset: Any) -> Twin | None:
    """None where none was followed to this data set."""
    try:
        return _twins.get(dataset)
    except TypeError:
        return None


def plant(dataset: Any) -> Twin | None:
    """The twin of a data set, made of its first row; None where that holds no text, or ids already."""
    if (there := twin_of(dataset)) is not None:
        return there
    if not len(dataset):
        return None
    first = type(dataset).with_format(dataset, None)[0]
    row, marks = marked(first)
    if not marks or tokenized(first):
        return None
    twin = Twin(type(dataset).from_list([row], features=dataset.features), marks, (row,))
    _twins[dataset] = twin
    return twin


def begin(after: Callable[[str, Callable[[], None]], Any]) -> None:
    """`install`, now or when `datasets` has been imported; `after` calls when a module has been."""
    if "datasets" in sys.modules:
        install()
    else:
        after("datasets", install)


def install() -> None:
    """Follow every `datasets.Dataset` of this process from now on. To be called before the user's code; once is enough.

    A function that is imported from `datasets` before stays as it is: only methods are followed.
    """
    import datasets

    if getattr(datasets.Dataset.map, "followed", False):
        return
    for name in MIRRORED + CARRIED:
        if (method := getattr(datasets.Dataset, name, None)) is not None:
            setattr(datasets.Dataset, name, _followed(method, mirrored=name in MIRRORED))
    datasets.Dataset.__init__ = _around(datasets.Dataset.__init__)
    datasets.concatenate_datasets = _joined(datasets.concatenate_datasets)


def _around(init: Any) -> Any:
    """The constructor, after which a data set that was made around the table of another has its twin."""

    @functools.wraps(init)
    def call(dataset: Any, arrow_table: Any, *args: Any, **settings: Any) -> None:
        init(dataset, arrow_table, *args, **settings)
        table, twin = _tables.get(id(arrow_table), (None, None))
        if not _inside and twin is not None and table is not None and table() is arrow_table:
            _give(dataset, twin)

    return call


def _joined(function: Any) -> Any:
    """`concatenate_datasets`, after which the twin holds the marked rows of all."""

    @functools.wraps(function)
    def call(dsets: Any, *args: Any, **settings: Any) -> Any:
        global _inside
        result, twins = (
            function(dsets, *args, **settings),
            [twin for one in dsets if (twin := twin_of(one)) is not None],
        )
        good = [twin for twin in twins if twin.dataset is not None]
        if not good:
            return _give(result, twins[0] if twins else None)
        marks = tuple(mark for twin in good for mark in twin.marks)
        rows = tuple(row for twin in good for row in twin.rows)
        before, _inside = _inside, True
        try:
            return _give(result, Twin(function([twin.dataset for twin in good], *args, **settings), marks, rows))
        finally:
            _inside = before

    return call


def _followed(method: Any, *, mirrored: bool) -> Any:
    signature = inspect.signature(method)

    @functools.wraps(method)
    def call(dataset: Any, *args: Any, **settings: Any) -> Any:
        global _inside
        if _inside:
            return method(dataset, *args, **settings)
        _inside = True
        try:
            twin = _planted(dataset)
            result = method(dataset, *args, **settings)
            if twin is not None and twin.dataset is not None and mirrored:
                twin = _mirrored(method, signature, twin, args, settings)
        finally:
            _inside = False
        return _give(result, twin)

    call.followed = True  # type: ignore[attr-defined]
    return call


def _planted(dataset: Any) -> Twin | None:
    try:
        return plant(dataset)
    except Exception:
        return None


def _mirrored(method: Any, signature: inspect.Signature, twin: Twin, args: Any, settings: Any) -> Twin:
    """The twin after the same call. What the user's code raises on it ends it, with a note."""
    try:
        first, *given = signature.bind(twin.dataset, *args, **settings).arguments.items()
        own = {name: value for name, value in given if name not in LEFT_OUT}
        own |= {name: value for name, value in ALONE.items() if name in signature.parameters}
        from truetune.probe.still import still

        with still(), quiet():
            made = method(first[1], **own)
    except Exception as error:
        return replace(twin, dataset=None, note=f"the canary was not taken: {type(error).__name__}: {error}")
    if not len(made):
        return replace(twin, dataset=None, note=f"{method.__name__} made no row of the canary alone")
    return replace(twin, dataset=made)


@contextmanager
def quiet() -> Iterator[None]:
    """No progress bars."""
    from datasets.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    hidden = are_progress_bars_disabled()
    disable_progress_bars()
    try:
        yield
    finally:
        if not hidden:
            enable_progress_bars()


def _give(result: Any, twin: Twin | None) -> Any:
    if twin is not None:
        for made in result.values() if isinstance(result, dict) else (result,):
            _twins[made] = twin
            table = made.data
            _tables[id(table)] = (weakref.ref(table), twin)
            weakref.finalize(table, _tables.pop, id(table), None)
    return result
