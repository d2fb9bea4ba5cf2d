"""Finds the line and column of each key in the text of a TOML document.

Python's reader of TOML tells no positions. The lines are read once more: a table's name holds until the next one, and
a line that begins with a key sets it. The trade-off: a line within a text of several lines that looks like a key gets a
position too. It does no harm, since positions are only looked up for keys that the document has.
"""

from __future__ import annotations

import re
from collections.abc import Hashable

TABLE = re.compile(r"\s*(?P<list>\[?)\[(?P<name>[^\[\]]+)\]\]?\s*(?:#.*)?")
KEY = re.compile(
    r"(?P<space>\s*)(?P<name>(?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"|'[^']*'))*)\s*="
)
PART = re.compile(r"[\w-]+|\"[^\"]*\"|'[^']*'")


def positions_of_toml_keys(text: str) -> dict[tuple[Hashable, ...], tuple[int, int]]:
    """The keys that lead to each value -> its line and column, both from 1. Tables of a list have numbers."""
    found: dict[tuple[Hashable, ...], tuple[int, int]] = {}
    counts: dict[tuple[Hashable, ...], int] = {}
    table: tuple[Hashable, ...] = ()
    for number, line in enumerate(text.split("\n"), 1):
        header = TABLE.fullmatch(line.rstrip("\r"))
        if header is not None:
            table = _numbered(_key_parts(header["name"]), counts)
            if header["list"]:
                counts[table] = counts.get(table, -1) + 1
                table = (*table, counts[table])
            found.setdefault(table, (number, line.index("[") + 1))
            continue
        key = KEY.match(line)
        if key is not None:
            found.setdefault((*table, *_key_parts(key["name"])), (number, len(key["space"]) + 1))
    return found


def _key_parts(name: str) -> tuple[Hashable, ...]:
    """The parts of a dotted key, without quotes."""
    return tuple(part.strip("\"'") for part in PART.findall(name))


def _numbered(
    parts: tuple[Hashable, ...], counts: dict[tuple[Hashable, ...], int]
) -> tuple[Hashable, ...]:
    """A table's keys, with the number of the last table of each list before its own part."""
    keys: tuple[Hashable, ...] = ()
    for part in parts[:-1]:
        keys = (*keys, part)
        if keys in counts:
            keys = (*keys, counts[keys])
    return (*keys, *parts[-1:])
