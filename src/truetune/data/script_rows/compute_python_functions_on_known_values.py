"""Computes functions of Python if their arguments are known.

How it works: a function of this table gets values of the run and gives one back, or None where it can't be computed.

The trade-off: nothing here may take long or hold much memory, whatever an untrusted script gives: lists and texts are
bounded, and a regular expression is only applied where its time is.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable
from string import Formatter
from typing import Any

from truetune.data.script_rows.compute_dataset_methods_on_known_rows import Table
from truetune.parsing import InputLimitError
from truetune.parsing.input_limits import ROW
from truetune.parsing.parse_json_within_limits import JSONDecodeError, parse_json
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.lists_and_dicts import plain_to_value
from truetune.source.symbolic_execution.values_of_run import (
    NO_CONSTANT,
    Constant,
    Library,
    Mapping,
    Operation,
    Sequence,
    Slice,
    Value,
)

MAX_ITEMS = 20_000
"""Of a list that is made here: more than a row has tokens or turns"""
MAX_TEXT = 1_000_000
"""Characters of a text that is made here"""
MAX_PATTERN_WORK = 10_000_000
"""Characters of the text, to the power of the pattern's open repetitions: about a second at worst"""
OPEN_REPETITION = re.compile(r"[*+]|\{\d*,\d*\}")
REPEATED_GROUP = re.compile(r"\)\s*[*+{]")
TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (float,),
    "bool": (bool,),
    "list": (list,),
    "tuple": (tuple,),
    "dict": (dict,),
}
Arguments = tuple[Value, ...]


def call_known_function(name: str, args: Arguments, keywords: dict[str, Value]) -> Value | None:
    """The result of a function of Python on known values; None if it is not one of those in the
    table, or a value is not known.
    """
    function = FUNCTIONS.get(name)
    return None if function is None else function(args, keywords)


def _items_of_known_list(value: Value) -> list[Value] | None:
    """The items of a list that is known whole, the keys of a dictionary, or the characters of a
    text; None otherwise.
    """
    if isinstance(value, Sequence) and not value.is_open:
        return list(value.items)
    if isinstance(value, Mapping) and not value.is_open and value.rest is None:
        return [Constant(key) for key in value.entries]
    if isinstance(value, Constant) and isinstance(value.value, str):
        return [Constant(one) for one in value.value[:MAX_ITEMS]]
    return None


def _compute_range(args: Arguments, keywords: dict[str, Value]) -> Value | None:
    """`range(...)` as a list; None if its limits are not known or it is too long."""
    limits = [constant_of(one) for one in args]
    if not 1 <= len(limits) <= 3 or not all(type(one) is int for one in limits):
        return None
    if len(limits) == 3 and limits[2] == 0:
        return None
    numbers = range(*limits)
    if len(numbers) > MAX_ITEMS:
        return None
    return Sequence("list", [Constant(number) for number in numbers])


def _compute_enumerate(args: Arguments, keywords: dict[str, Value]) -> Value | None:
    """`enumerate(items, start)` as a list of pairs; None if the items are not known."""
    items = _items_of_known_list(args[0]) if args else None
    first = constant_of(keywords.get("start", args[1] if len(args) > 1 else Constant(0)))
    if items is None or not isinstance(first, int):
        return None
    pairs = [Sequence("tuple", [Constant(n), one]) for n, one in enumerate(items, first)]
    return Sequence("list", list(pairs))


def _compute_zip(args: Arguments, keywords: dict[str, Value]) -> Value | None:
    """`zip(...)` as a list of tuples; None if an argument's items are not known."""
    lists = [_items_of_known_list(one) for one in args]
    known = [one for one in lists if one is not None]
    if not args or len(known) != len(lists):
        return None
    return Sequence("list", [Sequence("tuple", list(one)) for one in zip(*known, strict=False)])


def _compute_reversed(args: Arguments, keywords: dict[str, Value]) -> Value | None:
    """`reversed(items)` as a list; None if the items are not known."""
    items = _items_of_known_list(args[0]) if args else None
    return None if items is None else Sequence("list", items[::-1])


def _list_or_tuple_function(kind: str) -> Callable[[Arguments, dict[str, Value]], Value | None]:
    """`list`, `tuple`, and functions that return their argument's items as they are."""

    def make(args: Arguments, keywords: dict[str, Value]) -> Value | None:
        if args and isinstance(args[0], Table):
            return args[0]
        items = _items_of_known_list(args[0]) if args else []
        return None if items is None else Sequence(kind, items)

    return make


def _compute_sorted(args: Arguments, keywords: dict[str, Value]) -> Value | None:
    """`sorted(items)` without a key; None if the items are not known or can't be compared."""
    plain = constant_of(args[0]) if args else NO_CONSTANT
    if not isinstance(plain, list | tuple) or set(keywords) - {"reverse"}:
        return None
    try:
        in_order = sorted(plain, reverse=bool(constant_of(keywords.get("reverse"))))
    except TypeError:
        return None
    return plain_to_value(in_order)


def _compute_len(args: Arguments, keywords: dict[str, Value]) -> Value | None:
    """`len(value)`; None if it is not known."""
    items = _items_of_known_list(args[0]) if args else None
    plain = constant_of(args[0]) if args else NO_CONSTANT
    if isinstance(plain, str):
        return Constant(len(plain))
    return None if items is None else Constant(len(items))


def _compute_isinstance(args: Arguments, keywords: dict[str, Value]) -> Value | None:
    """`isinstance(value, types)`; None if it is not known."""
    if len(args) != 2:
        return None
    wanted = args[1].items if isinstance(args[1], Sequence) else [args[1]]
    names = [one.name for one in wanted if isinstance(one, Library)]
    types = tuple(kind for name in names for kind in TYPES.get(name, ()))
    if len(names) != len(wanted) or any(name not in TYPES for name in names):
        return None
    return _is_of_type(args[0], types)


def _is_of_type(value: Value, types: tuple[type, ...]) -> Value | None:
    """Is a value of one of these types?"""
    if isinstance(value, Sequence):
        return Constant((list if value.kind == "list" else tuple) in types)
    if isinstance(value, Mapping):
        return Constant(dict in types)
    plain = constant_of(value)
    return None if plain is NO_CONSTANT else Constant(isinstance(plain, types))


def _wrap_plain_function_for_symbolic_values(
    compute: Callable[..., Any],
) -> Callable[[Arguments, dict[str, Value]], Value | None]:
    """Make a function of plain Python values, which takes no long time, into one of values of the
    run.
    """

    def run(args: Arguments, keywords: dict[str, Value]) -> Value | None:
        plain = [constant_of(one) for one in args]
        named = {name: constant_of(one) for name, one in keywords.items()}
        if any(one is NO_CONSTANT for one in (*plain, *named.values())):
            return None
        try:
            return plain_to_value(compute(*plain, **named))
        except (ArithmeticError, TypeError, ValueError, LookupError, RecursionError):
            return None

    return run


def _compute_json_loads(args: Arguments, keywords: dict[str, Value]) -> Value | None:
    """`json.loads` and the like of a known text; None if it is no JSON."""
    text = constant_of(args[0]) if args else NO_CONSTANT
    if not isinstance(text, str | bytes):
        return None
    try:
        return plain_to_value(parse_json(text, ROW))
    except (JSONDecodeError, InputLimitError, ValueError):
        return None


def _compute_json_dumps(
    value: Any, indent: Any = None, ensure_ascii: bool = True, **others: Any
) -> str:
    """`json.dumps`, with the arguments that change what rows hold."""
    allowed = {name: others[name] for name in ("sort_keys", "separators") if name in others}
    spaces = indent if isinstance(indent, int) and indent < 20 else None
    return json.dumps(value, indent=spaces, ensure_ascii=ensure_ascii, **allowed)


def _compute_random_choice_as_first_item(
    args: Arguments, keywords: dict[str, Value]
) -> Value | None:
    """`random.choice(items)`: the first item, for any item is one that the run may take."""
    items = _items_of_known_list(args[0]) if args else None
    return items[0] if items else None


MATCH = "match"
"""The kind of the list that stands for a match: the whole text, then its groups"""
MATCHING = ("search", "match", "fullmatch")
FLAGS = {name: getattr(re, name) for name in ("I", "IGNORECASE", "S", "DOTALL", "M", "MULTILINE")}


def search_pattern(method: str, pattern: Any, text: Any, flags: int) -> Value | None:
    """The result of `re.search` and the like, as a list of the match and its groups; None if it is
    not known.
    """
    if not isinstance(pattern, str) or not isinstance(text, str):
        return None
    if method not in (*MATCHING, "findall") or not is_regex_of_bounded_time(pattern, len(text)):
        return None
    try:
        found = getattr(re.compile(pattern, flags), method)(text)
    except (re.error, TypeError, ValueError):
        return None
    if found is None or method == "findall":
        return plain_to_value(found)
    return Sequence(MATCH, [Constant(found[0]), *map(Constant, found.groups())])


def regex_flags(value: Value | None) -> int | None:
    """The value of a regex's flags: `re.DOTALL`, `re.I | re.S`; None if they are not known."""
    if value is None:
        return 0
    if isinstance(value, Library):
        return FLAGS.get(value.name.rpartition(".")[2])
    if isinstance(value, Operation) and value.operator == "|":
        parts = [regex_flags(one) for one in value.operands]
        known = [one for one in parts if one is not None]
        return sum(set(known)) if len(known) == len(parts) else None
    plain = constant_of(value)
    return plain if isinstance(plain, int) else None


def _regex_search_function(method: str) -> Callable[[Arguments, dict[str, Value]], Value | None]:
    """`re.search(pattern, text, flags)` and the like, as a function of values of the run."""

    def run(args: Arguments, keywords: dict[str, Value]) -> Value | None:
        if len(args) < 2:
            return None
        flags = regex_flags(args[2] if len(args) > 2 else keywords.get("flags"))
        if flags is None:
            return None
        return search_pattern(method, constant_of(args[0]), constant_of(args[1]), flags)

    return run


def _regex_sub_or_split_function(
    method: str,
) -> Callable[[Arguments, dict[str, Value]], Value | None]:
    """`re.sub`, `re.split` on known texts, as a function of values of the run, if their time is
    bounded.
    """

    def run(args: Arguments, keywords: dict[str, Value]) -> Value | None:
        plain = [constant_of(one) for one in args]
        if keywords or not plain or not all(isinstance(one, str) for one in plain):
            return None
        if not is_regex_of_bounded_time(plain[0], len(plain[-1])):
            return None
        try:
            return plain_to_value(getattr(re, method)(*plain))
        except (re.error, TypeError, ValueError, IndexError):
            return None

    return run


def is_regex_of_bounded_time(pattern: str, characters: int) -> bool:
    """Does a regular expression take a bounded time on a text of so many characters?"""
    if len(pattern) > 500 or REPEATED_GROUP.search(pattern):
        return False
    repetitions = len(OPEN_REPETITION.findall(pattern))
    work: int = max(characters, 2) ** max(repetitions, 1)
    return work <= MAX_PATTERN_WORK


def format_text(template: str, args: Arguments, keywords: dict[str, Value]) -> Value | None:
    """`template.format(...)` with names and numbers alone: no attributes, and no widths."""
    plain = [constant_of(one) for one in args]
    named = {name: constant_of(one) for name, one in keywords.items()}
    pieces: list[str] = []
    automatic = 0
    try:
        for literal, name, how, conversion in Formatter().parse(template):
            pieces.append(literal)
            if name is None:
                continue
            if how or conversion:
                return None
            if not name:
                name, automatic = str(automatic), automatic + 1
            value = plain[int(name)] if name.isdecimal() else named[name]
            if value is NO_CONSTANT:
                return None
            pieces.append(str(value))
    except (ValueError, LookupError):
        return None
    text = "".join(pieces)
    return Constant(text) if len(text) <= MAX_TEXT else None


def slice_text(text: str, part: Slice) -> Value | None:
    """`text[:500]`; None where the limits are not known."""
    limits = [
        None if one is None else constant_of(one) for one in (part.start, part.stop, part.step)
    ]
    if any(limit is not None and type(limit) is not int for limit in limits) or limits[2] == 0:
        return None
    return Constant(text[slice(*limits)])


FUNCTIONS: dict[str, Callable[[Arguments, dict[str, Value]], Value | None]] = {
    "range": _compute_range,
    "enumerate": _compute_enumerate,
    "zip": _compute_zip,
    "reversed": _compute_reversed,
    "sorted": _compute_sorted,
    "len": _compute_len,
    "list": _list_or_tuple_function("list"),
    "tuple": _list_or_tuple_function("tuple"),
    "iter": _list_or_tuple_function("list"),
    "tqdm.tqdm": _list_or_tuple_function("list"),
    "tqdm.auto.tqdm": _list_or_tuple_function("list"),
    "isinstance": _compute_isinstance,
    "str": _wrap_plain_function_for_symbolic_values(str),
    "int": _wrap_plain_function_for_symbolic_values(int),
    "float": _wrap_plain_function_for_symbolic_values(float),
    "bool": _wrap_plain_function_for_symbolic_values(bool),
    "round": _wrap_plain_function_for_symbolic_values(round),
    "abs": _wrap_plain_function_for_symbolic_values(abs),
    "sum": _wrap_plain_function_for_symbolic_values(sum),
    "min": _wrap_plain_function_for_symbolic_values(min),
    "max": _wrap_plain_function_for_symbolic_values(max),
    "any": _wrap_plain_function_for_symbolic_values(any),
    "all": _wrap_plain_function_for_symbolic_values(all),
    "json.loads": _compute_json_loads,
    "orjson.loads": _compute_json_loads,
    "ujson.loads": _compute_json_loads,
    "ast.literal_eval": _compute_json_loads,
    "json.dumps": _wrap_plain_function_for_symbolic_values(_compute_json_dumps),
    "random.choice": _compute_random_choice_as_first_item,
    "re.sub": _regex_sub_or_split_function("sub"),
    "re.split": _regex_sub_or_split_function("split"),
    "re.findall": _regex_search_function("findall"),
    "re.search": _regex_search_function("search"),
    "re.match": _regex_search_function("match"),
    "re.fullmatch": _regex_search_function("fullmatch"),
    "textwrap.dedent": _wrap_plain_function_for_symbolic_values(textwrap.dedent),
}
"""By qualified name. `ast.literal_eval` is only computed where the text is JSON too"""
