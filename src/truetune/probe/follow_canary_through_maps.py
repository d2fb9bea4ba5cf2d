"""Keeps a canary row beside each data set, and follows it through every `map` that the user's own code calls.

A trainer often gets rows of ids, made by the user's own `dataset.map(tokenize)` long before. To learn what became of
each text, the methods of `datasets.Dataset` are wrapped as soon as that package is imported (`follow_datasets`): when
a data set is first used, a canary is made of its first row (`truetune.probe.mark_row_texts_with_unique_strings`), and
each later call on the data set is repeated on the canary, a data set of that one row.

The user's data sets are not touched. Their functions are called once more, for that row, with random states put back.

Trade-off: a function that counts its calls, or writes to a file, sees one row more. That is why canaries are an option
(`--canary`) and not the default.
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
from itertools import chain
from typing import Any

from truetune.probe.contain_own_failures_in_user_program import Lost, run_contained
from truetune.probe.mark_row_texts_with_unique_strings import (
    Watermark,
    add_watermarks,
    columns_that_hold_ids_or_labels,
    texts_by_field,
)

# Methods that change what a row holds: they are called on the canary, too.
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
# Methods that choose or order rows: the result has the same canary. Called on the canary they might drop its one row.
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
# For a call on the canary: a cached result could be that of an earlier canary, and no file of ours may be left behind.
CANARY_SETTINGS = {"load_from_cache_file": False, "keep_in_memory": True}
# Arguments of the user's call that the canary's does not get: other processes for one row, the user's cache file, and
# a fingerprint that would make two different data sets look the same to the cache.
DROPPED_SETTINGS = ("num_proc", "cache_file_name", "new_fingerprint", "desc")
# Rows whose texts are kept, to say what a column holds. Chosen, not measured: enough to see whether a column varies,
# and read in a fraction of a second from a table of any size.
SAMPLED_ROWS = 200


@dataclass(frozen=True)
class CanaryDataset:
    """The canary of a data set: the watermarked row, as far as the user's code has taken it."""

    dataset: Any
    """A `datasets.Dataset` of the canary's rows; None where the user's own code did not take them"""
    marks: tuple[Watermark, ...]
    rows: tuple[dict[str, Any], ...]
    """The watermarked rows as they began"""
    note: str = ""
    """Why it was lost, else empty"""
    sampled: tuple[dict[str, str], ...] = ()
    """Texts of the first rows, by their field: what the data set held where the canary was made"""


# Weak keys: a data set of the user's must die when the user lets it go, or its memory maps stay open.
_canaries: weakref.WeakKeyDictionary[Any, CanaryDataset] = weakref.WeakKeyDictionary()
# By the identity of a data set's table: Axolotl makes a data set of its own around the table of a mapped one, which
# would have no canary otherwise (`test_a_row_is_followed_into_a_data_set_made_of_anothers_table`). Tables can't be
# hashed, so the key is an id, and the weak reference says whether the id still means that table.
_canaries_by_table: dict[int, tuple[weakref.ref[Any], CanaryDataset]] = {}
# A method of a data set calls others of its methods: those inner calls belong to the outer one.
_inside_call = False
# Since something of ours failed: each further call would cost the program time again, up to the limit of the boundary.
_stopped = False


def canary_dataset_of(dataset: Any) -> CanaryDataset | None:
    """The canary that was followed to this data set; None where there is none."""
    try:
        return _canaries.get(dataset)
    except TypeError:  # what can't be referenced weakly, such as a list of rows
        return None


def canary_of_dataset_or_new(dataset: Any) -> CanaryDataset | None:
    """The canary of a data set, made of its first row if it has none yet.

    Returns:
        None where the first row holds no text, or ids already.
    """
    known = canary_dataset_of(dataset)
    if known is not None:
        return known
    if not len(dataset):
        return None
    # The method of the class, without a format: the user's transform on reading (tensors, images) must not run here.
    first = type(dataset).with_format(dataset, None)[0]
    row, marks = add_watermarks(first)
    if not marks or columns_that_hold_ids_or_labels(first):
        return None
    one_row = type(dataset).from_list([row], features=dataset.features)
    canary = CanaryDataset(one_row, marks, (row,), sampled=texts_of_first_rows(dataset, marks))
    _canaries[dataset] = canary
    return canary


def texts_of_first_rows(dataset: Any, marks: Iterable[Watermark]) -> tuple[dict[str, str], ...]:
    """The texts of the first rows of a data set, by their field. Other columns, of images say, are not read."""
    columns = dict.fromkeys(re.split(r"[.\[]", mark.path, maxsplit=1)[0] for mark in marks)
    names = [name for name in columns if name in dataset.column_names]
    plain = type(dataset).with_format(type(dataset).select_columns(dataset, names), None)
    return tuple(texts_by_field(plain[i]) for i in range(min(SAMPLED_ROWS, len(plain))))


def follow_datasets_when_imported(after: Callable[[str, Callable[[], None]], Any]) -> None:
    """`follow_datasets`, now or when `datasets` has been imported; `after` calls when a module has been."""
    if "datasets" in sys.modules:
        follow_datasets()
    else:
        after("datasets", follow_datasets)


def follow_datasets() -> None:
    """Follow every `datasets.Dataset` of this process from now on; called again, it changes nothing.

    To be called before the user's code: a `concatenate_datasets` that was imported from `datasets` before stays as it
    is, while methods are found on the class at each call.

    Raises:
        Lost: where the wrappers could not be made; nothing is changed then.
    """
    import datasets

    if getattr(datasets.Dataset.map, "followed", False):
        return
    wrapped = {}
    for name in REPEATED_METHODS + ROW_CHOOSING_METHODS:
        method = getattr(datasets.Dataset, name, None)  # older releases lack some (take, repeat)
        if method is not None:
            wrapped[name] = _wrap_method(method, repeated=name in REPEATED_METHODS)
    wrapped["__init__"] = _wrap_constructor(datasets.Dataset.__init__)
    concatenate = _wrap_concatenate(datasets.concatenate_datasets)
    # All are made and looked at before the first is put in place: a part of them would break the program's data sets.
    if any(
        type(function_made) is not types.FunctionType
        for function_made in (*wrapped.values(), concatenate)
    ):
        raise Lost("the functions that follow data sets were not made")
    for name, function in wrapped.items():
        setattr(datasets.Dataset, name, function)
    datasets.concatenate_datasets = concatenate


def _wrap_constructor(init: Any) -> Any:
    """The constructor, after which a data set that was made around the table of another has its canary."""

    @functools.wraps(init)
    def call(dataset: Any, arrow_table: Any, *args: Any, **settings: Any) -> None:
        init(dataset, arrow_table, *args, **settings)
        if not (_inside_call or _stopped):
            run_contained(_adopt_canary_of_table, dataset, arrow_table, on_failure=_stop_following)

    return call


def _adopt_canary_of_table(dataset: Any, arrow_table: Any) -> None:
    """Give a new data set the canary of the one that its table is from."""
    table, canary = _canaries_by_table.get(id(arrow_table), (None, None))
    # By identity: the id may belong to another table by now, since the first one died.
    if canary is not None and table is not None and table() is arrow_table:
        _assign_canary(dataset, canary)


def _wrap_concatenate(function: Any) -> Any:
    """`concatenate_datasets`, after which the canary holds the watermarked rows of all."""

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
    """Give a concatenated data set one canary with the rows of all; a lost one where all are lost."""
    canaries = list(filter(None, map(canary_dataset_of, datasets)))
    alive = [canary for canary in canaries if canary.dataset is not None]
    if not alive:
        _assign_canary(result, canaries[0] if canaries else None)
        return
    marks = tuple(chain.from_iterable(canary.marks for canary in alive))
    rows = tuple(chain.from_iterable(canary.rows for canary in alive))
    with _without_following():
        joined = function([canary.dataset for canary in alive], *args, **settings)
    sampled = tuple(chain.from_iterable(canary.sampled for canary in alive))
    _assign_canary(result, CanaryDataset(joined, marks, rows, sampled=sampled[:SAMPLED_ROWS]))


def _wrap_method(method: Any, *, repeated: bool) -> Any:
    """A method of a data set, whose result has a canary afterwards; `repeated` calls it on the canary, too."""
    signature = inspect.signature(method)

    @functools.wraps(method)
    def call(dataset: Any, *args: Any, **settings: Any) -> Any:
        global _inside_call
        if _inside_call or _stopped:
            return method(dataset, *args, **settings)
        canary = run_contained(_canary_or_none_if_unreadable, dataset, on_failure=_stop_following)
        # What `_without_following` does, without a function of ours around the program's call: a failure in it would
        # reach the program (tests/probe/injection puts one there).
        _inside_call = True
        try:
            result = method(dataset, *args, **settings)
        finally:
            _inside_call = False
        if canary is not None:
            run_contained(
                _advance_canary,
                method,
                signature,
                result,
                canary,
                args,
                settings,
                repeated,
                on_failure=_stop_following,
            )
        return result

    call.followed = True  # type: ignore[attr-defined]
    return call


def _advance_canary(
    method: Any,
    signature: inspect.Signature,
    result: Any,
    canary: CanaryDataset,
    args: Any,
    settings: Any,
    repeated: bool,
) -> None:
    """Give the result of a method its canary."""
    if repeated and canary.dataset is not None:
        with _without_following():
            canary = _repeat_call_on_canary(method, signature, canary, args, settings)
    _assign_canary(result, canary)


@contextmanager
def _without_following() -> Iterator[None]:
    """Inside, data sets are not followed: what a method of one calls of others is part of that method."""
    global _inside_call
    before, _inside_call = _inside_call, True
    try:
        yield
    finally:
        _inside_call = before


def _stop_following(reason: str) -> None:
    """Follow no other canary from here on, since one could not be followed: it is lost, which its report
    says.
    """
    global _stopped
    _stopped = True


def _canary_or_none_if_unreadable(dataset: Any) -> CanaryDataset | None:
    """`canary_of_dataset_or_new`; None also where the data set can't be read, which is not our failure."""
    try:
        with _without_following():
            return canary_of_dataset_or_new(dataset)
    except Exception:
        return None


def _repeat_call_on_canary(
    method: Any, signature: inspect.Signature, canary: CanaryDataset, args: Any, settings: Any
) -> CanaryDataset:
    """The canary after the same call. What the user's code raises on it ends it, with a note."""
    try:
        bound = signature.bind(canary.dataset, *args, **settings).arguments
        (_, dataset), *passed = bound.items()
        arguments = {name: value for name, value in passed if name not in DROPPED_SETTINGS}
        own = {key: value for key, value in CANARY_SETTINGS.items() if key in signature.parameters}
        arguments |= own
        # Here, since it imports torch, which a program that only prepares data need not have loaded.
        from truetune.probe.restore_state_changed_by_observing_run import preserve_state

        # The user's function may draw: `test_following_changes_no_row_and_no_random_state`.
        with preserve_state(), no_progress_bars():
            result = method(dataset, **arguments)
    except Exception as error:
        return replace(
            canary, dataset=None, note=f"the canary was not taken: {type(error).__name__}: {error}"
        )
    if not len(result):
        return replace(
            canary, dataset=None, note=f"{method.__name__} made no row of the canary alone"
        )
    return replace(canary, dataset=result)


@contextmanager
def no_progress_bars() -> Iterator[None]:
    """`datasets` draws no bars inside the block: the run's output must be that without the hook."""
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


def _assign_canary(result: Any, canary: CanaryDataset | None) -> None:
    """Remember the canary of a data set, or of each one in a dictionary (`train_test_split` returns one)."""
    if canary is None:
        return
    for dataset in result.values() if isinstance(result, dict) else (result,):
        _canaries[dataset] = canary
        table = dataset.data
        _canaries_by_table[id(table)] = (weakref.ref(table), canary)
        # An id is used again after a table has died; without this, memory would grow with each call of the program.
        weakref.finalize(table, _canaries_by_table.pop, id(table), None)
