"""Parsers: how an answer is read where a user says what it must be."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

from truetune.errors import SpecError

Parser = Callable[[str], Any]
"""Gives what it read; None or any exception where it can't."""

LONGEST = 100_000
"""Characters of an answer that a pattern is looked for in"""
_FENCE = re.compile(r"```[\w+-]*\s*\n(.*?)\n?\s*```", re.DOTALL)
_NUMBER = re.compile(
    r"(?:(?<!\w)[-+−])?(?<![\w.])(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?|(?<!\w)[-+−]?\.\d+"
)
_LETTER = r"[(\[*_\"'$]*(?:\\(?:boxed|text)\{)*\(?(A(?!’|'|[ \t]+(?!is\b|because\b)[a-z])|[B-E])\b"
_CHOICES = (
    re.compile(r"(?i:answer|choice|option|答案|选项|选)\W{0,4}(?:is|are|be|是|为|选)?\W{0,4}" + _LETTER),
    re.compile(r"\A\W{0,3}" + _LETTER),
    re.compile(r"\\boxed\{\W*([A-E])\W*\}"),
)


def parser_of(name: str) -> Parser:
    """json, json-schema:FILE, number, choice (a letter from A to E), regex:PATTERN, python:module.function.

    Raises SpecError for a name, file, pattern or function that is not there.
    """
    if name in _PLAIN:
        return _PLAIN[name]
    kind, colon, rest = name.partition(":")
    if not (colon and rest and kind in _NAMED):
        known = ", ".join([*_PLAIN, "json-schema:FILE", "regex:PATTERN", "python:module.function"])
        raise SpecError(f"the parser {name!r} is not known; expected one of {known}")
    return _NAMED[kind](rest)


def _json(text: str) -> Any:
    """The whole text, or the only fenced block in it; raises ValueError. Null is wrapped: None means nothing read."""
    fenced = _FENCE.findall(text)
    value = json.loads(fenced[0] if len(fenced) == 1 else text, parse_constant=_no_constant)
    return (None,) if value is None else value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _number(text: str) -> Decimal | None:
    """The last number in the text, digits grouped by commas or not."""
    found = _NUMBER.findall(text)
    return Decimal(found[-1].replace(",", "").replace("−", "-")) if found else None


def _choice(text: str) -> str | None:
    """The letter that is named as the answer last, else the one that the text begins with."""
    for pattern in _CHOICES:
        if found := pattern.findall(text):
            return str(found[-1]).upper()
    return None


def _regex(pattern: str) -> Parser:
    """The first group of the first match, the whole match where there is none."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise SpecError(f"the parser regex:{pattern}: no pattern: {error}") from None

    def parse(text: str) -> Any:
        found = compiled.search(text[:LONGEST])
        return None if found is None else found[1 if compiled.groups else 0]

    return parse


def _schema(file: str) -> Parser:
    """JSON that a schema allows."""
    if importlib.util.find_spec("jsonschema") is None:
        raise SpecError(f"the parser json-schema:{file} needs the package jsonschema: pip install jsonschema")
    jsonschema = importlib.import_module("jsonschema")
    try:
        schema = json.loads(Path(file).read_text(encoding="utf-8"))
        kind = jsonschema.validators.validator_for(schema)
        kind.check_schema(schema)
    except OSError as error:
        raise SpecError(f"the parser json-schema:{file}: {error.strerror}") from None
    except (ValueError, jsonschema.SchemaError) as error:
        raise SpecError(f"the parser json-schema:{file}: no JSON schema: {str(error).splitlines()[0]}") from None
    validator = kind(schema)

    def parse(text: str) -> Any:
        value = _json(text)
        return value if validator.is_valid(None if value == (None,) else value) else None

    return parse


def _python(path: str) -> Parser:
    """A function that the user names."""
    module, _, name = path.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise SpecError(f"the parser python:{path}: {error}; expected python:module.function") from None
    if not callable(found):
        raise SpecError(f"the parser python:{path}: {name} is no function")
    parse: Parser = found
    return parse


_PLAIN: dict[str, Parser] = {"json": _json, "number": _number, "choice": _choice}
_NAMED: dict[str, Callable[[str], Parser]] = {"json-schema": _schema, "regex": _regex, "python": _python}
