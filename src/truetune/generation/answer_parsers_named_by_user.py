"""Reads an answer as a user says: as JSON, a number, a letter, by a pattern or by their own function.

A parser gets the text behind the reasoning and gives what it read, or None. `make_parser` makes one of a name on the
command line; `try_parse` runs it with a limit on its time, and takes any exception for "nothing read": parsers are code
of users, and a bad answer must not end a run.

The trade-off: numbers and letters are found in prose too, by marks and position, and not only where they stand alone.
A strict reader would call most models of today unreadable; what a loose one misreads is tested on the gold answers
(`parser_selftest_results`).
"""

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
from truetune.parsing.input_limits import REPLY, SETTINGS
from truetune.parsing.parse_json_within_limits import parse_json, read_json
from truetune.render.unfilled_example_plan import THINK_END

Parser = Callable[[str], Any]
"""Gives what it read; None or any exception where it can't."""

JSON_PARSER = "json"
"""Name of the parser that reads JSON"""
MAX_REGEX_CHARACTERS = 100_000
"""Characters of an answer that a pattern is looked for in: a user's pattern may take the square of a text's length"""
# Chosen, not measured: reading takes microseconds, and a thousand answers must not hang.
READING_TIMEOUT_S = 1.0
"""That one reading may take"""
_FENCE = re.compile(r"```[\w+-]*[ \t]*\r?\n(.*?)```", re.DOTALL)
_TOOL_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_DIGITS = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?"
_NOT_INSIDE_A_WORD = "(?<![A-Za-z0-9_])"
_NUMBER = re.compile(
    rf"(?:{_NOT_INSIDE_A_WORD}[-+−]\$?)?{_NOT_INSIDE_A_WORD}(?<!\.){_DIGITS}|{_NOT_INSIDE_A_WORD}[-+−]?\.\d+"
)
_SIGNED = rf"[\s*$€£:(\\]*((?:[-+−]\$?)?{_DIGITS})"
_MARKED_NUMBERS = (
    re.compile(rf"####{_SIGNED}"),
    re.compile(rf"\\boxed\{{{_SIGNED}[^\w{{}}]*\}}"),
    re.compile(
        rf"(?i:answer|答案)[\s*]*(?:is|are|=|是|为)?{_SIGNED}(?=[\s*$%)\\]*(?:[.。](?!\d)|\n|\Z))"
    ),
)
"""Where a number is named as the answer, the surest first"""


def make_parser(name: str) -> Parser:
    """The parser of a name: json, json-schema:FILE, number, choice (a letter from A to E),
    choice:A-J, regex:PATTERN, python:module.function, python:FILE.py:function. Raises SpecError
    for a name, file, pattern or function that is not there.

    Raises SpecError for a name, file, pattern or function that is not there.
    """
    if name in _PARSERS:
        return _PARSERS[name]
    kind, colon, rest = name.partition(":")
    if not (colon and rest and kind in _PARSER_MAKERS):
        known = ", ".join(
            [
                *_PARSERS,
                "choice:A-J",
                "json-schema:FILE",
                "regex:PATTERN",
                "python:module.function",
                "python:FILE.py:function",
            ]
        )
        raise SpecError(f"the parser {name!r} is not known; expected one of {known}")
    return _PARSER_MAKERS[kind](rest)


def parse_answer_behind_reasoning(
    parse: Parser, text: str, seconds: float = READING_TIMEOUT_S
) -> Any:
    """What a parser reads of what stands behind the reasoning, within some seconds.

    Raises what the parser raises, TimeoutError where it takes longer.
    """
    with time_limit(seconds):
        return parse(text.rpartition(THINK_END)[2].strip())


def try_parse(parse: Parser, text: str) -> Any | None:
    """What a parser reads of a text; None where nothing is read, for whatever reason."""
    try:
        return parse_answer_behind_reasoning(parse, text)
    except Exception:
        return None


def are_readings_equal_and_not_none(a: Any, b: Any) -> bool:
    """Are these two readings equal, and not nothing?"""
    # Readings of a user's function may be anything: numpy's arrays raise where they are asked for their truth.
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

    # Signals reach the main thread alone: elsewhere a slow parser is not stopped, as a thread could not be ended
    # either.
    def raise_timeout(*_: Any) -> None:
        raise TimeoutError(f"it takes more than {seconds:g} s")

    started = time.monotonic()
    handler = signal.signal(signal.SIGALRM, raise_timeout)
    # An alarm of somebody else (a test runner's) is put back with what is left of its time.
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if left:
            remaining = max(0.001, left - (time.monotonic() - started))
            signal.setitimer(signal.ITIMER_REAL, remaining, interval)


def _read_json_of_text_or_fenced_block(text: str) -> Any:
    """The whole text, or the only fenced block or the tool calls in it; raises ValueError. Null is wrapped: None means
    nothing read."""
    calls = _TOOL_CALL.findall(text)
    if calls:
        values = [_decode_json(call) for call in calls]
        return values[0] if len(values) == 1 else values
    fenced = _FENCE.findall(text)
    # Of several blocks nobody knows which is the answer; the text as a whole is no JSON then.
    return _decode_json(fenced[0] if len(fenced) == 1 else text)


def _decode_json(text: str) -> Any:
    """The value of a JSON text, null wrapped. Raises ValueError, for NaN and Infinity too, which JSON does not have."""
    value = parse_json(text, REPLY, exact_integers=True, parse_constant=_refuse_json_constant)
    return (None,) if value is None else value


def _refuse_json_constant(name: str) -> Any:
    """Raise ValueError for NaN and Infinity, which JSON does not have."""
    raise ValueError(f"{name} is no JSON")


def _read_number_named_last(text: str) -> Decimal | None:
    """The number that is named as the answer last, else the last one; digits grouped by commas or not."""
    # LaTeX writes 1{,}234 and \$5.
    text = text.replace("{,}", ",").replace("\\$", "$")
    for pattern in (*_MARKED_NUMBERS, _NUMBER):
        numbers = pattern.findall(text)
        if numbers:
            return Decimal(re.sub(r"[,$]", "", numbers[-1]).replace("−", "-"))
    return None


def _choice_parser(last: str) -> Parser:
    """A parser that reads a letter from A to `last`: the one that is named as the answer last, else
    the one that the text begins with, or that has a line of its own.
    """
    letters = [chr(code) for code in range(ord("A"), ord(last) + 1)]
    # "A" and "I" are words of English too: before a word in small letters ("A dog") they are no choice.
    words = "".join(letter for letter in letters if letter in "AI")
    others = "".join(letter for letter in letters if letter not in "AI")
    choice = rf"([{words}](?!’|'|[ \t]+(?!is\b|because\b)[a-z])|[{others}])"
    letter = rf"[(\[*_\"'$]*(?:\\(?:boxed|text)\{{)*\(?{choice}\b"
    # "The answer is option B": the word between is left out.
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
        for pattern in patterns:
            choices = pattern.findall(text)
            if choices:
                return str(choices[-1])
        return None

    return parse


def _choice_range_parser(letters: str) -> Parser:
    """A parser that reads a letter of a range such as `A-J`. Raises SpecError for what is no such
    range.
    """
    match = re.fullmatch(r"A-([B-Z])", letters)
    if match is None:
        raise SpecError(f"the parser choice:{letters}: expected the letters as in choice:A-J")
    return _choice_parser(match[1])


def _regex_parser(pattern: str) -> Parser:
    """A parser that reads the first group of the first match of a pattern, the whole match where
    the pattern has no group. Raises SpecError.
    """
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise SpecError(f"the parser regex:{pattern}: no pattern: {error}") from None

    def parse(text: str) -> Any:
        match = compiled.search(text[:MAX_REGEX_CHARACTERS])
        return None if match is None else match[1 if compiled.groups else 0]

    return parse


def _schema_parser(file: str) -> Parser:
    """A parser that reads JSON which the schema in a file allows. Raises SpecError."""
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
        # Null is wrapped for the caller, and unwrapped for the schema, which may allow it.
        value = _read_json_of_text_or_fenced_block(text)
        return value if validator.is_valid(None if value == (None,) else value) else None

    return parse


def _python_parser(path: str) -> Parser:
    """A parser that is the function which the user names: of a module (the working folder's come
    first), or of a file. Raises SpecError.
    """
    file, colon, name = path.rpartition(":")
    module = "" if colon else path.rpartition(".")[0]
    name = name if colon else path.rpartition(".")[2]
    try:
        owner = import_file(Path(file)) if colon else import_from_working_folder(module)
        function = getattr(owner, name)
    except Exception as error:
        # Importing runs the user's module, which may raise anything; an ImportError says itself what it is.
        is_plain = isinstance(error, ImportError | AttributeError)
        what = str(error) if is_plain else f"{type(error).__name__}: {error}"
        raise SpecError(
            f"the parser python:{path}: {what}; expected python:module.function or"
            " python:FILE.py:function"
        ) from None
    if not callable(function):
        raise SpecError(f"the parser python:{path}: {name} is no function")
    try:
        # Now and not with the first answer, for that comes after minutes of a model.
        inspect.signature(function).bind("answer")
    except TypeError:
        raise SpecError(
            f"the parser python:{path}: {name} must take one argument, the answer's text"
        ) from None
    except ValueError:
        # Functions of C have no signature to look at.
        pass
    parse: Parser = function
    return parse


def import_from_working_folder(name: str) -> Any:
    """Import a module; those of the working folder come first, as in `python -c`.

    Raises ImportError or ValueError, or what the module raises.
    """
    folder = str(Path.cwd())
    # A script that is started as a command has its own folder there, and not the working folder.
    sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(folder)


def import_file(file: Path) -> Any:
    """Import a file by its path. Raises FileNotFoundError, or what the file raises."""
    if not file.is_file():
        raise FileNotFoundError(f"{file} is no file")
    spec = importlib.util.spec_from_file_location(f"truetune_parser_{file.stem}", file.resolve())
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    # Before it runs: dataclasses and pickle look their own module up there.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


_PARSERS: dict[str, Parser] = {
    JSON_PARSER: _read_json_of_text_or_fenced_block,
    "number": _read_number_named_last,
    "choice": _choice_parser("E"),
}
_PARSER_MAKERS: dict[str, Callable[[str], Parser]] = {
    "json-schema": _schema_parser,
    "regex": _regex_parser,
    "python": _python_parser,
    "choice": _choice_range_parser,
}
