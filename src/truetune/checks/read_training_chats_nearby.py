"""Reads the chats that lie beside a script or a Modelfile, if one file there holds what the model
was trained on.

A file counts as training rows where its name says nothing else, and where no second file competes with it. Reading is
bounded: the first rows of a few files.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from truetune.data.find_data_files import find_data_files_of_paths, open_raw
from truetune.data.read_file_records import read_records
from truetune.errors import DataError

SUFFIXES = (".jsonl", ".json")
FOLDERS = (".", "data", "dataset", "datasets")
# Chosen, not measured: together less than a second on a disk, also in a folder with a large data set.
MAX_FILES, MAX_BYTES, MAX_ROWS = 8, 64 << 20, 500
"""Files that are opened, the largest of them, and the rows that are read: enough for a share, and quick"""
HELD_OUT = re.compile(
    r"test|eval|val|dev|held|pred|answer|output|result|bench|out\b|response|log", re.I
)
"""Names of files that no training reads"""
KEYS = ("messages", "conversations", "conversation")
ROLES = {"human": "user", "gpt": "assistant"}
# Chosen, not measured. Below, one chat is more than a twentieth of the share; at double, many small sets tell
# nothing.
MIN_ROWS = 20
"""Chats from which a share is one"""
Message = tuple[str, str]
"""Role and content"""


class NearbyChats(NamedTuple):
    """Chats, and where they stand."""

    rows: list[list[Message]]
    path: Path

    @property
    def answers(self) -> list[str]:
        """The texts that are trained, turn by turn."""
        return [text for row in self.rows for role, text in row if role == "assistant"]


class CommonSystemPrompt(NamedTuple):
    """The system prompt that nearly all chats begin with."""

    text: str
    chats: int
    of: int


def find_nearby_chats(path: str) -> NearbyChats | None:
    """The chats in the one file beside `path` that holds them; None where there is none, or several."""
    read = (_read_chats(file) for file in _candidate_chat_files(Path(path).parent))
    chats_of_files = [chats for chats in read if chats is not None]
    # Two files of chats may be trained one after the other, or one of them not at all: then nothing is known.
    return chats_of_files[0] if len(chats_of_files) == 1 else None


def find_common_system_prompt(chats: NearbyChats) -> CommonSystemPrompt | None:
    """The system prompt of nine chats of ten; None where they have none, or several."""
    first = (row[0] for row in chats.rows if row)
    texts = Counter(text for role, text in first if role == "system" and text.strip())
    text, count = texts.most_common(1)[0] if texts else ("", 0)
    # Nine of ten: rows that were made by hand are left out of a prompt now and then, and the model still learns it.
    return (
        CommonSystemPrompt(text, count, len(chats.rows)) if count >= 0.9 * len(chats.rows) else None
    )


def count_answers_cut_by_stop(chats: NearbyChats, stop: str) -> int:
    """The number of trained answers that continue behind a stop string: those that the string would cut."""
    return sum(stop in answer.rstrip() for answer in chats.answers)


def _candidate_chat_files(folder: Path) -> Iterator[Path]:
    """The files beside a path whose names and sizes let them be training data."""
    places = (folder / name for name in FOLDERS)
    files = (path for place in places if place.is_dir() for path in sorted(place.iterdir()))
    named = (
        path
        for path in files
        if path.suffix in SUFFIXES and not HELD_OUT.search(path.stem) and path.is_file()
    )
    yield from islice((path for path in named if path.stat().st_size <= MAX_BYTES), MAX_FILES)


def _read_chats(path: Path) -> NearbyChats | None:
    """The first chats of a file; None where it holds too few, or can't be read."""
    try:
        source = find_data_files_of_paths([str(path)])[0]
        with open_raw(source.path) as raw:
            rows = [record.row for record in islice(read_records(source, raw), MAX_ROWS)]
    except (DataError, IndexError, OSError):
        return None
    chats = [_messages_of_row(row) for row in rows if isinstance(row, dict)]
    kept = [chat for chat in chats if chat]
    return NearbyChats(kept, path) if len(kept) >= MIN_ROWS else None


def _messages_of_row(row: Mapping[str, object]) -> list[Message]:
    """The turns of a row, with the names of roles that templates use; none where it is no chat."""
    turns = next((row[key] for key in KEYS if isinstance(row.get(key), list)), None)
    if not isinstance(turns, Sequence):
        return []
    messages = []
    for turn in turns:
        if not isinstance(turn, dict):
            return []
        # ShareGPT's `from` and `value`, beside the `role` and `content` of the others.
        role, text = turn.get("role", turn.get("from")), turn.get("content", turn.get("value"))
        if isinstance(role, str) and isinstance(text, str):
            messages.append((ROLES.get(role, role), text))
    return messages
