"""Finds saved replies of a server in a folder, of which every one ended at the limit of new tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from truetune.errors import TruetuneError
from truetune.parsing.input_limits import REPLY, SETTINGS
from truetune.parsing.parse_json_within_limits import parse_json
from truetune.parsing.read_files_within_limits import read_bytes_within_limit

MAX_FILES, MAX_ROWS = 20, 2_000
"""Files of a folder, and rows of each, that are read. Chosen by hand: a bound on time; a limit of
tokens is the same for all replies"""
MIN_REPLIES = 5
"""Replies in a file, at least. Chosen by hand: a few that are cut may be a try with a low limit"""
COUNT_NAMES = ("completion_tokens", "output_tokens", "generated_tokens")
REASON_NAMES = ("finish_reason", "stop_reason", "done_reason")
LIMIT_REASONS = ("length", "max_tokens")


class RepliesAtTheLimit(NamedTuple):
    """A file whose replies all ended at the limit."""

    name: str
    replies: int
    tokens: int | None
    """The length of all, where it is one and is written"""

    def text(self) -> str:
        """The file with its number of cut replies, as evidence says it."""
        length = "" if self.tokens is None else f", all with {self.tokens} tokens"
        return f"{self.name}: all {self.replies} replies ended with finish_reason `length`{length}"


def files_with_all_replies_cut(folder: Path) -> Iterator[RepliesAtTheLimit]:
    """The files of a folder in which every reply ended at the limit of tokens."""
    for path in sorted(folder.glob("*.jsonl"))[:MAX_FILES]:
        rows = list(_read_json_lines(path))
        reasons = [_first_value(row, REASON_NAMES) for row in rows]
        if len(rows) < MIN_REPLIES or any(reason not in LIMIT_REASONS for reason in reasons):
            continue
        lengths = Counter(_first_value(row, COUNT_NAMES) for row in rows)
        only = next(iter(lengths)) if len(lengths) == 1 else None
        yield RepliesAtTheLimit(path.name, len(rows), only if isinstance(only, int) else None)


def _read_json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file's lines; none where it can't be read."""
    try:
        lines = read_bytes_within_limit(path, SETTINGS).decode("utf-8", "replace").splitlines()
        for line in lines[:MAX_ROWS]:
            row = parse_json(line, REPLY) if line.strip() else None
            if isinstance(row, dict):
                yield row
    except (OSError, ValueError, TruetuneError):
        return


def _first_value(row: dict[str, Any], names: tuple[str, ...]) -> Any:
    """The value of the first of these columns, or of the same in `usage` and `choices`."""
    inner = [row]
    usage, choices = row.get("usage"), row.get("choices")
    inner += [usage] if isinstance(usage, dict) else []
    inner += [one for one in choices if isinstance(one, dict)] if isinstance(choices, list) else []
    return next((one[name] for one in inner for name in names if name in one), None)
