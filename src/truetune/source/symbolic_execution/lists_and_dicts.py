"""Reads, changes and iterates the lists and dictionaries that a symbolically run script makes.

The trade-off: a list that is filled in a loop holds what one pass adds, any number of times; its order and length are
not known then.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Hashable
from typing import Any

from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.values_of_run import (
    NO_CONSTANT,
    Constant,
    Item,
    Mapping,
    Sequence,
    Slice,
    Unknown,
    Value,
    choice_of_values,
)

MAX_ITEMS = 8_000
"""Items of a list that are kept: a list that a script doubles forty times must not take the memory. The ids of a row
are joined so (`prompt_ids + answer_ids + [eos]`), and rows of 8,000 tokens are long. At double, copying such a list at
each of the 150,000 steps of a run takes some five seconds."""
MAX_CHARACTERS = 1_000_000
"""Characters that a method of a text may have to write; more are not computed"""
TEXT_METHODS = frozenset(
    (
        "capitalize",
        "endswith",
        "join",
        "lower",
        "lstrip",
        "removeprefix",
        "removesuffix",
        "replace",
        "rsplit",
        "rstrip",
        "split",
        "startswith",
        "strip",
        "title",
        "upper",
        "count",
        "find",
        "splitlines",
        "partition",
        "rpartition",
        "rfind",
        "index",
        "rindex",
        "casefold",
        "encode",
        "isdigit",
    )
)
"""Methods of a text whose result is computed where all is constant"""


def constant_key_of_index(key: Value) -> Hashable | None:
    """The constant that an index is; None if it is not known, a slice, or nothing that can be a
    key.
    """
    plain = constant_of(key)
    if plain is NO_CONSTANT or isinstance(plain, list | dict | set):
        return None
    if isinstance(plain, tuple) and any(isinstance(one, list | dict | set) for one in plain):
        return None
    return ("", None) if plain is None else plain  # None itself says "not known"


def plain_to_value(plain: Any, depth: int = 0) -> Value:
    """A plain value of Python as a value of a run."""
    if depth > 20:
        return Unknown("nested too deeply")
    if isinstance(plain, dict):
        return Mapping({key: plain_to_value(one, depth + 1) for key, one in plain.items()})
    if isinstance(plain, list | tuple | set):
        kind = type(plain).__name__
        return Sequence(kind, [plain_to_value(one, depth + 1) for one in plain])
    return Constant(plain)


def item_or_slice_of_list(value: Sequence, key: Value) -> Value | None:
    """The item or slice of a list; None if it is not known."""
    if isinstance(key, Slice):
        return _slice_or_all_of_list(value, key)
    index = constant_of(key)
    # Of any number of items that were sorted, the first is another than the last: which ones is not known.
    if value.is_open and value.ordered_by is not None and isinstance(index, int):
        return Item(value, key)
    if (
        not value.is_open
        and isinstance(index, int)
        and -len(value.items) <= index < len(value.items)
    ):
        return value.items[index]
    return choice_of_values(value.items) if value.items else None


def _slice_or_all_of_list(value: Sequence, key: Slice) -> Value:
    """A slice of a list; all items if its limits are not known."""
    limits = [
        None if limit is None else constant_of(limit) for limit in (key.start, key.stop, key.step)
    ]
    are_known = all(limit is None or isinstance(limit, int) for limit in limits)
    if value.is_open or not are_known or limits[2] == 0:
        return Sequence(value.kind, list(value.items), is_open=True, part_of=Item(value, key))
    return Sequence(value.kind, value.items[slice(*limits)])


def join_lists(one: Sequence, other: Value, node: ast.AST | None) -> Sequence:
    """Both lists joined; open if the other is no known list, or the result is too long."""
    added = other.items if isinstance(other, Sequence) else []
    is_open = one.is_open or not isinstance(other, Sequence) or other.is_open
    items = [*one.items, *added]
    return Sequence(one.kind, items[:MAX_ITEMS], is_open or len(items) > MAX_ITEMS, node=node)


def call_list_method(
    value: Sequence, method: str, args: tuple[Value, ...], *, in_loop: bool
) -> Value | None:
    """The result of a method of a list, which it changes; None if the method is not known."""
    if method == "copy":
        return Sequence(value.kind, list(value.items), value.is_open)
    if method == "pop":
        return _pop_from_list(value, args, in_loop=in_loop)
    if not _add_to_list_by_method(value, method, args) and not _reorder_or_clear_list(
        value, method, in_loop=in_loop
    ):
        return None
    value.is_open = value.is_open or in_loop
    return Constant(None)


def _add_to_list_by_method(value: Sequence, method: str, args: tuple[Value, ...]) -> bool:
    """Add to a list what a method adds; False for a method that adds nothing."""
    if method in ("append", "add") and args:
        value.items.append(args[-1])
    elif method == "insert" and len(args) == 2:
        position = constant_of(args[0])
        value.items.insert(position if isinstance(position, int) else 0, args[1])
    elif method in ("extend", "update") and args:
        joined = join_lists(value, args[0], value.node)
        value.items[:] = joined.items
        value.is_open = joined.is_open
    else:
        return False
    return True


def _reorder_or_clear_list(value: Sequence, method: str, *, in_loop: bool) -> bool:
    """Change a list by a method that adds nothing; False for any other method."""
    if method == "reverse":
        value.items.reverse()
    elif method == "remove":
        value.is_open = True
    elif method == "clear" and not in_loop:
        value.items.clear()
    return method in ("clear", "remove", "reverse", "sort")


def _pop_from_list(value: Sequence, args: tuple[Value, ...], *, in_loop: bool) -> Value:
    """The item that `pop` takes out of a list."""
    position = constant_of(args[0]) if args else -1
    is_known = not value.is_open and not in_loop and isinstance(position, int)
    if is_known and -len(value.items) <= position < len(value.items):
        return value.items.pop(position)
    taken = choice_of_values(value.items) if value.items else Unknown("an item of an empty list")
    value.is_open = True
    return taken


def call_dict_method(
    value: Mapping,
    method: str,
    args: tuple[Value, ...],
    keywords: dict[str, Value],
    write: Callable[[dict[Any, Value], Any, Value], None],
) -> Value | None:
    """The result of a method of a dictionary, which it changes; None if the method is not known.
    `write` sets an entry, so that the arms of a branch can be told apart.

    `write` sets an entry, so that the arms of a branch can be told apart.
    """
    if method == "update":
        for given in args:
            update_dict(value, given, write)
        for key, one in keywords.items():
            write(value.entries, key, one)
        return Constant(None)
    if method == "copy":
        return Mapping(dict(value.entries), value.rest, value.is_open)
    if method == "keys":
        return Sequence(
            "list", [Constant(key) for key in value.entries], _may_hold_unknown_entries(value)
        )
    if method == "values":
        return Sequence("list", list(value.entries.values()), _may_hold_unknown_entries(value))
    if method == "items":
        pairs: list[Value] = [
            Sequence("tuple", [Constant(key), one]) for key, one in value.entries.items()
        ]
        return Sequence("list", pairs, _may_hold_unknown_entries(value))
    if method in ("get", "pop", "setdefault") and args:
        return _get_pop_or_setdefault(value, method, args, write)
    return None


def _may_hold_unknown_entries(value: Mapping) -> bool:
    """May it hold entries that are not known?"""
    return value.is_open or value.rest is not None


def _get_pop_or_setdefault(
    value: Mapping,
    method: str,
    args: tuple[Value, ...],
    write: Callable[[dict[Any, Value], Any, Value], None],
) -> Value | None:
    """The result of `get`, `pop` and `setdefault` of a dictionary; None if it is not known."""
    key = constant_key_of_index(args[0])
    default = args[1] if len(args) > 1 else Constant(None)
    if key is None:
        # `groups.setdefault(row["label"], [])`: an entry more, under a name that only the data say.
        value.is_open = value.is_open or method == "setdefault"
        return None
    if key in value.entries:
        return value.entries[key]
    if method == "setdefault":
        write(value.entries, key, default)
    return None if _may_hold_unknown_entries(value) else default


def update_dict(
    value: Mapping, given: Value, write: Callable[[dict[Any, Value], Any, Value], None]
) -> None:
    """Take over the entries of another dictionary."""
    if not isinstance(given, Mapping):
        value.is_open = True
        value.rest = value.rest or given
        return
    for key, one in given.entries.items():
        write(value.entries, key, one)
    value.is_open = value.is_open or given.is_open
    value.rest = value.rest or given.rest


def call_text_method(text: str, method: str, args: tuple[Value, ...]) -> Value | None:
    """The result of a method of a constant text on constants; None if it is not known."""
    plain = [constant_of(one, with_defaults=False) for one in args]
    if method not in TEXT_METHODS or any(one is NO_CONSTANT for one in plain):
        return None
    longest = max((len(one) for one in plain if isinstance(one, str | list | tuple)), default=0)
    if len(text) * max(longest, 1) > MAX_CHARACTERS:
        return None
    try:
        return plain_to_value(getattr(text, method)(*plain))
    except (TypeError, ValueError, LookupError):
        return None
