"""Parses JSON within limits on size, nesting and number of values, and finds duplicate keys and
lone surrogates.

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
from typing import Any, Literal, NamedTuple

from truetune.parsing.input_limits import (
    MAX_EXACT_DIGITS,
    MAX_SETTING_BITS,
    REPLY,
    ROW,
    InputLimitError,
    Limits,
    refuse_too_large,
)
from truetune.parsing.read_files_within_limits import read_bytes_within_limit

__all__ = [
    "Decoded",
    "JSONDecodeError",
    "RowDecoder",
    "find_duplicate_key",
    "parse_json",
    "read_json",
    "refuse_huge_whole_numbers",
    "replace_lone_surrogates",
]

# Without possessive quantifiers a text of many backslashes takes time that grows with the square of
# its length.
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\Z)', re.DOTALL)
"""A string; an unclosed one reaches to the end. Possessive, so that no text makes it go back."""
_BRACKET_OR_STRING = re.compile(_STRING.pattern + r"|[\[\]{}]", re.DOTALL)
_WHITE_SPACE = re.compile(r"\s*")
# What is left are brackets alone: their depth is a running sum, made in C.
_NO_BRACKET = re.compile(r"[^\[\]{}]+")
_STEP = {"[": 1, "{": 1, "]": -1, "}": -1}
# A colon in a string is seldom behind a quote or a space; a key's always is.
_BEFORE_COLON = ('":', " :", "\t:", "\n:", "\r:")
"""The colon of a key, with what can stand before it"""
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
    """The value of a JSON text, within limits.

    Args:
        text: characters, or bytes in UTF-8.
        limits: what the text may have.
        unique_keys: refuse an object that has a key twice; JSON readers else take the last one.
        surrogates: half of a surrogate pair, which no file and no tokenizer can hold, becomes U+FFFD, is refused, or is
            kept for the caller to report.
        exact_integers: keep whole numbers of more than MAX_EXACT_DIGITS digits, which otherwise become floats.
        parse_constant: makes a value of NaN, Infinity or -Infinity.

    Raises InputLimitError, JSONDecodeError, UnicodeDecodeError: each is a ValueError.
    """
    # Before anything is copied: decoding and building values take many times the memory of the
    # text.
    refuse_too_large(len(text), limits)
    if isinstance(text, bytes):
        # A byte order mark is common in files from Windows, and no JSON.
        text = text.decode("utf-8-sig")
    _refuse_deep_or_many_values(text, limits)
    try:
        value = json.loads(
            text,
            parse_int=int if exact_integers else _parse_integer_or_float,
            parse_constant=parse_constant,
        )
    except RecursionError:
        raise InputLimitError(f"nested more than {limits.max_nesting} deep") from None
    key = find_duplicate_key(text) if unique_keys else None
    if key is not None:
        raise InputLimitError(f"the key {_quote_shortened_key(key)} occurs twice in one object")
    return _keep_replace_or_refuse_lone_surrogates(value, text, surrogates)


def read_json(path: Path, limits: Limits, *, surrogates: Surrogates = "replace") -> Any:
    """The value in a JSON file. Raises OSError, and ValueError as `parse_json` does."""
    return parse_json(read_bytes_within_limit(path, limits), limits, surrogates=surrogates)


class Decoded(NamedTuple):
    """A value that was read from a text."""

    value: Any
    end: int
    """Where it ends in the text"""
    duplicate_key: str | None
    """A key that one of its objects has twice"""


class RowDecoder:
    """Reads the rows of one stream. It counts keys while it reads, so each thread needs its own.

    Python's decoder keeps the last of two values of one key and says nothing. Every key of a text is followed by a
    colon. So where the text has no more colons than the objects have keys, none was lost; where it has more, because
    strings hold colons too, `_duplicate_key_in_part` looks closer. The count costs a tenth of the decoding.
    """

    def __init__(self, limits: Limits = ROW) -> None:
        self._limits = limits
        # A list of one number: the hook needs something that it can change, and an attribute costs
        # a look-up for each object.
        self._keys = keys = [0]

        def count_keys(mapping: dict[str, Any]) -> dict[str, Any]:
            """The object as it is, with its keys counted; of equal keys the dictionary has one."""
            keys[0] += len(mapping)
            return mapping

        # An object_hook keeps the C decoder; object_pairs_hook would too, but builds a list of
        # pairs for each object.
        self._decode = json.JSONDecoder(object_hook=count_keys).raw_decode

    def read_line(self, text: str) -> Decoded:
        """The value that a line begins with.

        Raises InputLimitError, JSONDecodeError, and ValueError for a number of more than 4,300 digits.
        """
        _refuse_deep_or_many_values(text, self._limits)
        return self._decode_and_find_lost_key(text, 0)

    def read_at(self, text: str, start: int) -> Decoded:
        """The JSON value that begins at `start`, with where it ends; more text may follow.

        The end of the value is not known before, so its structure is checked afterwards: Python's decoder counts its
        own recursion, and raises RecursionError far before the stack ends. Raises as `read_line`.
        """
        decoded = self._decode_and_find_lost_key(text, start)
        # Cheap upper bounds: strings may hold brackets too, and only then the exact check runs.
        openers = text.count("[", start, decoded.end) + text.count("{", start, decoded.end)
        if openers > self._limits.max_nesting or decoded.end - start > self._limits.max_values:
            _refuse_deep_or_many_values(text[start : decoded.end], self._limits)
        refuse_too_large(decoded.end - start, self._limits)
        return decoded

    def _decode_and_find_lost_key(self, text: str, start: int) -> Decoded:
        """The value at `start`, with where it ends, and a key that one of its objects has twice."""
        self._keys[0] = 0
        try:
            value, end = self._decode(text, start)
        except RecursionError:
            raise InputLimitError(f"nested more than {self._limits.max_nesting} deep") from None
        keys = self._keys[0]
        if text.count(":", start, end) == keys:
            return Decoded(value, end, None)
        return Decoded(value, end, _duplicate_key_in_part(text, start, end, keys))


def find_duplicate_key(text: str) -> str | None:
    """A key that an object in a JSON text has twice; None where there is none. Raises ValueError."""
    begin = _WHITE_SPACE.match(text)
    assert begin is not None
    return RowDecoder(REPLY).read_at(text, begin.end()).duplicate_key


def _duplicate_key_in_part(text: str, start: int, end: int, keys: int) -> str | None:
    """A key that an object in `text[start:end]` has twice, if its objects together kept only `keys`
    keys.

    The colon of a key follows a quote or white space. Where no more colons do so than there are keys, no key was lost;
    else the text is read again, with the keys of each object compared.
    """
    colons = sum(text.count(before, start, end) for before in _BEFORE_COLON)
    if colons == keys:
        return None
    repeated: list[str] = []

    def compare(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """The object; notes the first key that stands twice."""
        value = dict(pairs)
        if len(value) < len(pairs) and not repeated:
            names = [name for name, _ in pairs]
            repeated.append(next(name for name in value if names.count(name) > 1))
        return value

    # The slow way, only for rows whose counts differ: a key that is lost, or a string that looks
    # like one.
    json.JSONDecoder(object_pairs_hook=compare).raw_decode(text, start)
    return repeated[0] if repeated else None


def replace_lone_surrogates(
    value: Any, text: str, start: int = 0, end: int | None = None
) -> tuple[Any, bool]:
    """A value with U+FFFD for lone surrogates, and whether there was one.

    Args:
        value: what the text was parsed to.
        text: the text that it stands in.
        start: where it begins there.
        end: one past its end; None for the end of the text.
    """
    # A surrogate can only come from an escape: UTF-8 can't hold one. Nearly all texts end here.
    if text.find("\\ud", start, end) < 0 and text.find("\\uD", start, end) < 0:
        return value, False
    try:
        # An emoji is a whole pair, which Python joined. Only encoding tells whether a half is left.
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return _replace_lone_surrogates_in_value(value), True
    return value, False


def refuse_huge_whole_numbers(value: Any) -> None:
    """Raises InputLimitError where settings hold a whole number that no library takes, as 10**400.

    `value` is not nested deeply: it was parsed within limits.
    """
    if isinstance(value, dict):
        for item in (*value.keys(), *value.values()):
            refuse_huge_whole_numbers(item)
    elif isinstance(value, list):
        for item in value:
            refuse_huge_whole_numbers(item)
    # True and False are integers of one bit.
    elif isinstance(value, int) and value.bit_length() > MAX_SETTING_BITS:
        raise InputLimitError(
            f"a whole number of {value.bit_length():,} bits; at most {MAX_SETTING_BITS} are"
            " expected"
        )


def _refuse_deep_or_many_values(text: str, limits: Limits) -> None:
    """Raise InputLimitError where a text is nested too deeply or holds too many values."""
    openers = text.count("[") + text.count("{")
    # No text can be nested deeper than it has brackets, nor hold more values than characters.
    if openers <= limits.max_nesting and len(text) <= limits.max_values:
        return
    # Brackets and commas inside strings are text.
    bare = _STRING.sub("", text)
    brackets = _NO_BRACKET.sub("", bare)
    if any(depth > limits.max_nesting for depth in accumulate(map(_STEP.__getitem__, brackets))):
        raise InputLimitError(
            f"nested more than {limits.max_nesting} deep",
            _line_that_nests_too_deep(text, limits.max_nesting),
        )
    if bare.count("[") + bare.count("{") + bare.count(",") > limits.max_values:
        raise InputLimitError(
            f"more than {limits.max_values:,} values, the limit for {limits.name}"
        )


def _line_that_nests_too_deep(text: str, allowed: int) -> int:
    """The line of the bracket that nests deeper than is allowed."""
    depth = 0
    for token in _BRACKET_OR_STRING.finditer(text):
        depth += _STEP.get(token[0], 0)
        if depth > allowed:
            return text.count("\n", 0, token.start()) + 1
    return 1


def _parse_integer_or_float(digits: str) -> int | float:
    """A whole number as int, or as a float if it has so many digits that no setting or count can be
    it.
    """
    return int(digits) if len(digits) <= MAX_EXACT_DIGITS else float(digits)


def _keep_replace_or_refuse_lone_surrogates(value: Any, text: str, surrogates: Surrogates) -> Any:
    """The value with lone surrogates kept, replaced or refused, as the caller wants. Raises
    InputLimitError.
    """
    if surrogates == "keep":
        return value
    value, replaced = replace_lone_surrogates(value, text)
    if replaced and surrogates == "refuse":
        raise InputLimitError(
            "half of a surrogate pair (\\ud800 to \\udfff) is no text; write the whole character"
        )
    return value


def _replace_lone_surrogates_in_value(value: Any) -> Any:
    """The value with U+FFFD for each lone surrogate, in keys too."""
    if isinstance(value, str):
        # UTF-16 is where halves come from: written as it, each half that has no partner is
        # replaced.
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {
            _replace_lone_surrogates_in_value(key): _replace_lone_surrogates_in_value(item)
            for key, item in value.items()
        }
    return (
        [_replace_lone_surrogates_in_value(item) for item in value]
        if isinstance(value, list)
        else value
    )


def _quote_shortened_key(key: str) -> str:
    """A key in quotes for a message, cut if it is long."""
    return repr(key if len(key) <= 60 else f"{key[:60]}...")
