"""Columns: what truetune calls them, what files call them, and which of a row's columns are used."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any

from truetune.errors import DataError, SpecError, name_list
from truetune.spec.run import Format

Row = dict[str, Any]

ALIASES = {
    "messages": ("messages", "dialogue", "dialog"),
    "conversations": ("conversations", "conversation"),
    "instruction": ("instruction", "question", "query", "prompt"),
    "input": ("input",),
    "output": ("output", "response", "answer", "completion"),
    "history": ("history",),
    "prompt": ("prompt",),
    "completion": ("completion",),
    "chosen": ("chosen", "chosen_messages"),
    "rejected": ("rejected", "rejected_messages"),
    "label": ("label", "kto_tag"),
    "text": ("text",),
    "system": ("system", "system_prompt"),
    "tools": ("tools",),
    "documents": ("documents",),
    "chat_template_kwargs": ("chat_template_kwargs",),
}
"""What truetune calls a column, and what files call it."""
NAMES = frozenset(alias for aliases in ALIASES.values() for alias in aliases)
_MAP_ALIASES = {"answer": "output", "response": "output", "question": "instruction", "query": "instruction"}
_OF_PAIRS = {"output": "completion", "instruction": "prompt"}
"""What an alias in a map means where the format is said to be prompt-completion."""


def column(row: Row, name: str) -> tuple[str, Any]:
    """What the row calls a column, and what stands there; None where nothing does."""
    for alias in ALIASES[name]:
        value = row.get(alias)
        if value is not None:
            return alias, value
    return name, None


def holds(row: Row, name: str) -> bool:
    """Has the row this column, and something in it?"""
    return column(row, name)[1] is not None


def called(row: Row, name: str) -> str | None:
    """What the row calls a column, be it empty; None where there is none."""
    return next((alias for alias in ALIASES[name] if alias in row), None)


def renamer(columns: Mapping[str, str], format: Format | None) -> Callable[[Row], Row]:
    """Gives rows truetune's names. A column that must make room for a mapped one is kept beside it, as unused.

    Raises SpecError for a name that truetune does not know.
    """
    names: dict[str, str] = {}
    for ours, theirs in columns.items():
        name = _MAP_ALIASES.get(ours, ours)
        if format == "prompt-completion" and ours in _MAP_ALIASES:
            name = _OF_PAIRS[name]
        if name not in ALIASES:
            near = difflib.get_close_matches(ours, [*ALIASES, *_MAP_ALIASES], n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(ALIASES)}"
            raise SpecError(f"--map {ours}={theirs}: {ours} is no column that truetune knows{hint}")
        names[theirs] = name
    if len(set(names.values())) < len(columns):
        raise SpecError(
            f"--map names a column twice: {', '.join(f'{ours}={theirs}' for ours, theirs in columns.items())}"
        )
    taken = {alias for name in names.values() for alias in ALIASES[name]}
    along = _crossed if names.get("chosen") == "rejected" and names.get("rejected") == "chosen" else str
    return lambda row: {
        names.get(key) or (f"{key} (not mapped)" if key in taken else along(key)): value for key, value in row.items()
    }


def _crossed(key: str) -> str:
    """The name of a column beside two sides that are exchanged: `score_chosen` goes with its side."""
    if "margin" in key.lower():
        return f"{key} (exchanged)"
    return re.sub("chosen|rejected", lambda found: "rejected" if found[0] == "chosen" else "chosen", key)


def missing(row: Row, columns: Mapping[str, str], where: str) -> None:
    """Raise DataError where the map speaks of a column that the row does not have."""
    for ours, theirs in columns.items():
        if theirs not in row:
            near = difflib.get_close_matches(theirs, list(row), n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; the row has {name_list(row)}"
            raise DataError(f"{where}: --map {ours}={theirs}: there is no column {theirs}{hint}")
