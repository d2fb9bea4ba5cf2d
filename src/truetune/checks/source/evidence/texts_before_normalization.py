"""Says which text a normalized one was made of, where no part of it was cut off.

Scores compare texts without case, punctuation, articles and repeated spaces. Such steps change
characters everywhere and keep what a text says, so a prompt that stood in it still does. A pattern
counts only where it has no wildcard: one with `.*` may match the whole prompt.
"""

from __future__ import annotations

import re

from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.trace_of_events import CallEvent
from truetune.source.symbolic_execution.values_of_run import (
    Element,
    Library,
    Result,
    Sequence,
    Value,
)

CASE_METHODS = frozenset(
    ("lower", "upper", "casefold", "title", "capitalize", "swapcase", "translate", "expandtabs")
)
"""Methods that change single characters"""
STRIP_METHODS = frozenset(("strip", "lstrip", "rstrip"))
TEXT_FUNCTIONS = {
    "str": 0,
    "html.unescape": 0,
    "unicodedata.normalize": 1,
    "unidecode.unidecode": 0,
}
"""Functions that keep a text -> the position of that text"""
LIBRARY_CHARACTERS = ("string.punctuation", "string.whitespace")
SUBSTITUTIONS = ("re.sub", "regex.sub")
COMPILED_PATTERNS = ("re.compile", "regex.compile")
WILDCARD = re.compile(r"(?<!\\)\.|\\[SDWw]|\[\^|\[[^\]]*(?:\\w|a-z|A-Z)")
"""Parts of a pattern that may match any letter"""
SINGLE_NEGATED_CLASS = re.compile(r"\[\^[^\]]*(?:\\w|a-z)[^\]]*\]\+?")
"""A pattern that is one class of what is no letter: `[^\\w\\s]`"""


def text_before_normalizing(value: Value) -> Value | None:
    """The text that a normalization was given and kept; None where it is none, or may cut."""
    return text_normalized_uncut_by_call(value.call) if isinstance(value, Result) else None


def text_normalized_uncut_by_call(call: CallEvent) -> Value | None:
    """The text that a call normalizes and keeps; None where it does not, or may cut."""
    if call.method in CASE_METHODS:
        return call.receiver
    if call.method in STRIP_METHODS:
        return call.receiver if _strips_no_letters_or_digits(call, 0) else None
    if call.method == "replace":
        return call.receiver if call.args and _strips_no_letters_or_digits(call, 0) else None
    if call.method == "join":
        return _text_whose_words_are_rejoined(call)
    return _text_changed_uncut_by_function(call)


def splits_at_spaces(call: CallEvent) -> bool:
    """Is it `text.split()`, whose words a `join` may put together again?"""
    return (
        call.method == "split"
        and not call.keywords
        and all(str(constant_of(one)).isspace() for one in call.args)
    )


def _strips_no_letters_or_digits(call: CallEvent, position: int) -> bool:
    """Is what a call takes away a constant without letters and digits, or not given, which means
    spaces?
    """
    if len(call.args) <= position:
        return not call.keywords
    given = call.args[position]
    if isinstance(given, Library):
        return given.name in LIBRARY_CHARACTERS
    taken = constant_of(given)
    return isinstance(taken, str) and not any(map(str.isalnum, taken))


def _text_whose_words_are_rejoined(call: CallEvent) -> Value | None:
    """The text whose words or characters a `join` puts together again."""
    given = call.args[0] if len(call.args) == 1 else None
    if isinstance(given, Result) and splits_at_spaces(given.call):
        return given.call.receiver
    # `"".join(c for c in text if c not in punctuation)`; lines and words are parts of another list.
    if isinstance(given, Sequence) and len(given.items) == 1 and constant_of(call.receiver) == "":
        only = given.items[0]
        return only.iterable if isinstance(only, Element) else None
    return None


def _text_changed_uncut_by_function(call: CallEvent) -> Value | None:
    """The text that a function changes without cutting it."""
    for name, position in TEXT_FUNCTIONS.items():
        if call.named(name):
            return call.args[position] if len(call.args) > position else None
    if call.named(*SUBSTITUTIONS):
        pattern, place = call.argument(0, "pattern"), 2
    elif call.method == "sub" and isinstance(call.receiver, Result):
        compiled = call.receiver.call
        if not compiled.named(*COMPILED_PATTERNS):
            return None
        pattern, place = compiled.argument(0, "pattern"), 1
    else:
        return None
    if not isinstance(text := constant_of(pattern), str) or _may_pattern_match_any_text(text):
        return None
    return call.argument(place, "string")


def _may_pattern_match_any_text(pattern: str) -> bool:
    """May a pattern match a stretch of any text?"""
    return bool(WILDCARD.search(pattern)) and not SINGLE_NEGATED_CLASS.fullmatch(pattern)
