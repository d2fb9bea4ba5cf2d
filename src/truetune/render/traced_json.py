"""`tojson` with provenance: each field inside the JSON text keeps the path that it came from.

The values are written with a mark in the place of each field, and the marks are then replaced by the fields' own JSON.
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
    make_atom,
    unknown_text,
)

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
    pieces = _MARK.split(text)
    if len(pieces) != 2 * len(inside) + 1:
        plain = json.dumps(
            value,
            ensure_ascii=ensure_ascii,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        )
        return unknown_text(plain, inside[0].trace)
    return concat(
        _json_body(inside[int(piece)], ensure_ascii) if i % 2 else piece
        for i, piece in enumerate(pieces)
    )


def json_body(text: str, ensure_ascii: bool) -> str:
    """What stands between the quotes in JSON."""
    return json.dumps(text, ensure_ascii=ensure_ascii)[1:-1]


def _json_body(string: Traced, ensure_ascii: bool) -> str:
    if string.parts is not None:
        return concat(
            (
                _json_body(part, ensure_ascii)
                if isinstance(part, Traced)
                else json_body(part, ensure_ascii)
            )
            for part in string.parts
        )
    text, segments, end = string.plain, [], 0
    mine = string.segments
    for match in re.finditer(
        r'["\\\x00-\x1f]|[^\x00-\x7f]' if ensure_ascii else r'["\\\x00-\x1f]', text
    ):
        start = match.start()
        path = cut_segments(mine, start, start + 1)[0].path
        segments += [
            *cut_segments(mine, end, start),
            Segment(len(json_body(match[0], ensure_ascii)), path, -1),
        ]
        end = start + 1
    segments += cut_segments(mine, end, len(text))
    body = json_body(text, ensure_ascii)
    if string.depth >= MAX_DEPTH:
        string.trace.opaque = True
        return make_atom(body, string.trace, ("leaf", UNKNOWN), tuple(segments))
    return make_atom(
        body,
        string.trace,
        ("json_body", string.node, (ensure_ascii,)),
        tuple(segments),
        string.depth + 1,
    )
