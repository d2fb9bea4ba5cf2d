"""Draft: a row on its way to a Conversation.

A format's reader takes the columns that it knows; the draft notes each, and all that was not taken and holds something
is `unused`. So no column is dropped in silence, and no reader has to list what it does not read.
"""

from __future__ import annotations

from typing import Any

from truetune.data.column_names import Row, find_column
from truetune.data.conversation import Conversation, Message, Origin, Problem
from truetune.data.parse_json_columns import parse_json_text
from truetune.data.parse_messages import is_messages
from truetune.settings.run_spec import FormatName

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


class ConversationDraft:
    """A row that is becoming a Conversation: notes which columns are taken and what is odd."""

    __slots__ = ("format", "origin", "problems", "row", "taken")

    def __init__(self, row: Row, origin: Origin, format: FormatName) -> None:
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
        # A single message that stands alone, without a list around it.
        if is_messages([value]):
            return [value]
        if isinstance(value, str):
            odd: list[Problem] = []
            parsed = parse_json_text(value, odd)
            parsed = [parsed] if isinstance(parsed, dict) else parsed
            if is_messages(parsed):
                # Only once it is sure that the text is messages: a plain prompt that looks like
                # JSON is no problem.
                self.problems += odd
                return parsed
        return value if isinstance(value, list) else self.text(name)

    def structure(self, name: str, kind: type) -> Any:
        """A column that holds a list or an object, maybe as JSON; None where it is empty."""
        value = parse_json_text(self.take(name), self.problems)
        # Columnar files fill an absent column with null, an empty text or an empty list, by the
        # library that wrote them.
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
        """The conversation of these messages, with what stands beside them in the row."""
        row = Conversation(self.origin, self.format, messages, prompt_messages, rejected=rejected)
        # Nearly all rows of chat files have nothing beside their turns, and this runs for every
        # row.
        if len(self.row) > len(self.taken):
            self._add_surroundings(row)
        row.problems = tuple(self.problems)
        return row

    def _add_surroundings(self, row: Conversation) -> None:
        """What a chat has beside its turns."""
        # A system turn of the chat itself wins; the column is not taken then, and shows as unused.
        if row.messages and row.messages[0]["role"] != "system":
            system = self.text("system")
            if system:
                row.messages.insert(0, {"role": "system", "content": system})
                if row.prompt_messages is not None:
                    row.prompt_messages += 1
        row.tools = self.structure("tools", list)
        row.documents = self.structure("documents", list)
        row.template_kwargs = self.structure("chat_template_kwargs", dict) or {}
        row.group, row.unused = self.group(), self.unused()

    def plain(self, **texts: Any) -> Conversation:
        """The conversation of a row of plain texts."""
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
        # Cut, for a column called `source` may hold a whole document.
        return next((self.row[name][:80] for name in names), None)

    def unused(self) -> tuple[str, ...]:
        """The columns that hold something and were not taken."""
        return tuple(
            key
            for key, value in self.row.items()
            if key not in self.taken and value not in (None, "", [], {})
        )
