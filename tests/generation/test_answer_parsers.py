"""Parsers read what they say, and a name that is none is told."""

from __future__ import annotations

import json
import signal
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from truetune.errors import SpecError
from truetune.generation.answer_parsers_named_by_user import (
    are_readings_equal_and_not_none,
    make_parser,
    parse_answer_behind_reasoning,
)


def read(name: str, text: str) -> Any:
    try:
        return make_parser(name)(text)
    except ValueError:
        return None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ('Here it is:\n```json\n{"a": 1}\n```\nDone.', {"a": 1}),
        ("[]", []),
        ("false", False),
        ("null", (None,)),
        ("```\n[1]\n```", [1]),
        ('{"a": 1', None),
        ("Here: {}", None),
        ("", None),
        ("NaN", None),
        ("```json\n1\n```\n```json\n2\n```", None),
        ('{"a": 1} and more', None),
        ('<tool_call>\n{"a": 1}\n</tool_call>', {"a": 1}),
        ("<tool_call>1</tool_call>\n<tool_call>2</tool_call>", [1, 2]),
    ],
)
def test_json(text: str, value: Any) -> None:
    assert read("json", text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("42", "42"),
        ("3 + 4 = 7.", "7"),
        ("It costs $1,234.50", "1234.50"),
        ("-3", "-3"),
        ("−3", "-3"),
        ("#### 18", "18"),
        ("about 2e3", "2e3"),
        ("10,000,000 people", "10000000"),
        ("1, 2, 3", "3"),
        ("v2", None),
        ("none", None),
        ("", None),
        ("It is 5-3", "3"),
        ("90%", "90"),
        (".5", "0.5"),
        ("v1.2", None),
        ("(1,2,3)", "3"),
        ("1234,5678", "5678"),
        ("\\boxed{12}", "12"),
        ("The answer is 42. It took 3 steps.", "42"),
        ("The answer is 5 + 3 = 8", "8"),
        ("#### -1,234\nThat was step 3.", "-1234"),
        ("\\boxed{1{,}234} in 3 steps", "1234"),
        ("-$5", "-5"),
        ("**Answer: 42**\nSee part 7.", "42"),
        ("The answer is 3.5.", "3.5"),
    ],
)
def test_number(text: str, value: str | None) -> None:
    assert read("number", text) == (None if value is None else Decimal(value))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("B", "B"),
        ("(C)", "C"),
        ("B. Paris", "B"),
        ("**D**", "D"),
        ("The answer is B.", "B"),
        ("Answer: (A)", "A"),
        ("I think the correct answer is (C) because A is wrong.", "C"),
        ("答案是B", "B"),
        ("So \\boxed{E}", "E"),
        ("First, answer A looks right. But the answer is D.", "D"),
        ("Option C", "C"),
        ("a", None),
        ("", None),
        ("F", None),
        ("A lighthouse stands here.", None),
        ("The answer is a lighthouse", None),
        ("Because it is far.", None),
        ("A) Paris", "A"),
        ("Answer: B\nExplanation: A is far.", "B"),
        ("选B", "B"),
        ("B because it is near.", "B"),
        ("A is right.", "A"),
        ("the answer is a.", None),
        ("B. Option A is wrong.", "B"),
        ("The answer is (B), not option A.", "B"),
        ("Is A right? No.\n\n**B**", "B"),
        ("$\\boxed{\\text{C}}$", "C"),
    ],
)
def test_choice(text: str, value: str | None) -> None:
    assert read("choice", text) == value


def test_regex() -> None:
    assert read(r"regex:^Label: (\w+)", "Label: spam") == "spam"
    assert read(r"regex:\d{3}", "call 112") == "112"
    assert read(r"regex:\d{3}", "call me") is None
    assert read(r"regex:a(b)?", "a") is None


def test_json_schema(tmp_path: Path) -> None:
    schema = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
    (tmp_path / "s.json").write_text(json.dumps(schema))
    name = f"json-schema:{tmp_path / 's.json'}"
    assert read(name, '{"name": "fig"}') == {"name": "fig"}
    assert read(name, '{"name": 3}') is None
    assert read(name, "fig") is None
    (tmp_path / "s.json").write_text('{"type": "null"}')
    assert read(name, "null") == (None,)


def test_more_letters() -> None:
    assert read("choice:A-J", "The answer is (J).") == "J"
    assert read("choice:A-J", "I think so") is None
    assert read("choice", "The answer is (J).") is None


def test_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read("python:json.loads", "[1]") == [1]
    (tmp_path / "own_parser_f7.py").write_text("def last(text):\n    return text.split()[-1]\n")
    assert read(f"python:{tmp_path / 'own_parser_f7.py'}:last", "a b") == "b"
    monkeypatch.chdir(tmp_path)
    assert read("python:own_parser_f7.last", "a b") == "b"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("def parse(:", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError"),
        ("def other(text): ...", "no attribute 'parse'"),
        ("def parse(text, gold): ...", "must take one argument"),
        ("parse = 3", "is no function"),
    ],
)
def test_a_python_file_that_is_no_parser(body: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(body)
    with pytest.raises(SpecError, match=told):
        make_parser(f"python:{tmp_path / 'own.py'}:parse")


def test_a_reading_ends() -> None:
    """Also where a pattern never would; and an alarm that was set before still rings."""
    rung: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(TimeoutError):
            parse_answer_behind_reasoning(make_parser(r"regex:(\d+)*$"), "1" * 60 + "a", 0.2)
        until = time.monotonic() + 10
        while not rung and time.monotonic() < until:
            pass
    finally:
        signal.signal(signal.SIGALRM, before)
    assert rung == [1]


def test_a_long_fence_is_read_fast() -> None:
    assert read("json", "```" + "\n" * 50_000) is None


def test_same() -> None:
    assert are_readings_equal_and_not_none({"a": 1}, {"a": 1})
    assert not are_readings_equal_and_not_none(None, None)
    assert not are_readings_equal_and_not_none(float("nan"), float("nan"))
    assert not are_readings_equal_and_not_none(np.ones(2), np.ones(2))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("jsn", "expected one of json, number, choice"),
        ("regex:", "expected one of"),
        ("regex:(", "regex:(: no pattern"),
        ("python:loads", "expected python:module.function"),
        ("python:json.lods", "has no attribute 'lods'"),
        ("python:jason.loads", "No module named 'jason'"),
        ("python:json.__name__", "is no function"),
        ("json-schema:nowhere.json", "No such file"),
        ("json-schema:bad.json", "no JSON schema"),
        ("json-schema:wrong.json", "no JSON schema"),
    ],
)
def test_errors(name: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.json").write_text("{")
    Path("wrong.json").write_text('{"type": "thing"}')
    with pytest.raises(SpecError) as error:
        make_parser(name)
    assert told in str(error.value)
    assert name in str(error.value)
