"""Finds values of messages (lists, objects, null) that a chat template prints as Python text, not
as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, Literal, NamedTuple

from truetune.data.conversation import Conversation
from truetune.encoding.batch import Example
from truetune.errors import TemplateError
from truetune.render.template import OWN_KEYS, plain_data
from truetune.render.template_probes import Probes
from truetune.render.traced_string import plain_text

Kind = Literal["object", "list", "null"]


class PythonPrintedValue(NamedTuple):
    """A value of a message that stands in a rendering as Python prints it."""

    turn: int
    kind: Kind
    text: str
    start: int
    """The first character in the rendering; -1 where the text stands in that of other trainers"""


class PythonValueFinder:
    """Looks for such values in examples of one template."""

    def __init__(self, probes: Probes, template_kwargs: Mapping[str, Any]) -> None:
        self.probes = probes
        self.template_kwargs = template_kwargs
        self.examined_answers = 0
        """Values that were compared with a rendering"""
        self._prints_none: dict[str, bool] = {}

    def first_printed_python_value(self, example: Example) -> PythonPrintedValue | None:
        """The first such value of an example; None where there is none."""
        return next(
            chain(self._printed_containers(example), self._printed_nulls(example.row)), None
        )

    def _printed_containers(self, example: Example) -> Iterator[PythonPrintedValue]:
        """The lists and objects of an example that are printed as Python text; of nested ones the
        outermost.
        """
        text = example.rendering.text
        malformed = [
            id(problem.message) for problem in example.row.problems
        ]  # `malformed-rows` names these contents
        for turn, message in enumerate(example.row.messages):
            for value in (
                _containers_written_differently(message) if id(message) not in malformed else ()
            ):
                self.examined_answers += 1
                printed = repr(value)
                # A row that talks about Python shows such a text itself.
                if printed in text and not _stands_in_row_text(example.row.messages, printed):
                    kind: Kind = "list" if isinstance(value, list) else "object"
                    yield PythonPrintedValue(turn, kind, printed, text.index(printed))

    def _printed_nulls(self, row: Conversation) -> Iterator[PythonPrintedValue]:
        """Null contents that the template prints as `None`.

        truetune leaves them out; trainers that pass them on have them printed.
        """
        for turn, message in enumerate(row.messages):
            if (
                "content" in message
                and message["content"] is None
                and self._is_none_printed(row, turn)
            ):
                yield PythonPrintedValue(turn, "null", "None", -1)

    def _is_none_printed(self, row: Conversation, turn: int) -> bool:
        """Does the template write `None` for the null of a turn? Asked once for turns of one role with one set of keys.

        Both renderings differ in this content alone, so that `None` which stands in other texts is in both.
        """
        self.examined_answers += 1
        message = row.messages[turn]
        # Templates decide by roles and by which keys are there: those of one shape are rendered alike.
        shape = json.dumps([bool(row.tools), message.get("role"), sorted(message)])
        if shape not in self._prints_none:
            handed_on, empty = (
                self._render_with_content(row, turn, None),
                self._render_with_content(row, turn, ""),
            )
            both = handed_on is not None and empty is not None
            # Counted and not looked for: the word None may stand in other messages of the row.
            self._prints_none[shape] = both and str(handed_on).count("None") > str(empty).count(
                "None"
            )
        return self._prints_none[shape]

    def _render_with_content(self, row: Conversation, turn: int, content: str | None) -> str | None:
        """The rendering with this content in a turn, as transformers hands it to the template; None where it raises."""
        template = self.probes.template_for(has_tools=bool(row.tools))
        if template is None:
            return None
        messages = [
            {key: value for key, value in message.items() if key not in OWN_KEYS}
            for message in row.messages
        ]
        messages[turn] = {**messages[turn], "content": content}
        variables = {**self.template_kwargs, **row.template_kwargs}
        try:
            text = template.render_with_null_keys_kept(
                messages, tools=row.tools, documents=row.documents, **variables
            )
        except TemplateError:
            return None
        return plain_text(text)


def _containers_written_differently(value: Any) -> Iterator[Any]:
    """Lists and objects inside of a message that JSON and Python write differently, the outer before the inner."""
    items = value.values() if isinstance(value, dict) else value
    for item in items:
        if not isinstance(item, dict | list) or not item:
            continue
        # Numbers alone are written alike by both: nothing could be told from them.
        plain = plain_data(item)
        if repr(plain) != json.dumps(plain, ensure_ascii=False, default=str):
            yield plain
        yield from _containers_written_differently(item)


def _stands_in_row_text(value: Any, printed: str) -> bool:
    """Does a text of the row itself hold this printed value?"""
    if isinstance(value, str):
        return printed in value
    if isinstance(value, dict):
        return any(_stands_in_row_text(item, printed) for item in value.values())
    return isinstance(value, list) and any(_stands_in_row_text(item, printed) for item in value)
