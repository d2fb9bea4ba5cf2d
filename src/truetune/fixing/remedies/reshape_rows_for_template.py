"""Changes the form of rows (not their content) until the chat template takes them.

Which form a template takes is not read from its source: the smallest change with which it takes the row is found by
trying, one change alone first, then two together, and so on.
"""

from __future__ import annotations

import json
import string
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from itertools import combinations
from typing import Any

from truetune.data.column_name_aliases import COLUMN_ALIASES
from truetune.fixing.base_of_row_remedies import Attempt, Remedy, RemedyContext, RowView, Stage
from truetune.fixing.judge_rows_before_and_after_edits import JudgedRows
from truetune.fixing.row_edits import Edit, PutValue, ValuePath
from truetune.fixing.row_messages_with_paths import Turn, parse_json_list_or_object
from truetune.parsing.input_limits import ROW
from truetune.parsing.parse_json_within_limits import parse_json

ID_LENGTH = 9
"""Mistral's templates take ids of nine letters and digits, and no others."""
ALPHANUMERIC = string.ascii_letters + string.digits
FormChange = Callable[[RowView], list[Edit]]


def write_missing_content(row: RowView) -> list[Edit]:
    """Edits that write an empty text as the content of turns that call tools and have `content:
    null`, or none.
    """
    return [
        PutValue((*turn.path, "content"), "")
        for turn in row.turns
        if turn.role_key == "role" and turn.message.get("content") is None
    ]


def join_text_parts(row: RowView) -> list[Edit]:
    """Edits that make one text of contents that are parts of text."""
    edits: list[Edit] = []
    for turn in row.turns:
        for key in ("content", "value"):
            parts = turn.message.get(key)
            if isinstance(parts, list) and is_text_parts(parts):
                text = "".join(part["text"] for part in parts)
                edits.append(PutValue((*turn.path, key), text))
    return edits


def edits_arguments_to_text(row: RowView) -> list[Edit]:
    """Edits that make JSON text of arguments that are objects."""
    return [
        PutValue((*path, "arguments"), _json_on_one_line(row.json_text_at((*path, "arguments"))))
        for turn in row.turns
        for path, call in turn.tool_calls
        if isinstance(call.get("arguments"), dict | list)
    ]


def edits_arguments_to_objects(row: RowView) -> list[Edit]:
    """Edits that make objects of arguments that are JSON text."""
    return [edit for turn in row.turns for edit in edits_arguments_of_turn_to_objects(turn)]


def edits_shorten_call_ids(row: RowView) -> list[Edit]:
    """Edits that make nine letters and digits of the ids of calls and of their results; results
    without one get that of their call.
    """
    edits: list[Edit] = []
    # The ids of calls that no result has answered yet, in order.
    waiting: list[str] = []
    for turn in row.turns:
        for path, old, new in _paths_and_old_and_new_ids_of_calls(turn):
            waiting.append(new)
            if new != old:
                edits.append(PutValue((*path, "id"), new))
        if turn.role == "tool":
            old = turn.message.get("tool_call_id")
            result = _id_of_result(old, waiting)
            if result in waiting:
                waiting.remove(result)
            if result is not None and result != old:
                edits.append(PutValue((*turn.path, "tool_call_id"), result))
    return edits


def _paths_and_old_and_new_ids_of_calls(turn: Turn) -> Iterator[tuple[ValuePath, Any, str]]:
    """(path of the call, its id, the id that the template takes) of each call of a turn."""
    for index, (path, call) in enumerate(turn.tool_calls if "tool_calls" in turn.message else ()):
        # The id stands beside `function`, not inside of it.
        place = path[:-1] if path[-1] == "function" else path
        old = _call_id_at(turn, index)
        # A call without an id gets one of its place and contents: the same row gives the same ids.
        source = old if isinstance(old, str) else f"{place}{json.dumps(call, sort_keys=True)}"
        yield place, old, _call_id_of_nine_characters(source)


def _id_of_result(old: Any, waiting: Sequence[str]) -> str | None:
    """The id of a result: its own, or that of the first call without a result; None where there is neither."""
    if isinstance(old, str):
        return _call_id_of_nine_characters(old)
    return waiting[0] if waiting else None


def edits_wrap_tools_as_functions(row: RowView) -> list[Edit]:
    """Edits that put OpenAI's object around tools that are bare descriptions of functions."""
    edits: list[Edit] = []
    for column in COLUMN_ALIASES["tools"]:
        tools = parse_json_list_or_object(row.value.get(column))
        for index, tool in enumerate(tools if isinstance(tools, list) else ()):
            if isinstance(tool, dict) and "name" in tool and "function" not in tool:
                path = (column, index)
                spelled = f'{{"type": "function", "function": {row.json_text_at(path)}}}'
                edits.append(PutValue(path, {"type": "function", "function": tool}, spelled))
    return edits


def edits_developer_to_system(row: RowView) -> list[Edit]:
    """Edits that rename the role developer to system, which is its older name."""
    return [
        PutValue((*turn.path, "role"), "system")
        for turn in row.turns
        if turn.message.get("role") == "developer"
    ]


# In this order two changes of one size are tried: those first that touch less of a row.
FORM_CHANGES: tuple[FormChange, ...] = (
    write_missing_content,
    join_text_parts,
    edits_arguments_to_text,
    edits_arguments_to_objects,
    edits_developer_to_system,
    edits_shorten_call_ids,
    edits_wrap_tools_as_functions,
)


class ReshapeForTemplate(Remedy):
    """Makes the smallest change of form with which the template takes the row."""

    rule = "template-rejects-rows"
    what = "write rows in the structure that the template accepts"
    safe = True
    stage = Stage.TEMPLATE

    def __init__(self, context: RemedyContext) -> None:
        super().__init__(context)
        self._order: list[tuple[FormChange, ...]] = [
            changes
            for size in range(1, len(FORM_CHANGES) + 1)
            for changes in combinations(FORM_CHANGES, size)
            if not _do_changes_undo_each_other(changes)
        ]

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        """Attempts with the changes that a refused row has a use for: one, then two of them, and so
        on.
        """
        if row.rejected is None:
            return
        all_edits = {change: change(row) for change in FORM_CHANGES}
        edits = {change: row_edits for change, row_edits in all_edits.items() if row_edits}
        for changes in self._order:
            if all(change in edits for change in changes):
                yield [edit for change in changes for edit in edits[change]]

    def count_faults(self, judged_rows: JudgedRows) -> int:
        """How many rows the template refuses."""
        return len(judged_rows.template_refusal_reason_by_row)


def _do_changes_undo_each_other(changes: tuple[FormChange, ...]) -> bool:
    """Would one of these changes of form undo another?"""
    return edits_arguments_to_text in changes and edits_arguments_to_objects in changes


def is_text_parts(value: list[Any]) -> bool:
    """Is a content a list of parts of text, and nothing else in it?"""
    return bool(value) and all(
        isinstance(part, dict)
        and part.get("type", "text") == "text"
        and isinstance(part.get("text"), str)
        and not part.keys() - {"type", "text"}
        for part in value
    )


def edits_arguments_of_turn_to_objects(turn: Turn) -> Iterator[PutValue]:
    """Edits that make objects of the arguments of a turn which are JSON text, spelled as they are
    there.
    """
    for path, call in turn.tool_calls:
        text = json_of_object_in_string(call.get("arguments"))
        if text is not None:
            value = parse_json(text, ROW, surrogates="keep", exact_integers=True)
            yield PutValue((*path, "arguments"), value, text)


def json_of_object_in_string(value: Any) -> str | None:
    """The JSON of an object that is kept in a string, maybe in a string of a string; None where it
    is none.
    """
    # Chosen, not measured: a script that saves a row several times encodes its arguments once more
    # each time.
    for _ in range(4):
        if not isinstance(value, str):
            return None
        try:
            parsed = parse_json(value, ROW, surrogates="keep", exact_integers=True)
        except ValueError:
            return None
        if isinstance(parsed, dict):
            return value.strip()
        value = parsed
    return None


def _json_on_one_line(text: str) -> str:
    """JSON on one line: a template writes it between other text. What is on one already stays as it
    is spelled.
    """
    if "\n" not in text:
        return text
    value = parse_json(text, ROW, surrogates="keep", exact_integers=True)
    return json.dumps(value, ensure_ascii=False)


def _call_id_at(turn: Turn, index: int) -> Any:
    """The id of a call of a turn; None where it has none."""
    calls = parse_json_list_or_object(turn.message.get("tool_calls"))
    call = (
        parse_json_list_or_object(calls[index])
        if isinstance(calls, list) and index < len(calls)
        else None
    )
    return call.get("id") if isinstance(call, dict) else None


def _call_id_of_nine_characters(id: str) -> str:
    """A call id of nine letters and digits: the id itself where it is short enough, else one made
    of it; the same id gives the same.
    """
    if len(id) == ID_LENGTH and id.isascii() and id.isalnum():
        return id
    digest = blake2b(id.encode("utf-8", "surrogatepass"), digest_size=ID_LENGTH).digest()
    return "".join(ALPHANUMERIC[byte % len(ALPHANUMERIC)] for byte in digest)
