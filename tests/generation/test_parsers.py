"""Parsers read what they say, and a name that is none is told."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from truetune.errors import SpecError
from truetune.generation.parsers import parser_of


def read(name: str, text: str) -> Any:
    try:
        return parser_of(name)(text)
    except ValueError:
        return None


@pytest.mark.parametrize(("text", "value"), [
    ('{"a": 1}', {"a": 1}), ('Here it is:\n```json\n{"a": 1}\n```\nDone.', {"a": 1}), ("[]", []), ("false", False),
    ("null", (None,)), ("```\n[1]\n```", [1]), ('{"a": 1', None), ("Here: {}", None), ("", None), ("NaN", None),
    ("```json\n1\n```\n```json\n2\n```", None), ('{"a": 1} and more', None),
])  # fmt: skip
def test_json(text: str, value: Any) -> None:
    assert read("json", text) == value


@pytest.mark.parametrize(("text", "value"), [
    ("42", "42"), ("3 + 4 = 7.", "7"), ("It costs $1,234.50", "1234.50"), ("-3", "-3"), ("−3", "-3"), ("#### 18", "18"),
    ("about 2e3", "2e3"), ("10,000,000 people", "10000000"), ("1, 2, 3", "3"), ("v2", None), ("none", None), ("", None),
    ("It is 5-3", "3"), ("90%", "90"), (".5", "0.5"), ("v1.2", None), ("(1,2,3)", "3"), ("1234,5678", "5678"),
    ("\\boxed{12}", "12"),
])  # fmt: skip
def test_number(text: str, value: str | None) -> None:
    assert read("number", text) == (None if value is None else Decimal(value))


@pytest.mark.parametrize(("text", "value"), [
    ("B", "B"), ("(C)", "C"), ("B. Paris", "B"), ("**D**", "D"), ("The answer is B.", "B"), ("Answer: (A)", "A"),
    ("I think the correct answer is (C) because A is wrong.", "C"), ("答案是B", "B"), ("So \\boxed{E}", "E"),
    ("First, answer A looks right. But the answer is D.", "D"), ("Option C", "C"), ("a", None), ("", None), ("F", None),
    ("A lighthouse stands here.", None), ("The answer is a lighthouse", None), ("Because it is far.", None),
    ("A) Paris", "A"), ("Answer: B\nExplanation: A is far.", "B"), ("选B", "B"),
    ("B because it is near.", "B"), ("A is right.", "A"), ("the answer is a.", None),
])  # fmt: skip
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


def test_python() -> None:
    assert read("python:json.loads", "[1]") == [1]


@pytest.mark.parametrize(("name", "told"), [
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
])  # fmt: skip
def test_errors(name: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.json").write_text("{")
    Path("wrong.json").write_text('{"type": "thing"}')
    with pytest.raises(SpecError) as error:
        parser_of(name)
    assert told in str(error.value)
    assert name in str(error.value)
