"""`tojson` with provenance: each field inside the JSON text keeps the path that it came from.

The values are written with a mark in the place of each field, and the marks are then replaced by the fields' own JSON.
So the layout (separators, indents, order of keys) is json.dumps' own, whatever its options, and each field is known
to be one piece of the text. The trade-off: two passes; and where a text of the row looks like a mark, the provenance of
the whole is given up.
"""

from __future__ import annotations

import json
import re
from typing import Any

from truetune.render.traced_string import (
    MAX_DEPTH,
    UNKNOWN,
    Segment,
    Traced,
    concat,
    cut_segments,
    make_atom_of_one_field,
    text_of_unknown_origin,
)

# NUL, a number, NUL, as JSON writes it: template text and fields all but never hold it.
_MARK = re.compile(r"\\u0000(\d+)\\u0000")


def traced_tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    """transformers' `tojson` filter (json.dumps that escapes no HTML), with provenance."""
    inside: list[Traced] = []

    def mark(item: Any) -> Any:
        if isinstance(item, Traced):
            inside.append(item)
            return f"\0{len(inside) - 1}\0"
        if isinstance(item, dict):
            return {key: mark(entry) for key, entry in item.items()}
        return [mark(entry) for entry in item] if isinstance(item, list | tuple) else item

    marked = mark(value)
    text = json.dumps(
        marked, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    if not inside:
        return text
    # Text and numbers of marks in turn. Any other count means that a key, or text of the template, holds a mark.
    pieces = _MARK.split(text)
    if len(pieces) != 2 * len(inside) + 1:
        plain = json.dumps(
            value,
            ensure_ascii=ensure_ascii,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        )
        return text_of_unknown_origin(plain, inside[0].trace)
    return concat(
        _json_of_field_without_quotes(inside[int(piece)], ensure_ascii) if i % 2 else piece
        for i, piece in enumerate(pieces)
    )


def json_body(text: str, ensure_ascii: bool) -> str:
    """What stands between the quotes in JSON."""
    return json.dumps(text, ensure_ascii=ensure_ascii)[1:-1]


def _json_of_field_without_quotes(string: Traced, ensure_ascii: bool) -> str:
    """What stands between the quotes for a field, with the provenance of each character that is no escape."""
    # JSON escapes character by character: the body of a compound is the bodies of its parts, one after the other.
    if string.parts is not None:
        return concat(
            (
                _json_of_field_without_quotes(part, ensure_ascii)
                if isinstance(part, Traced)
                else json_body(part, ensure_ascii)
            )
            for part in string.parts
        )
    text = string.plain
    # The characters that JSON writes as an escape; DEL is none of them.
    escaped = r'["\\\x00-\x1f]|[^\x00-\x7f]' if ensure_ascii else r'["\\\x00-\x1f]'
    segments: list[Segment] = []
    end = 0
    for match in re.finditer(escaped, text):
        start = match.start()
        # An escape is several characters for one: of its place only the field is said (offset -1).
        path = cut_segments(string.segments, start, start + 1)[0].path
        segments += cut_segments(string.segments, end, start)
        segments.append(Segment(len(json_body(match[0], ensure_ascii)), path, -1))
        end = start + 1
    segments += cut_segments(string.segments, end, len(text))
    body = json_body(text, ensure_ascii)
    if string.depth >= MAX_DEPTH:
        string.trace.opaque = True
        return make_atom_of_one_field(body, string.trace, ("leaf", UNKNOWN), tuple(segments))
    return make_atom_of_one_field(
        body,
        string.trace,
        ("json_body", string.node, (ensure_ascii,)),
        tuple(segments),
        string.depth + 1,
    )
