"""Texts that are meant to be JSON and that a JSON parser refuses: printed Python values, a comma too many, a fence.

How it works: a text that begins and ends like an object or a list is read as JSON, and where that fails as what it may
be instead. Nothing is guessed of other texts: prose is no broken JSON. The trade-off: JSON with two faults, as a comma
too many in a printed Python value, is neither and has no name here.
"""

from __future__ import annotations

import re
from typing import Literal

from truetune.parsing.input_limits import ROW
from truetune.parsing.parse_json_within_limits import parse_json
from truetune.parsing.parse_python_within_limits import parse_literal

Serialization = Literal[
    "json", "python", "trailing comma", "not a number", "fenced", "worded", "worded fence"
]
FENCE = re.compile(r"^```[ \t]*(?:json|JSON)?[ \t]*\n(?P<body>.*?)\n?```$", re.DOTALL)
WORDED = re.compile(
    r"^(?P<lead>[^\n{}\[\]`]{1,160}:)[ \t]*\n?\s*(?P<body>```.*```|[{\[].*[}\]])(?:\n[^\n{}\[\]`]{1,200})?$",
    re.DOTALL,
)
"""One line that ends in a colon ("Here is the JSON:"), the JSON, and one line more perhaps. Longer texts explain, and
their JSON is an example"""
TRAILING_COMMA = re.compile(r",(\s*[}\]])")
NOT_A_NUMBER = re.compile(r"(?<=[:\[,\s])-?(?:NaN|Infinity)(?=\s*[,}\]])")
JSON_ASKED = re.compile(r"\bJSONL?\b", re.IGNORECASE)
PYTHON_ASKED = re.compile(r"\bpython\b|\bdict(?:ionary)?\b|\btuples?\b|\brepr\b", re.IGNORECASE)
# Chosen for speed, not measured: a text may be parsed four times.
MAX_CHARACTERS = 50_000
"""Characters of a text that is looked at"""
SERIALIZATIONS_IN_WORDS: dict[Serialization, Serialization] = {
    "json": "worded",
    "fenced": "worded fence",
}
"""What JSON is called that has words around it"""
SERIALIZATION_PHRASES: dict[Serialization, str] = {
    "python": "are Python values as str(dict) prints them (single quotes, None, True), and no JSON",
    "trailing comma": "have a comma after the last field, which JSON does not allow",
    "not a number": "hold NaN or Infinity, which JSON does not know",
    "fenced": "are in a fence (```json)",
    "worded": "have words around the JSON",
    "worded fence": "have words around a fence (```json)",
}
"""What is said of many of one kind"""


def serialization_of_object_or_list(text: str) -> Serialization | None:
    """How an object or a list is written; None for every other text."""
    bare = text.strip()
    if not 2 < len(bare) < MAX_CHARACTERS:
        return None
    fence = FENCE.match(bare)
    if fence is not None:
        return "fenced" if serialization_of_object_or_list(fence["body"]) == "json" else None
    if (bare[0], bare[-1]) not in (("{", "}"), ("[", "]")):
        return _serialization_behind_introduction(bare)
    if _is_json_object_or_list(bare):
        return "not a number" if NOT_A_NUMBER.search(bare) else "json"
    if _is_json_object_or_list(TRAILING_COMMA.sub(r"\1", bare)):
        return "trailing comma"
    if _is_json_object_or_list(NOT_A_NUMBER.sub("0", bare)):
        return "not a number"
    return "python" if _is_printed_python_value(bare) else None


def line_before_json(text: str) -> str | None:
    """The line before the JSON of an answer; None where there is none."""
    worded = WORDED.match(text.strip())
    return worded["lead"] if worded is not None else None


def _serialization_behind_introduction(bare: str) -> Serialization | None:
    """Is it JSON behind a line such as "Here is the JSON:"?"""
    worded = WORDED.match(bare)
    within = serialization_of_object_or_list(worded["body"]) if worded is not None else None
    return SERIALIZATIONS_IN_WORDS.get(within) if within is not None else None


def asks_for_json(prompt: str) -> bool:
    """Does a prompt ask for JSON, and for no Python?"""
    return JSON_ASKED.search(prompt) is not None and PYTHON_ASKED.search(prompt) is None


def asks_for_python(prompt: str) -> bool:
    """Does a prompt speak of Python's values?"""
    return PYTHON_ASKED.search(prompt) is not None


def _is_json_object_or_list(text: str) -> bool:
    """Is a text a JSON object or list?"""
    try:
        return isinstance(parse_json(text, ROW), dict | list)
    except ValueError:
        return False


def _is_printed_python_value(text: str) -> bool:
    """Is it an object, or a list of texts or objects, as Python prints it?"""
    try:
        value = parse_literal(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return False
    if isinstance(value, dict):
        return bool(value)
    return isinstance(value, list) and any(
        isinstance(one, str | dict | bool) or one is None for one in value
    )
