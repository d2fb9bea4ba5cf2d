"""Parsers: how an answer is read where a user says what it must be."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

from truetune.errors import SpecError
from truetune.parsing.json_reader import parse_json, read_json
from truetune.parsing.limits import REPLY, SETTINGS
from truetune.render.render_plan import THINK_END

Parser = Callable[[str], Any]
"""Gives what it read; None or any exception where it can't."""

MAX_REGEX_CHARACTERS = 100_000
"""Characters of an answer that a pattern is looked for in"""
READING_TIMEOUT_S = 1.0
"""That one reading may take"""
_FENCE = re.compile(r"```[\w+-]*[ \t]*\r?\n(.*?)```", re.DOTALL)
_TOOL_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_DIGITS = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?"
_APART = "(?<![A-Za-z0-9_])"
_NUMBER = re.compile(rf"(?:{_APART}[-+−]\$?)?{_APART}(?<!\.){_DIGITS}|{_APART}[-+−]?\.\d+")
_SIGNED = rf"[\s*$€£:(\\]*((?:[-+−]\$?)?{_DIGITS})"
_FINAL = (
    re.compile(rf"####{_SIGNED}"),
    re.compile(rf"\\boxed\{{{_SIGNED}[^\w{{}}]*\}}"),
    re.compile(
        rf"(?i:answer|答案)[\s*]*(?:is|are|=|是|为)?{_SIGNED}(?=[\s*$%)\\]*(?:[.。](?!\d)|\n|\Z))"
    ),
)
"""Where a number is named as the answer, the surest first"""


def make_parser(name: str) -> Parser:
    """json, json-schema:FILE, number, choice (a letter from A to E), choice:A-J, regex:PATTERN, python:module.function,
    python:FILE.py:function.

    Raises SpecError for a name, file, pattern or function that is not there.
    """
    if name in _PLAIN:
        return _PLAIN[name]
    kind, colon, rest = name.partition(":")
    if not (colon and rest and kind in _NAMED):
        known = ", ".join(
            [
                *_PLAIN,
                "choice:A-J",
                "json-schema:FILE",
                "regex:PATTERN",
                "python:module.function",
                "python:FILE.py:function",
            ]
        )
        raise SpecError(f"the parser {name!r} is not known; expected one of {known}")
    return _NAMED[kind](rest)


def parse_answer(parse: Parser, text: str, seconds: float = READING_TIMEOUT_S) -> Any:
    """What a parser reads of what stands behind the reasoning, within some seconds.

    Raises what the parser raises, TimeoutError where it takes longer.
    """
    with time_limit(seconds):
        return parse(text.rpartition(THINK_END)[2].strip())


def try_parse(parse: Parser, text: str) -> Any | None:
    """The same; None where nothing is read, for whatever reason."""
    try:
        return parse_answer(parse, text)
    except Exception:
        return None


def same_reading(a: Any, b: Any) -> bool:
    """Are these two readings equal, and not nothing?"""
    try:
        return a is not None and b is not None and bool(a == b)
    except Exception:
        return False


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises TimeoutError in the block after so long. It can't on Windows, nor outside the main thread."""
    if (
        not hasattr(signal, "setitimer")
        or threading.current_thread() is not threading.main_thread()
    ):
        yield
        return

    def ring(*_: Any) -> None:
        raise TimeoutError(f"it takes more than {seconds:g} s")

    started = time.monotonic()
    handler = signal.signal(signal.SIGALRM, ring)
    left, again = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if left:
            signal.setitimer(
                signal.ITIMER_REAL, max(0.001, left - (time.monotonic() - started)), again
            )


def _read_json(text: str) -> Any:
    """The whole text, or the only fenced block or the tool calls in it; raises ValueError. Null is wrapped: None means
    nothing read."""
    if calls := _TOOL_CALL.findall(text):
        made = [_decode_json(call) for call in calls]
        return made[0] if len(made) == 1 else made
    fenced = _FENCE.findall(text)
    return _decode_json(fenced[0] if len(fenced) == 1 else text)


def _decode_json(text: str) -> Any:
    value = parse_json(text, REPLY, exact_integers=True, parse_constant=_no_constant)
    return (None,) if value is None else value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _read_number(text: str) -> Decimal | None:
    """The number that is named as the answer last, else the last one; digits grouped by commas or not."""
    text = text.replace("{,}", ",").replace("\\$", "$")
    found = next(
        (found for pattern in _FINAL if (found := pattern.findall(text))), None
    ) or _NUMBER.findall(text)
    return Decimal(re.sub(r"[,$]", "", found[-1]).replace("−", "-")) if found else None


def _choice_parser(last: str) -> Parser:
    """A letter from A to `last`: the one that is named as the answer last, else the one that the text begins with, or
    that has a line of its own."""
    words = "".join(letter for letter in "AI" if letter <= last)
    others = "".join(chr(code) for code in range(ord("A"), ord(last) + 1) if chr(code) not in words)
    one = rf"([{words}](?!’|'|[ \t]+(?!is\b|because\b)[a-z])|[{others}])"
    letter = rf"[(\[*_\"'$]*(?:\\(?:boxed|text)\{{)*\(?{one}\b"
    named = r"(?i:option|choice|letter|选项)?\W{0,3}"
    patterns = tuple(
        map(
            re.compile,
            (
                rf"\\boxed\{{(?:\\text\{{)?\W*([A-{last}])\W*\}}",
                rf"(?i:answer|答案)\W{{0,4}}(?:is|are|be|是|为|选)?\W{{0,4}}{named}{letter}",
                rf"\A\W{{0,3}}{letter}",
                rf"(?m:^[\W_]{{0,4}}([A-{last}])[\W_]{{0,4}}$)",
                rf"(?i:choice|option|选项|选)\W{{0,4}}(?:is|are|be|是|为|选)?\W{{0,4}}{letter}",
            ),
        )
    )

    def parse(text: str) -> str | None:
        return next(
            (str(found[-1]) for pattern in patterns if (found := pattern.findall(text))), None
        )

    return parse


def _choice_range_parser(letters: str) -> Parser:
    found = re.fullmatch(r"A-([B-Z])", letters)
    if found is None:
        raise SpecError(f"the parser choice:{letters}: expected the letters as in choice:A-J")
    return _choice_parser(found[1])


def _regex_parser(pattern: str) -> Parser:
    """The first group of the first match, the whole match where there is none."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise SpecError(f"the parser regex:{pattern}: no pattern: {error}") from None

    def parse(text: str) -> Any:
        found = compiled.search(text[:MAX_REGEX_CHARACTERS])
        return None if found is None else found[1 if compiled.groups else 0]

    return parse


def _schema_parser(file: str) -> Parser:
    """JSON that a schema allows."""
    if importlib.util.find_spec("jsonschema") is None:
        raise SpecError(
            f"the parser json-schema:{file} needs the package jsonschema: pip install jsonschema"
        )
    jsonschema = importlib.import_module("jsonschema")
    try:
        schema = read_json(Path(file), SETTINGS)
        kind = jsonschema.validators.validator_for(schema)
        kind.check_schema(schema)
    except OSError as error:
        raise SpecError(f"the parser json-schema:{file}: {error.strerror}") from None
    except (ValueError, jsonschema.SchemaError) as error:
        raise SpecError(
            f"the parser json-schema:{file}: no JSON schema: {str(error).splitlines()[0]}"
        ) from None
    validator = kind(schema)

    def parse(text: str) -> Any:
        value = _read_json(text)
        return value if validator.is_valid(None if value == (None,) else value) else None

    return parse


def _python_parser(path: str) -> Parser:
    """A function that the user names: of a module (the working folder's come first), or of a file."""
    file, colon, name = path.rpartition(":")
    module = "" if colon else path.rpartition(".")[0]
    name = name if colon else path.rpartition(".")[2]
    try:
        found = getattr(
            _import_file(Path(file)) if colon else _import_from_working_folder(module), name
        )
    except Exception as error:
        what = (
            f"{type(error).__name__}: {error}"
            if not isinstance(error, ImportError | AttributeError)
            else error
        )
        raise SpecError(
            f"the parser python:{path}: {what}; expected python:module.function or"
            " python:FILE.py:function"
        ) from None
    if not callable(found):
        raise SpecError(f"the parser python:{path}: {name} is no function")
    try:
        inspect.signature(found).bind("answer")
    except TypeError:
        raise SpecError(
            f"the parser python:{path}: {name} must take one argument, the answer's text"
        ) from None
    except ValueError:
        pass
    parse: Parser = found
    return parse


def _import_from_working_folder(name: str) -> Any:
    """Raises ImportError or ValueError, or what the module raises."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(here)


def _import_file(file: Path) -> Any:
    """Raises FileNotFoundError, or what the file raises."""
    if not file.is_file():
        raise FileNotFoundError(f"{file} is no file")
    spec = importlib.util.spec_from_file_location(f"truetune_parser_{file.stem}", file.resolve())
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


_PLAIN: dict[str, Parser] = {
    "json": _read_json,
    "number": _read_number,
    "choice": _choice_parser("E"),
}
_NAMED: dict[str, Callable[[str], Parser]] = {
    "json-schema": _schema_parser,
    "regex": _regex_parser,
    "python": _python_parser,
    "choice": _choice_range_parser,
}
