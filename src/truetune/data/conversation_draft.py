"""ConversationDraft: a row while it becomes a Conversation, which notes the columns that were read
and those left unused.

A format's reader takes the columns that it knows; the draft notes each, and all that was not taken and holds something
is `unused`. So no column is dropped in silence, and no reader has to list what it does not read.
"""

from __future__ import annotations

from typing import Any

from truetune.data.bring_messages_into_openai_form import is_messages
from truetune.data.column_name_aliases import Row, find_filled_column
from truetune.data.conversation import Conversation, Message, Origin, Problem
from truetune.data.parse_json_columns import parse_json_text_or_keep
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
        """The value of a column, noted as read; None if it has none."""
        alias, value = find_filled_column(self.row, name)
        if value is not None:
            self.taken.add(alias)
        return value

    def text(self, name: str) -> str | None:
        """The text in a column, noted as read; None if there is none."""
        value = self.take(name)
        if value is None or isinstance(value, str):
            return value
        type_name = type(value).__name__
        self.problems.append(
            Problem("not-a-string", f"the column {name} holds {type_name}, not text")
        )
        return str(value)

    def messages_or_text_of_column(self, name: str) -> Any:
        """A column of messages as a list, even if they are JSON text or a single one; a column of
        text as it is.
        """
        value = self.take(name)
        # A single message that stands alone, without a list around it.
        if is_messages([value]):
            return [value]
        if isinstance(value, str):
            odd: list[Problem] = []
            parsed = parse_json_text_or_keep(value, odd)
            parsed = [parsed] if isinstance(parsed, dict) else parsed
            if is_messages(parsed):
                # Only once it is sure that the text is messages: a plain prompt that looks like
                # JSON is no problem.
                self.problems += odd
                return parsed
        return value if isinstance(value, list) else self.text(name)

    def list_or_object_of_column(self, name: str, kind: type) -> Any:
        """A column that holds a list or an object, maybe as JSON text; None if it is empty."""
        value = parse_json_text_or_keep(self.take(name), self.problems)
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

    def make_conversation(
        self,
        messages: list[Message],
        prompt_messages: int | None = None,
        rejected: list[Message] | None = None,
    ) -> Conversation:
        """The conversation of these messages, with the system prompt, tools and other columns of
        the row.
        """
        row = Conversation(self.origin, self.format, messages, prompt_messages, rejected=rejected)
        # Nearly all rows of chat files have nothing beside their turns, and this runs for every
        # row.
        if len(self.row) > len(self.taken):
            self._add_system_tools_and_group(row)
        row.problems = tuple(self.problems)
        return row

    def _add_system_tools_and_group(self, row: Conversation) -> None:
        """Add to a chat the columns that belong to it: system prompt, tools, documents, template
        arguments, group, unused columns.
        """
        # A system turn of the chat itself wins; the column is not taken then, and shows as unused.
        if row.messages and row.messages[0]["role"] != "system":
            system = self.text("system")
            if system:
                row.messages.insert(0, {"role": "system", "content": system})
                if row.prompt_messages is not None:
                    row.prompt_messages += 1
        row.tools = self.list_or_object_of_column("tools", list)
        row.documents = self.list_or_object_of_column("documents", list)
        row.template_kwargs = self.list_or_object_of_column("chat_template_kwargs", dict) or {}
        row.group, row.unused = self.group_id_of_row(), self.unused_columns()

    def plain(self, **texts: Any) -> Conversation:
        """The conversation of a row of plain texts, without turns."""
        return Conversation(
            self.origin,
            self.format,
            **texts,
            group=self.group_id_of_row(),
            unused=self.unused_columns(),
            problems=tuple(self.problems),
        )

    def group_id_of_row(self) -> str | None:
        """The id of the group that the row says it belongs to; None if it says none."""
        names = (
            name
            for name in GROUP_COLUMNS
            if isinstance(self.row.get(name), str) and name not in self.taken
        )
        # Cut, for a column called `source` may hold a whole document.
        return next((self.row[name][:80] for name in names), None)

    def unused_columns(self) -> tuple[str, ...]:
        """The columns that hold something and were not taken."""
        return tuple(
            key
            for key, value in self.row.items()
            if key not in self.taken and value not in (None, "", [], {})
        )
