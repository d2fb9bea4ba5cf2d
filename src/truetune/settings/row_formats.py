"""The table of row formats: which columns of a file make a conversation, and which function reads
them.

The table here is the only place where a format is named. A format of another package is an entry point of the group
`truetune.formats` whose object is a `RowFormat`. The functions are named by their module, so that settings can be read
without the code that reads rows.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from truetune.errors import UsageError
from truetune.plugins import load_plugins

NO_COLUMN = ""
"""In a map: what the trainer fills from no column, though the rows have one of that name (`input` -> nothing)"""


@dataclass(frozen=True, slots=True)
class RowFormat:
    """One way in which the columns of a row become a conversation."""

    name: str
    """As `--data-format` and `format:` in truetune.yaml call it"""
    columns: tuple[str, ...]
    """The columns that tell it, by truetune's names; empty where columns alone do not tell it"""
    read: str | Callable[[Any], Any]
    """Makes a `data.conversation.Conversation` of a `data.conversation_draft.Draft`; `module:function` where it is
    not loaded"""
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """truetune's name of a column that only this format has -> what files call it"""

    def reader(self) -> Callable[[Any], Any]:
        """The function that reads a row of the format, loaded by its name."""
        if not isinstance(self.read, str):
            return self.read
        function: Callable[[Any], Any] = pkgutil.resolve_name(self.read)
        return function


SCRIPT_SUFFIXES = (".py", ".ipynb")
"""A format that ends so is a training script: see `truetune.data.script_rows`"""
_HERE = "truetune.data.row_format_readers"
BUILT_IN = (
    # In the order in which they are looked for: rows of pairs have a prompt, and an answer under other names, too.
    RowFormat("preference", ("chosen", "rejected"), f"{_HERE}:read_preference"),
    RowFormat("messages", ("messages",), f"{_HERE}:read_messages"),
    RowFormat("sharegpt", ("conversations",), f"{_HERE}:read_sharegpt"),
    RowFormat("prompt-completion", ("prompt", "completion"), f"{_HERE}:read_prompt_completion"),
    RowFormat(
        "verl",
        ("prompt", "reward_model"),
        f"{_HERE}:read_verl",
        {name: (name,) for name in ("data_source", "ability", "extra_info")},
    ),
    RowFormat("alpaca", ("instruction", "output"), f"{_HERE}:read_alpaca"),
    RowFormat("text", ("text",), f"{_HERE}:read_text"),
    # Any of the others but the first, with a label.
    RowFormat("kto", (), f"{_HERE}:read_kto"),
)


@cache
def row_formats() -> Mapping[str, RowFormat]:
    """All formats by name, truetune's own first, in the order in which they are looked for.

    Raises:
        UsageError: a plug-in's object is no RowFormat, or has the name of another format.
    """
    formats = {format.name: format for format in BUILT_IN}
    for name, brought in load_plugins("truetune.formats").items():
        if not isinstance(brought, RowFormat):
            raise UsageError(
                f"the plug-in {name}: expected a truetune.settings.row_formats.RowFormat, found a"
                f" {type(brought).__name__}"
            )
        if brought.name in formats:
            raise UsageError(f"the plug-in {name}: the format {brought.name} already exists")
        formats[brought.name] = brought
    return formats


def format_names() -> tuple[str, ...]:
    """The names of all formats."""
    return tuple(row_formats())


def is_script_named_as_format(name: str) -> bool:
    """Is it the path of a training script, whose own code says what the rows become?"""
    return name.endswith(SCRIPT_SUFFIXES)


def require_known_format(name: str) -> str:
    """The name itself, where it is that of a known format.

    Raises:
        ValueError: no format is called so.
    """
    if name not in row_formats() and not is_script_named_as_format(name):
        names = [repr(known) for known in format_names()]
        raise ValueError(f"Input should be {', '.join(names[:-1])} or {names[-1]}")
    return name
