"""The roles in the rows of LLaMA-Factory's data sets, beside the tags of their entries in dataset_info.json.

Source: LLaMA-Factory 0.9.5, data/parser.py and data/converter.py; 0.8 and 0.9 read tags alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from truetune.checks.config.evidence.columns_and_age_of_training_files import local_data_files
from truetune.checks.config.evidence.dataset_info_entries import dataset_info_entries
from truetune.checks.findings import Case
from truetune.checks.read_settings_in_launch_files import find_in_folder_or_parents
from truetune.checks.rule import MAX_CASES
from truetune.data.find_data_files import DataFile, open_raw
from truetune.data.read_file_records import read_records
from truetune.errors import DataError
from truetune.parsing.decompress_within_limits import UNREADABLE
from truetune.settings.config import Config
from truetune.settings.stacks.read_llama_factory_datasets import DEFAULT_COLUMNS, DEFAULT_TAGS

FORMS_OF_CHATS = ("sharegpt", "openai")
ROLE_NAME_TAGS = ("user_tag", "assistant_tag", "observation_tag", "function_tag", "system_tag")
"""Tags that are names of roles; the others are names of keys"""
TAG_BY_USUAL_ROLE = {
    **dict.fromkeys(("user", "human"), "user_tag"),
    **dict.fromkeys(("assistant", "gpt", "model", "bot", "chatgpt"), "assistant_tag"),
    **dict.fromkeys(
        ("tool", "observation", "function_response", "tool_response"), "observation_tag"
    ),
    **dict.fromkeys(("function_call", "tool_call", "function"), "function_tag"),
    "system": "system_tag",
}
"""A role as rows usually call it -> the tag that is meant"""
MAX_ROWS = 50_000
"""Rows of a file that are read: a second source often stands at the end"""


@dataclass
class TaggedRows:
    """The chats of one data set, and what their roles are."""

    name: str
    formatting: str
    tags: Mapping[str, str | None]
    left_out: tuple[str, ...]
    """Tags that the entry's `tags` leave out"""
    chats: int = 0
    odd: int = 0
    """Chats with a role that no tag names"""
    roles: Counter[str] = field(default_factory=Counter)
    """Role that no tag names -> chats that have it"""
    used: set[str] = field(default_factory=set)
    """Roles that a tag names, and rows have"""
    cases: list[Case] = field(default_factory=list)

    @property
    def roles_named_by_tags(self) -> list[str]:
        """The roles that the tags name."""
        return [name for tag in ROLE_NAME_TAGS if (name := self.tags.get(tag))]


def likely_tag_of_role(role: str) -> str | None:
    """The tag that a role of the rows stands for by its usual meaning; None where that is not known."""
    return TAG_BY_USUAL_ROLE.get(role.lower())


def tagged_rows_of_run(config: Config) -> tuple[TaggedRows, ...]:
    """The chats of the training's data sets that are on this machine."""
    folder = str(config.raw.get("dataset_dir") or "data")
    tagged_rows = []
    for name, entry in dataset_info_entries(config).items():
        path = find_in_folder_or_parents(
            Path(config.path).parent, f"{folder}/{entry.get('file_name')}"
        )
        if path is None or entry.get("formatting") not in FORMS_OF_CHATS:
            continue
        rows = _count_roles(name, entry, local_data_files(str(path)))
        if rows.chats:
            tagged_rows.append(rows)
    return tuple(tagged_rows)


def _count_roles(name: str, entry: Mapping[str, Any], files: list[DataFile]) -> TaggedRows:
    """Count the roles in the rows of one entry."""
    columns, tags = entry.get("columns"), entry.get("tags")
    messages = columns.get("messages") if isinstance(columns, Mapping) else None
    if not isinstance(columns, Mapping):
        messages = DEFAULT_COLUMNS["messages"]
    left_out: tuple[str, ...] = ()
    names: dict[str, str | None] = dict(DEFAULT_TAGS)
    if isinstance(tags, Mapping):
        # An entry with `tags` has no other tags: LLaMA-Factory's defaults count only where there is none.
        names = {tag: tags.get(tag) for tag in DEFAULT_TAGS}
        left_out = tuple(tag for tag in ROLE_NAME_TAGS if not tags.get(tag))
    rows = TaggedRows(name, str(entry.get("formatting")), names, left_out)
    for file in files:
        for line, chat in _chats_of_file(file, str(messages)):
            _count_roles_of_chat(rows, chat, Case("", file=str(file.path), line=line))
    return rows


def _chats_of_file(file: DataFile, column: str) -> Iterator[tuple[int, list[Any]]]:
    """The chats of a file, each with its line."""
    try:
        with open_raw(file.path) as raw:
            for record in islice(read_records(file, raw), MAX_ROWS):
                chat = record.row.get(column) if isinstance(record.row, Mapping) else None
                if isinstance(chat, list) and chat:
                    yield record.line, chat
    except (DataError, *UNREADABLE):
        return


def _count_roles_of_chat(rows: TaggedRows, chat: list[Any], place: Case) -> None:
    """Count the roles of one chat. One without the key of roles stops the run, and is not counted."""
    key = str(rows.tags.get("role_tag"))
    roles = _roles_of_chat(chat, key)
    if roles is None:
        return
    rows.chats += 1
    known = set(rows.roles_named_by_tags)
    odd = dict.fromkeys(role for role in roles if role not in known)
    rows.used.update(role for role in roles if role in known)
    if not odd:
        return
    rows.odd += 1
    rows.roles.update(list(odd))
    if len(rows.cases) < MAX_CASES:
        turn = next(index for index, role in enumerate(roles) if role in odd)
        text = f"turn {turn + 1} has {key}: {roles[turn]}"
        rows.cases.append(Case(text, file=place.file, line=place.line))


def _roles_of_chat(chat: list[Any], key: str) -> list[str] | None:
    """The role of each turn of a chat; None where a turn has no text under that key."""
    roles = [turn.get(key) if isinstance(turn, Mapping) else None for turn in chat]
    named = [role for role in roles if isinstance(role, str)]
    return named if len(named) == len(chat) else None
