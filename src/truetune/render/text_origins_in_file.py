"""Finds where in its file each text of a rendered row stands.

Every format becomes a Conversation, whose paths (`messages[1].content`) are truetune's. For rows that are shown the
reader runs once more, over the row with an atom (`traced_string`) for each of its strings: what it makes of them says
where they stood, `output`, `conversations[1].value`, or one column behind the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from truetune.data.conversation import Conversation
from truetune.data.parse_json_columns import parse_json_text_or_keep
from truetune.render.rendering import Rendering
from truetune.render.template import path_as_text
from truetune.render.traced_string import (
    Path,
    Trace,
    Traced,
    cut_segments,
    trace_texts_except_structure_keys,
)

JOINED = "put between the columns"
"""Where the text stands that a reader joins columns with"""
READ_AS = "read as "
"""Before truetune's path, where the file's is not known"""
FIELDS = ("messages", "tools", "documents", "prompt", "completion", "text")


class TextOrigin(NamedTuple):
    """`text[start:end]` of a rendering stands in one place of the file."""

    start: int
    end: int
    path: str
    """`conversations[2].value`; empty for template text."""
    offset: int
    """Where in the field it begins, in characters; -1 where only the field is known."""
    message: int | None
    """The message of the conversation that it is part of."""


def text_origins(row: Conversation, rendering: Rendering) -> list[TextOrigin]:
    """In order, without gaps, covering the whole text.

    A string that stands in the file as JSON (`messages`, a tool call) is taken for what it holds.
    """
    fields = None
    if row.raw is not None:
        fields = dict(
            _trace_texts_in_file_by_path(
                row, {run.path for run in rendering.runs_of_text_by_origin}
            )
        )
    origins = []
    for start, end, _, path, offset in rendering.runs_of_text_by_origin:
        message = _message_index(path)
        for length, file_path, file_offset in _split_field(fields, path, offset, end - start):
            origins.append(TextOrigin(start, start + length, file_path, file_offset, message))
            start += length
    return origins


def _split_field(
    found: dict[str, Traced] | None, path: str, offset: int, length: int
) -> Iterator[tuple[int, str, int]]:
    """(length, path, offset) of the stretches of a field."""
    if found is None or path in ("", "?"):
        yield length, path, offset
        return
    text = found.get(path)
    if text is None:
        yield length, READ_AS + path, -1
    elif offset < 0:
        names = {path_as_text(segment.path) for segment in text.all_segments() if segment.path}
        yield length, names.pop() if len(names) == 1 else READ_AS + path, -1
    else:
        for size, own, place in cut_segments(text.all_segments(), offset, offset + length):
            yield size, path_as_text(own) if own else JOINED, place


def _trace_texts_in_file_by_path(
    row: Conversation, wanted: set[str]
) -> Iterator[tuple[str, Traced]]:
    """Texts of a row by their paths, as what is known of where they stand.

    Args:
        row: a row with what it was read from.
        wanted: the paths that are asked for.
    """
    missing = {path: text for path, text in _row_texts(row) if path_as_text(path) in wanted}
    # First as it stands in the file; then with what is inside strings of JSON, whose characters the first can't follow.
    # Only what comes out as the same text is believed: a reader may look at fields in ways that tracing changes.
    for raw in (lambda: row.raw, lambda: _parse_inner_json(row.raw)):
        again = _texts_of_row_read_again(row, raw()) if missing else {}
        for path, text in [*missing.items()]:
            traced = again.get(path)
            if isinstance(traced, Traced) and traced.plain == text:
                yield path_as_text(path), traced
                del missing[path]


def _texts_of_row_read_again(row: Conversation, raw: Any) -> dict[Path, str]:
    """The texts of a row that is read again; nothing where it can't be."""
    assert row.read is not None
    try:
        return dict(
            _row_texts(row.read(trace_texts_except_structure_keys(raw, (), Trace()), row.origin))
        )
    except (RecursionError, TypeError, ValueError):
        return {}


def _row_texts(row: Conversation) -> Iterator[tuple[Path, str]]:
    """(path, text) of all texts of a row."""
    for name in FIELDS:
        yield from _nested_strings(getattr(row, name), (name,))


def _nested_strings(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    """The strings nested in a value, each with its path."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _nested_strings(item, (*path, key))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _nested_strings(item, (*path, i))


def _parse_inner_json(value: Any) -> Any:
    """Parse the JSON inside a value: a text that is JSON becomes what it holds."""
    value = parse_json_text_or_keep(value, [])
    if isinstance(value, dict):
        return {key: _parse_inner_json(item) for key, item in value.items()}
    return [_parse_inner_json(item) for item in value] if isinstance(value, list) else value


def _message_index(path: str) -> int | None:
    """The message that a path leads into; None for one beside the messages."""
    match = re.match(r"messages\[(\d+)\]", path)
    return int(match[1]) if match else None
