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

from truetune.probe.failure_boundary import Lost, run_contained
from truetune.probe.watermarks import Watermark, add_watermarks, texts_by_field, tokenized_columns

REPEATED_METHODS = (
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
ROW_CHOOSING_METHODS = (
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
CANARY_SETTINGS = {"load_from_cache_file": False, "keep_in_memory": True}
SAMPLED_ROWS = 200
"""Rows whose texts are kept, to say what a column holds"""
DROPPED_SETTINGS = ("num_proc", "cache_file_name", "new_fingerprint", "desc")
"""Arguments that a twin's own call gets, or does not: no cache, no other process"""


@dataclass(frozen=True)
class CanaryDataset:
    """The marked row of a data set."""

    dataset: Any
    """None where the user's own code did not take it"""
    marks: tuple[Watermark, ...]
    rows: tuple[dict[str, Any], ...]
    """The marked rows as they began"""
    note: str = ""
    sampled: tuple[dict[str, str], ...] = ()
    """Texts of the first rows, by their field: what the data set held where the twin was made"""


_canaries: weakref.WeakKeyDictionary[Any, CanaryDataset] = weakref.WeakKeyDictionary()
_canaries_by_table: dict[int, tuple[weakref.ref[Any], CanaryDataset]] = {}
"""By the identity of a data set's table: Axolotl makes a data set of its own around the table of a mapped one"""
_inside_dataset_call = False
_stopped = False
"""Since something of ours failed: each further call would cost the program time again, up to the limit of `contain`"""


def canary_dataset_of(dataset: Any) -> CanaryDataset | None:
    """None where none was followed to this data set."""
    try:
        return _canaries.get(dataset)
    except TypeError:
        return None


def create_canary(dataset: Any) -> CanaryDataset | None:
    """The twin of a data set, made of its first row; None where that holds no text, or ids already."""
    if (there := canary_dataset_of(dataset)) is not None:
        return there
    if not len(dataset):
        return None
    first = type(dataset).with_format(dataset, None)[0]
    row, marks = add_watermarks(first)
    if not marks or tokenized_columns(first):
        return None
    made = type(dataset).from_list([row], features=dataset.features)
    twin = CanaryDataset(made, marks, (row,), sampled=sampled_texts(dataset, marks))
    _canaries[dataset] = twin
    return twin


def sampled_texts(dataset: Any, marks: Iterable[Watermark]) -> tuple[dict[str, str], ...]:
    """The texts of the first rows of a data set, by their field. Other columns, of images say, are not read."""
    columns = dict.fromkeys(re.split(r"[.\[]", mark.path, maxsplit=1)[0] for mark in marks)
    names = [name for name in columns if name in dataset.column_names]
    plain = type(dataset).with_format(type(dataset).select_columns(dataset, names), None)
    return tuple(texts_by_field(plain[i]) for i in range(min(SAMPLED_ROWS, len(plain))))


def follow_datasets_when_imported(after: Callable[[str, Callable[[], None]], Any]) -> None:
    """`install`, now or when `datasets` has been imported; `after` calls when a module has been."""
    if "datasets" in sys.modules:
        follow_datasets()
    else:
        after("datasets", follow_datasets)


def follow_datasets() -> None:
    """Follow every `datasets.Dataset` of this process from now on. To be called before the user's code; once is enough.

    A function that is imported from `datasets` before stays as it is: only methods are followed.
    """
    import datasets

    if getattr(datasets.Dataset.map, "followed", False):
        return
    methods = {
        name: getattr(datasets.Dataset, name, None)
        for name in REPEATED_METHODS + ROW_CHOOSING_METHODS
    }
    made = {
        name: _wrap_method(method, mirrored=name in REPEATED_METHODS)
        for name, method in methods.items()
        if method is not None
    }
    made["__init__"] = _wrap_constructor(datasets.Dataset.__init__)
    joined = _wrap_concatenate(datasets.concatenate_datasets)
    # All are made and looked at before the first is put in place: a part of them would break the program's data sets.
    if any(type(function) is not types.FunctionType for function in (*made.values(), joined)):
        raise Lost("the functions that follow data sets were not made")
    for name, function in made.items():
        setattr(datasets.Dataset, name, function)
    datasets.concatenate_datasets = joined


def _wrap_constructor(init: Any) -> Any:
    """The constructor, after which a data set that was made around the table of another has its twin."""

    @functools.wraps(init)
    def call(dataset: Any, arrow_table: Any, *args: Any, **settings: Any) -> None:
        init(dataset, arrow_table, *args, **settings)
        if not (_inside_dataset_call or _stopped):
            run_contained(_adopt_canary_of_table, dataset, arrow_table, on_failure=_stop_following)

    return call


def _adopt_canary_of_table(dataset: Any, arrow_table: Any) -> None:
    table, twin = _canaries_by_table.get(id(arrow_table), (None, None))
    if twin is not None and table is not None and table() is arrow_table:
        _assign_canary(dataset, twin)


def _wrap_concatenate(function: Any) -> Any:
    """`concatenate_datasets`, after which the twin holds the marked rows of all."""

    @functools.wraps(function)
    def call(dsets: Any, *args: Any, **settings: Any) -> Any:
        # Taken apart before the call, where the program gives something that can be gone through once only.
        dsets = dsets if isinstance(dsets, list | tuple) else list(dsets)
        result = function(dsets, *args, **settings)
        if not _stopped:
            run_contained(
                _join_canaries, function, result, dsets, args, settings, on_failure=_stop_following
            )
        return result

    return call


def _join_canaries(function: Any, result: Any, datasets: Any, args: Any, settings: Any) -> None:
    twins = [twin for one in datasets if (twin := canary_dataset_of(one)) is not None]
    good = [twin for twin in twins if twin.dataset is not None]
    if not good:
        _assign_canary(result, twins[0] if twins else None)
        return
    marks = tuple(mark for twin in good for mark in twin.marks)
    rows = tuple(row for twin in good for row in twin.rows)
    with _not_followed():
        joined = function([twin.dataset for twin in good], *args, **settings)
    sampled = tuple(texts for twin in good for texts in twin.sampled)
    _assign_canary(result, CanaryDataset(joined, marks, rows, sampled=sampled[:SAMPLED_ROWS]))


def _wrap_method(method: Any, *, mirrored: bool) -> Any:
    signature = inspect.signature(method)

    @functools.wraps(method)
    def call(dataset: Any, *args: Any, **settings: Any) -> Any:
        global _inside_dataset_call
        if _inside_dataset_call or _stopped:
            return method(dataset, *args, **settings)
        twin = run_contained(_canary_or_none, dataset, on_failure=_stop_following)
        _inside_dataset_call = (
            True  # as `_not_followed`, without a function of ours around the program's call
        )
        try:
            result = method(dataset, *args, **settings)
        finally:
            _inside_dataset_call = False
        if twin is not None:
            run_contained(
                _advance_canary,
                method,
                signature,
                result,
                twin,
                args,
                settings,
                mirrored,
                on_failure=_stop_following,
            )
        return result

    call.followed = True  # type: ignore[attr-defined]
    return call


def _advance_canary(
    method: Any,
    signature: inspect.Signature,
    result: Any,
    twin: CanaryDataset,
    args: Any,
    settings: Any,
    mirrored: bool,
) -> None:
    """Give the result of a method its twin."""
    if mirrored and twin.dataset is not None:
        with _not_followed():
            twin = _repeat_call_on_canary(method, signature, twin, args, settings)
    _assign_canary(result, twin)


@contextmanager
def _not_followed() -> Iterator[None]:
    """What a method of a data set calls of other data sets is part of that method."""
    global _inside_dataset_call
    before, _inside_dataset_call = _inside_dataset_call, True
    try:
        yield
    finally:
        _inside_dataset_call = before


def _stop_following(reason: str) -> None:
    """A canary that could not be followed is lost, which its report says, and no other is followed from here on."""
    global _stopped
    _stopped = True


def _canary_or_none(dataset: Any) -> CanaryDataset | None:
    try:
        with _not_followed():
            return create_canary(dataset)
    except Exception:
        return None


def _repeat_call_on_canary(
    method: Any, signature: inspect.Signature, twin: CanaryDataset, args: Any, settings: Any
) -> CanaryDataset:
    """The twin after the same call. What the user's code raises on it ends it, with a note."""
    try:
        first, *given = signature.bind(twin.dataset, *args, **settings).arguments.items()
        own = {name: value for name, value in given if name not in DROPPED_SETTINGS}
        own |= {
            name: value for name, value in CANARY_SETTINGS.items() if name in signature.parameters
        }
        from truetune.probe.preserve_state import preserve_state

        with preserve_state(), no_progress_bars():
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
def no_progress_bars() -> Iterator[None]:
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


def _assign_canary(result: Any, twin: CanaryDataset | None) -> None:
    if twin is not None:
        for made in result.values() if isinstance(result, dict) else (result,):
            _canaries[made] = twin
            table = made.data
            _canaries_by_table[id(table)] = (weakref.ref(table), twin)
            weakref.finalize(table, _canaries_by_table.pop, id(table), None)
