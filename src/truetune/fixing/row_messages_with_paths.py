"""Finds the messages of a row with their paths in its columns, which remedies edit.

A remedy edits the row as its file holds it, and not the conversation that the reader made: so each message comes with
its path, through lists and through JSON that stands as text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from truetune.data.bring_messages_into_openai_form import FUNCTION_CALL
from truetune.data.column_name_aliases import COLUMN_ALIASES
from truetune.fixing.row_edits import ValuePath
from truetune.parsing.input_limits import ROW
from truetune.parsing.parse_json_within_limits import parse_json

MESSAGE_COLUMNS = (
    "messages",
    "conversations",
    "prompt",
    "completion",
    "chosen",
    "rejected",
    "instruction",
)
"""truetune's names of columns that may hold messages"""
# The aliases that the reader takes, and no others: what it does not read, no remedy may touch.
_NAMES = {alias: ours for ours in MESSAGE_COLUMNS for alias in COLUMN_ALIASES[ours]}
ROLE_KEYS = ("role", "from")
TEXT_KEYS = ("content", "value")


@dataclass(frozen=True, slots=True)
class Turn:
    """A message with its path in the row."""

    path: ValuePath
    message: dict[str, Any]

    @property
    def role_key(self) -> str | None:
        """The key under which the message holds its role; None where it has none."""
        return next((key for key in ROLE_KEYS if key in self.message), None)

    @property
    def role(self) -> Any:
        """The value of the message's role; None where it has none."""
        return self.message.get(self.role_key) if self.role_key else None

    @property
    def tool_calls(self) -> list[tuple[ValuePath, dict[str, Any]]]:
        """(path, object with `name` and `arguments`) of each tool call."""
        path: ValuePath = (*self.path, "tool_calls")
        if self.role == FUNCTION_CALL:
            return self._calls_in_function_call()
        value = parse_json_list_or_object(self.message.get("tool_calls"))
        calls = []
        for index, call in enumerate(value if isinstance(value, list) else ()):
            call = parse_json_list_or_object(call)
            if isinstance(call, dict):
                function = parse_json_list_or_object(call.get("function"))
                # OpenAI's form has a `function` around name and arguments, older ones have not.
                inner = isinstance(function, dict)
                calls.append(
                    (
                        (*path, index, "function") if inner else (*path, index),
                        function if inner else call,
                    )
                )
        return calls

    def _calls_in_function_call(self) -> list[tuple[ValuePath, dict[str, Any]]]:
        """(path, call) of calls in ShareGPT's form: the turn says nothing but the call, or a list
        of them, as JSON.
        """
        key = next((key for key in reversed(TEXT_KEYS) if key in self.message), "value")
        value = parse_json_list_or_object(self.message.get(key))
        if isinstance(value, dict):
            return [((*self.path, key), value)]
        calls = enumerate(value) if isinstance(value, list) else ()
        return [((*self.path, key, index), call) for index, call in calls if isinstance(call, dict)]


def parse_json_list_or_object(value: Any) -> Any:
    """The list or object that a text holds as JSON, as the reader takes it; any other value as it
    is.
    """
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            return parse_json(value, ROW, surrogates="keep", exact_integers=True)
        except ValueError:
            return value
    return value


def find_turns(
    row: Mapping[str, Any], names: Mapping[str, str], unused: tuple[str, ...]
) -> Iterator[Turn]:
    """The messages of a row, each with its path.

    Args:
        row: as its file holds it.
        names: what the file calls a column -> truetune's name, where the settings map columns.
        unused: columns that reach neither prompt nor answer; nothing in them is touched.
    """
    for column, value in row.items():
        # The user's map wins over the aliases.
        if column in unused or names.get(column, _NAMES.get(column)) not in MESSAGE_COLUMNS:
            continue
        parsed = parse_json_list_or_object(value)
        if isinstance(parsed, dict):
            yield Turn((column,), parsed)
        for index, message in enumerate(parsed if isinstance(parsed, list) else ()):
            if isinstance(message, dict):
                yield Turn((column, index), message)
