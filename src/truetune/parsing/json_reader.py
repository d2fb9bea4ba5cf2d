"""JSON behind the guard: size, nesting, number of values, duplicate keys, long numbers, lone surrogates.

Counting brackets and commas costs far less than parsing, and it bounds the nesting and the number of values from
above. Only where these counts are high are the strings cut out and the brackets followed one by one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import accumulate
from json import JSONDecodeError
from pathlib import Path
from typing import Any, Literal

from truetune.parsing.files import read_bounded
from truetune.parsing.limits import MAX_EXACT_DIGITS, MAX_SETTING_BITS, ROW, InputLimitError, Limits, check_size

__all__ = ["JSONDecodeError", "check_whole_numbers", "decode_row", "duplicate_key", "parse_json", "parse_row",
           "read_json", "replace_surrogates"]  # fmt: skip

_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\Z)', re.DOTALL)
"""A string; an unclosed one reaches to the end. Possessive, so that no text makes it go back."""
_BRACKET_OR_STRING = re.compile(_STRING.pattern + r"|[\[\]{}]", re.DOTALL)
_WHITE_SPACE = re.compile(r"\s*")
_NO_BRACKET = re.compile(r"[^\[\]{}]+")
_STEP = {"[": 1, "{": 1, "]": -1, "}": -1}
_COLON_AFTER = ('":', " :", "\t:", "\n:", "\r:")
"""What can stand before the colon of a key: its closing quote, or white space."""
_decode = json.JSONDecoder().raw_decode
Surrogates = Literal["replace", "refuse", "keep"]


def parse_json(
    text: str | bytes,
    limits: Limits,
    *,
    unique_keys: bool = False,
    surrogates: Surrogates = "replace",
    exact_integers: bool = False,
    parse_constant: Callable[[str], Any] | None = None,
) -> Any:
    """The value of a JSON text.

    `unique_keys` refuses an object that has a key twice; JSON readers else take the last one. Half of a surrogate pair,
    which no file and no tokenizer can hold, becomes U+FFFD, is refused, or is kept
    for the caller to report. `exact_integers` keeps whole numbers of more
    than MAX_EXACT_DIGITS digits, which otherwise become floats.

    Raises InputLimitError, JSONDecodeError, UnicodeDecodeError: each is a ValueError.
    """
    check_size(len(text), limits)
    if isinstance(text, bytes):
        text = text.decode("utf-8-sig")
    _check_structure(text, limits)
    try:
        value = json.loads(text, parse_int=int if exact_integers else _integer, parse_constant=parse_constant)
    except RecursionError:
        raise InputLimitError(f"nested more than {limits.max_nesting} deep") from None
    if unique_keys and (key := duplicate_key(text, value)) is not None:
        raise InputLimitError(f"the key {_shown(key)} stands twice in one object")
    return _without_surrogates(value, text, surrogates)


def read_json(path: Path, limits: Limits, *, surrogates: Surrogates = "replace") -> Any:
    """The value in a JSON file. Raises OSError, and ValueError as `parse_json` does."""
    return parse_json(read_bounded(path, limits), limits, surrogates=surrogates)


def parse_row(text: str, limits: Limits = ROW) -> tuple[Any, int]:
    """The value that a line begins with, and where it ends.

    Raises InputLimitError, JSONDecodeError, and ValueError for a number of more than 4,300 digits.
    """
    _check_structure(text, limits)
    try:
        return _decode(text)
    except RecursionError:
        raise InputLimitError(f"nested more than {limits.max_nesting} deep") from None


def decode_row(text: str, start: int, limits: Limits = ROW) -> tuple[Any, int]:
    """The value that begins at `start`, and where it ends; more text may follow.

    The end of the value is not known before, so its structure is checked afterwards: Python's decoder counts its own
    recursion, and raises RecursionError far before the stack ends.

    Raises InputLimitError, JSONDecodeError, and ValueError for a number of more than 4,300 digits.
    """
    try:
        value, end = _decode(text, start)
    except RecursionError:
        raise InputLimitError(f"nested more than {limits.max_nesting} deep") from None
    openers = text.count("[", start, end) + text.count("{", start, end)
    if openers > limits.max_nesting or openers + text.count(",", start, end) > limits.max_values:
        _check_structure(text[start:end], limits)
    check_size(end - start, limits)
    return value, end


def duplicate_key(text: str, value: Any, start: int = 0, end: int | None = None) -> str | None:
    """A key that an object in `text[start:end]` has twice; None where there is none. `value` is what was parsed.

    Every key of the text is followed by a colon, so the colons that stand where a key may end are at least as many as
    the keys of the text. Where they are no more than the keys of the parsed value, no key was lost. Only where they are
    more (a string may hold `":` too) the text is parsed again, with each object's keys compared.
    """
    candidates = sum(text.count(colon, start, end) for colon in _COLON_AFTER)
    if candidates == _count_keys(value):
        return None
    found: list[str] = []

    def compare(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs) and not found:
            names = [name for name, _ in pairs]
            found.append(next(name for name in names if names.count(name) > 1))
        return made

    json.JSONDecoder(object_pairs_hook=compare).raw_decode(text, _WHITE_SPACE.match(text, start).end())  # type: ignore[union-attr]
    return found[0] if found else None


def replace_surrogates(value: Any, text: str, start: int = 0, end: int | None = None) -> tuple[Any, bool]:
    """The value that `text[start:end]` holds, with U+FFFD for lone surrogates; was there one?"""
    if text.find("\\ud", start, end) < 0 and text.find("\\uD", start, end) < 0:
        return value, False
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return _replaced(value), True
    return value, False


def check_whole_numbers(value: Any) -> None:
    """Raises InputLimitError where settings hold a whole number that no library takes, as 10**400.

    `value` is not nested deeply: it was parsed within limits.
    """
    if isinstance(value, dict):
        for item in (*value.keys(), *value.values()):
            check_whole_numbers(item)
    elif isinstance(value, list):
        for item in value:
            check_whole_numbers(item)
    elif isinstance(value, int) and value.bit_length() > MAX_SETTING_BITS:
        raise InputLimitError(f"a whole number of {value.bit_length():,} bits; at most {MAX_SETTING_BITS} are expected")


def _check_structure(text: str, limits: Limits) -> None:
    openers = text.count("[") + text.count("{")
    if openers <= limits.max_nesting and openers + text.count(",") <= limits.max_values:
        return
    bare = _STRING.sub("", text)
    brackets = _NO_BRACKET.sub("", bare)
    if any(depth > limits.max_nesting for depth in accumulate(map(_STEP.__getitem__, brackets))):
        raise InputLimitError(f"nested more than {limits.max_nesting} deep", _line_of_depth(text, limits.max_nesting))
    if bare.count("[") + bare.count("{") + bare.count(",") > limits.max_values:
        raise InputLimitError(f"more than {limits.max_values:,} values, the limit for {limits.name}")


def _line_of_depth(text: str, allowed: int) -> int:
    """The line of the bracket that goes too deep."""
    depth = 0
    for token in _BRACKET_OR_STRING.finditer(text):
        depth += _STEP.get(token[0], 0)
        if depth > allowed:
            return text.count("\n", 0, token.start()) + 1
    return 1


def _count_keys(value: Any) -> int:
    """How many keys all objects in a value have."""
    count = 0
    if value.__class__ is dict:
        count = len(value)
        value = value.values()
    elif value.__class__ is not list:
        return 0
    for item in value:
        if item.__class__ is dict or item.__class__ is list:
            count += _count_keys(item)
    return count


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= MAX_EXACT_DIGITS else float(digits)


def _without_surrogates(value: Any, text: str, surrogates: Surrogates) -> Any:
    if surrogates == "keep":
        return value
    value, replaced = replace_surrogates(value, text)
    if replaced and surrogates == "refuse":
        raise InputLimitError("half of a surrogate pair (\\ud800 to \\udfff) is no text; write the whole character")
    return value


def _replaced(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_replaced(key): _replaced(item) for key, item in value.items()}
    return [_replaced(item) for item in value] if isinstance(value, list) else value


def _shown(key: str) -> str:
    return repr(key if len(key) <= 60 else f"{key[:60]}...")
