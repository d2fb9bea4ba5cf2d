"""The JSON schema: what editors accept is what the reader accepts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from truetune.errors import SpecError
from truetune.settings import settings_schema
from truetune.settings.read_truetune_settings import validate_settings

PAGE = Path(__file__).parents[2] / "docs" / "schema" / "truetune.json"
"""Written by `truetune init --schema docs/schema/truetune.json`"""
SCHEMA = settings_schema.build_settings_schema()


def test_the_published_schema_is_that_of_the_settings() -> None:
    assert PAGE.read_text(encoding="utf-8") == settings_schema.settings_schema_text()
    Draft202012Validator.check_schema(SCHEMA)


def test_every_setting_says_what_it_means() -> None:
    silent = [name for name, found in settings(SCHEMA) if not found.get("description")]
    assert silent == []


def settings(found: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for part, holder in (("", found), *found["$defs"].items()):
        for name, setting in holder["properties"].items():
            yield f"{part}.{name}", setting


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "data: a.jsonl",
        "data: [a.jsonl, b.jsonl]\neval_data: []",
        "learn: last",
        "learn: {what: all, reasoning: false}",
        (
            "training: {method: dpo, learning_rate: 0.001, lora: {target_modules: all-linear},"
            " load_in: 4}"
        ),
        "training: {lora: {target_modules: [q_proj]}, resume_from_checkpoint: true}",
        "watch: {stop_on: error, parser: json}\nrehearsal: false",
        "trainer: {anything: {deep: 1}}",
        "encode: {packing: best-fit, sources: true}\nmax_length: 1",
        "template_kwargs: {enable_thinking: false}\nmap: {answer: output}",
    ],
)
def test_what_is_right(text: str) -> None:
    value = yaml.safe_load(text)
    validate_settings(value, "test")
    Draft202012Validator(SCHEMA).validate(value)


@pytest.mark.parametrize(
    "text",
    [
        "tokeniser: a",
        "data: 5",
        "learn: everything",
        "learn: {wat: all}",
        "max_length: 0",
        "training: {method: sgd}",
        "training: {load_in: 5}",
        "training: {lora: {r: 0}}",
        "training: {lora: {rank: 8}}",
        "watch: {budget: 2}",
        "encode: {packing: wrapped}",
        "trainer: [a]",
        "rehearsal: perhaps",
    ],
)
def test_what_is_wrong(text: str) -> None:
    value = yaml.safe_load(text)
    with pytest.raises(SpecError):
        validate_settings(value, "test")
    assert not Draft202012Validator(SCHEMA).is_valid(value)
