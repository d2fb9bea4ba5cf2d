"""Twins: beside each data set a marked row, which is sent through every `map` that the user's own code calls.

The data sets themselves are not touched: a twin is a table of one row of its own. The user's functions are called once
more, for that row; random states are put back.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from truetune.probe.boundary import Lost, contain
from truetune.probe.marks import Mark, marked, texts_by_field, tokenized

MIRRORED = (
    "map",
    "rename_column",
    "rename_columns",
    "remove_columns",
    "select_columns",
    "cast",
    "cast_column",
    "flatten",
    "with_format",
    "with_transform",
)
"""Methods that are called on the twin too"""
CARRIED = (
    "filter",
    "select",
    "shuffle",
    "sort",
    "take",
    "skip",
    "shard",
    "repeat",
    "flatten_indices",
    "train_test_split",
)
"""Methods after which the twin is the same: they choose rows"""
ALONE = {"load_from_cache_file": False, "keep_in_memory": True}
SAMPLED = 200
"""Rows whose texts are kept, to say what a column holds"""
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
    sampled: tuple[dict[str, str], ...] = ()
    """Texts of the first rows, by their field: what the data set held where the twin was made"""


_twins: weakref.WeakKeyDictionary[Any, Twin] = weakref.WeakKeyDictionary()
_tables: dict[int, tuple[weakref.ref[Any], Twin]] = {}
"""By the identity of a data set's table: Axolotl makes a data set of its own around the table of a mapped one"""
_inside = False
_off = False
"""Since something of ours failed: each further call would cost the program time again, up to the limit of `contain`"""


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
    made = type(dataset).from_list([row], features=dataset.features)
    twin = Twin(made, marks, (row,), sampled=sampled_texts(dataset, marks))
    _twins[dataset] = twin
    return twin


def sampled_texts(dataset: Any, marks: Iterable[Mark]) -> tuple[dict[str, str], ...]:
    """The texts of the first rows of a data set, by their field. Other columns, of images say, are not read."""
    columns = dict.fromkeys(re.split(r"[.\[]", mark.path, maxsplit=1)[0] for mark in marks)
    names = [name for name in columns if name in dataset.column_names]
    plain = type(dataset).with_format(type(dataset).select_columns(dataset, names), None)
    return tuple(texts_by_field(plain[i]) for i in range(min(SAMPLED, len(plain))))


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
    methods = {name: getattr(datasets.Dataset, name, None) for name in MIRRORED + CARRIED}
    made = {
        name: _followed(method, mirrored=name in MIRRORED)
        for name, method in methods.items()
        if method is not None
    }
    made["__init__"] = _around(datasets.Dataset.__init__)
    joined = _joined(datasets.concatenate_datasets)
    # All are made and looked at before the first is put in place: a part of them would break the program's data sets.
    if any(type(function) is not types.FunctionType for function in (*made.values(), joined)):
        raise Lost("the functions that follow data sets were not made")
    for name, function in made.items():
        setattr(datasets.Dataset, name, function)
    datasets.concatenate_datasets = joined


def _around(init: Any) -> Any:
    """The constructor, after which a data set that was made around the table of another has its twin."""

    @functools.wraps(init)
    def call(dataset: Any, arrow_table: Any, *args: Any, **settings: Any) -> None:
        init(dataset, arrow_table, *args, **settings)
        if not (_inside or _off):
            contain(_take_twin_of_table, dataset, arrow_table, on_failure=_forget)

    return call


def _take_twin_of_table(dataset: Any, arrow_table: Any) -> None:
    table, twin = _tables.get(id(arrow_table), (None, None))
    if twin is not None and table is not None and table() is arrow_table:
        _give(dataset, twin)


def _joined(function: Any) -> Any:
    """`concatenate_datasets`, after which the twin holds the marked rows of all."""

    @functools.wraps(function)
    def call(dsets: Any, *args: Any, **settings: Any) -> Any:
        # Taken apart before the call, where the program gives something that can be gone through once only.
        dsets = dsets if isinstance(dsets, list | tuple) else list(dsets)
        result = function(dsets, *args, **settings)
        if not _off:
            contain(_join_twins, function, result, dsets, args, settings, on_failure=_forget)
        return result

    return call


def _join_twins(function: Any, result: Any, datasets: Any, args: Any, settings: Any) -> None:
    twins = [twin for one in datasets if (twin := twin_of(one)) is not None]
    good = [twin for twin in twins if twin.dataset is not None]
    if not good:
        _give(result, twins[0] if twins else None)
        return
    marks = tuple(mark for twin in good for mark in twin.marks)
    rows = tuple(row for twin in good for row in twin.rows)
    with _not_followed():
        joined = function([twin.dataset for twin in good], *args, **settings)
    sampled = tuple(texts for twin in good for texts in twin.sampled)
    _give(result, Twin(joined, marks, rows, sampled=sampled[:SAMPLED]))


def _followed(method: Any, *, mirrored: bool) -> Any:
    signature = inspect.signature(method)

    @functools.wraps(method)
    def call(dataset: Any, *args: Any, **settings: Any) -> Any:
        global _inside
        if _inside or _off:
            return method(dataset, *args, **settings)
        twin = contain(_planted, dataset, on_failure=_forget)
        _inside = True  # as `_not_followed`, without a function of ours around the program's call
        try:
            result = method(dataset, *args, **settings)
        finally:
            _inside = False
        if twin is not None:
            contain(
                _follow,
                method,
                signature,
                result,
                twin,
                args,
                settings,
                mirrored,
                on_failure=_forget,
            )
        return result

    call.followed = True  # type: ignore[attr-defined]
    return call


def _follow(
    method: Any,
    signature: inspect.Signature,
    result: Any,
    twin: Twin,
    args: Any,
    settings: Any,
    mirrored: bool,
) -> None:
    """Give the result of a method its twin."""
    if mirrored and twin.dataset is not None:
        with _not_followed():
            twin = _mirrored(method, signature, twin, args, settings)
    _give(result, twin)


@contextmanager
def _not_followed() -> Iterator[None]:
    """What a method of a data set calls of other data sets is part of that method."""
    global _inside
    before, _inside = _inside, True
    try:
        yield
    finally:
        _inside = before


def _forget(reason: str) -> None:
    """A canary that could not be followed is lost, which its report says, and no other is followed from here on."""
    global _off
    _off = True


def _planted(dataset: Any) -> Twin | None:
    try:
        with _not_followed():
            return plant(dataset)
    except Exception:
        return None


def _mirrored(
    method: Any, signature: inspect.Signature, twin: Twin, args: Any, settings: Any
) -> Twin:
    """The twin after the same call. What the user's code raises on it ends it, with a note."""
    try:
        first, *given = signature.bind(twin.dataset, *args, **settings).arguments.items()
        own = {name: value for name, value in given if name not in LEFT_OUT}
        own |= {name: value for name, value in ALONE.items() if name in signature.parameters}
        from truetune.probe.still import still

        with still(), quiet():
            made = method(first[1], **own)
    except Exception as error:
        return replace(
            twin, dataset=None, note=f"the canary was not taken: {type(error).__name__}: {error}"
        )
    if not len(made):
        return replace(
            twin, dataset=None, note=f"{method.__name__} made no row of the canary alone"
        )
    return replace(twin, dataset=made)


@contextmanager
def quiet() -> Iterator[None]:
    """No progress bars."""
    from datasets.utils import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    hidden = are_progress_bars_disabled()
    disable_progress_bars()
    try:
        yield
    finally:
        if not hidden:
            enable_progress_bars()


def _give(result: Any, twin: Twin | None) -> None:
    if twin is not None:
        for made in result.values() if isinstance(result, dict) else (result,):
            _twins[made] = twin
            table = made.data
            _tables[id(table)] = (weakref.ref(table), twin)
            weakref.finalize(table, _tables.pop, id(table), None)
