"""An example of a rule's page, as the files that people write: the records that all readers of
examples make.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import yaml

LANGUAGE_BY_SUFFIX: Mapping[str, str] = {
    ".py": "python",
    ".sh": "bash",
    ".sbatch": "bash",
    ".slurm": "bash",
    ".env": "bash",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".json": "json",
    ".jsonl": "json",
    ".ipynb": "json",
    ".toml": "toml",
    ".jinja": "jinja",
}
LANGUAGE_BY_NAME: Mapping[str, str] = {"Dockerfile": "docker", "Makefile": "make"}
YAML_COLUMNS = 88
SHOWN_ROWS = 4
"""Of a long file of rows: they are all of one form"""


@dataclass(frozen=True, slots=True)
class ExampleFile:
    """One file of an example, whole."""

    name: str
    """Its path, as findings name it"""
    text: str
    about: str = ""
    """What kind of file it is, where its name does not say it"""
    is_measured: bool = False
    """Nobody writes it: it lists what truetune reads or measures, one fact a line"""
    is_edit: bool = False
    """The text is what differs from a published file"""
    records_to_show: int = 0
    """So many lines stand for all of a long file, for they are rows or records; 0: it is shown
    whole
    """

    @property
    def language(self) -> str:
        """How its text is highlighted."""
        if self.is_measured:
            return "text"
        path = PurePosixPath(self.name)
        named = LANGUAGE_BY_NAME.get(path.name.partition(".")[0])
        return named or LANGUAGE_BY_SUFFIX.get(path.suffix, "text")


@dataclass(frozen=True, slots=True)
class Example:
    """An example: its files, and sentences on what can't be shown as a file."""

    files: tuple[ExampleFile, ...]
    notes: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()
    """Names of published files that differ from what was published, or are missing"""


def yaml_file(name: str, settings: Mapping[str, Any], about: str = "") -> ExampleFile:
    """A settings file, with a setting a line."""
    text = yaml.safe_dump(dict(settings), sort_keys=False, allow_unicode=True, width=YAML_COLUMNS)
    return ExampleFile(name, text, about)


def json_file(name: str, value: Any) -> ExampleFile:
    """A JSON file, with a key a line."""
    return ExampleFile(name, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def jsonl_file(name: str, rows: list[Any]) -> ExampleFile:
    """A file with a row a line."""
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    return ExampleFile(name, text, records_to_show=SHOWN_ROWS)


def file_of_measured_facts(name: str, facts: Any) -> ExampleFile:
    """What was read or measured, one fact a line."""
    return ExampleFile(name, "".join(f"{line}\n" for line in fact_lines(facts)), is_measured=True)


def fact_lines(facts: Any, prefix: str = "") -> list[str]:
    """The facts of a nested value, one a line: the path to each, then the value.

    Args:
        facts: a mapping, a list, or a plain value.
        prefix: the path to it.

    Returns:
        One line for each plain value, for each list of them, and for each mapping in a list.
    """
    if isinstance(facts, Mapping):
        return [
            line
            for name, value in facts.items()
            for line in fact_lines(value, f"{prefix} {_in_words(name)}".strip())
        ]
    if isinstance(facts, list) and any(isinstance(item, Mapping) for item in facts):
        return [line for item in facts for line in _item_lines(item, prefix)]
    return [f"{prefix}: {_value_in_words(facts)}" if prefix else _value_in_words(facts)]


def _item_lines(item: Any, prefix: str) -> list[str]:
    if not isinstance(item, Mapping):
        return fact_lines(item, prefix)
    values = ", ".join(
        f"{_in_words(name)} {_value_in_words(value)}" for name, value in item.items()
    )
    return [f"{prefix}: {values}" if prefix else values]


def _in_words(name: Any) -> str:
    return str(name).replace("_", " ")


def _value_in_words(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(_value_in_words, value)) if value else "none"
    if isinstance(value, Mapping):
        return ", ".join(
            f"{_in_words(name)} {_value_in_words(item)}" for name, item in value.items()
        )
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False) if _needs_quotes(value) else value
    return "unknown" if value is None else str(value)


def _needs_quotes(text: str) -> bool:
    return not text.strip() or "\n" in text or text != text.strip()
