"""A row on its way to a Conversation."""

from __future__ import annotations

from typing import Any

from truetune.data.columns import Row, find_column
from truetune.data.conversation import Conversation, Message, Origin, Problem
from truetune.data.json_text import parse_json_text
from truetune.data.messages import is_messages
from truetune.spec.run import Format

GROUP_COLUMNS = (
    "source",
    "dataset",
    "dataset_name",
    "data_source",
    "subset",
    "origin",
    "domain",
    "category",
    "task",
)
"""Columns that say where a row is from, the most telling first"""


class Draft:
    """A row that is becoming a Conversation: notes which columns are taken and what is odd."""

    __slots__ = ("format", "origin", "problems", "row", "taken")

    def __init__(self, row: Row, origin: Origin, format: Format) -> None:
        self.row, self.origin, self.format = row, origin, format
        self.taken: set[str] = set()
        self.problems: list[Problem] = []

    def take(self, name: str) -> Any:
        """What stands in a column; None where nothing does."""
        alias, value = find_column(self.row, name)
        if value is not None:
            self.taken.add(alias)
        return value

    def text(self, name: str) -> str | None:
        """A column of text; None where nothing stands in it."""
        value = self.take(name)
        if value is None or isinstance(value, str):
            return value
        type_name = type(value).__name__
        self.problems.append(
            Problem("not-a-string", f"the column {name} holds {type_name}, not text")
        )
        return str(value)

    def turns(self, name: str) -> Any:
        """A column of messages as a list, also where they stand as JSON or alone; a column of text as it is."""
        value = self.take(name)
        if is_messages([value]):
            return [value]
        if isinstance(value, str):
            odd: list[Problem] = []
            parsed = parse_json_text(value, odd)
            parsed = [parsed] if isinstance(parsed, dict) else parsed
            if is_messages(parsed):
                self.problems += odd
                return parsed
        return value if isinstance(value, list) else self.text(name)

    def structure(self, name: str, kind: type) -> Any:
        """A column that holds a list or an object, maybe as JSON; None where it is empty."""
        value = parse_json_text(self.take(name), self.problems)
        if isinstance(value, kind) or value in (None, "", [], {}):
            return value or None
        type_name = type(value).__name__
        self.problems.append(
            Problem(
                "bad-column", f"the column {name} holds {type_name}, not a JSON {kind.__name__}"
            )
        )
        return None

    def chat(
        self,
        messages: list[Message],
        prompt_messages: int | None = None,
        rejected: list[Message] | None = None,
    ) -> Conversation:
        row = Conversation(self.origin, self.format, messages, prompt_messages, rejected=rejected)
        if len(self.row) > len(self.taken):
            self._surroundings(row)
        row.problems = tuple(self.problems)
        return row

    def _surroundings(self, row: Conversation) -> None:
        """What a chat has beside its turns."""
        if row.messages and row.messages[0]["role"] != "system" and (system := self.text("system")):
            row.messages.insert(0, {"role": "system", "content": system})
            if row.prompt_messages is not None:
                row.prompt_messages += 1
        row.tools = self.structure("tools", list)
        row.documents = self.structure("documents", list)
        row.template_kwargs = self.structure("chat_template_kwargs", dict) or {}
        row.group, row.unused = self.group(), self.unused()

    def plain(self, **texts: Any) -> Conversation:
        return Conversation(
            self.origin,
            self.format,
            **texts,
            group=self.group(),
            unused=self.unused(),
            problems=tuple(self.problems),
        )

    def group(self) -> str | None:
        """What the row says that it is one of."""
        names = (
            name
            for name in GROUP_COLUMNS
            if isinstance(self.row.get(name), str) and name not in self.taken
        )
        return next((self.row[name][:80] for name in names), None)

    def unused(self) -> tuple[str, ...]:
        return tuple(
            key
            for key, value in self.row.items()
            if key not in self.taken and value not in (None, "", [], {})
        )
