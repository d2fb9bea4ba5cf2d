"""The names of columns: truetune's, the aliases that files use for them, and a user's map from one
to the other.

A name is looked up in a table of aliases, never guessed by its content, so that two files with the same columns are
read in the same way. The one exception is a row with a single column of text, which needs no name
(`find_only_text_column`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from truetune.data.user_map_of_message_field_names import MessageNames, is_message_field_key
from truetune.errors import DataError, SpecError, format_name_list
from truetune.settings.row_formats import NO_COLUMN, row_formats
from truetune.settings.run_spec import FormatName

Row = dict[str, Any]

COLUMN_ALIASES = {
    "messages": ("messages", "dialogue", "dialog"),
    "conversations": ("conversations", "conversation"),
    "instruction": ("instruction", "question", "query", "prompt"),
    "input": ("input",),
    "output": ("output", "response", "answer", "completion"),
    "history": ("history",),
    "prompt": ("prompt",),
    "completion": ("completion",),
    "chosen": ("chosen", "chosen_messages"),
    "rejected": ("rejected", "rejected_messages"),
    "label": ("label", "kto_tag"),
    "text": ("text",),
    "system": ("system", "system_prompt"),
    "tools": ("tools",),
    "documents": ("documents",),
    "images": ("images",),
    "videos": ("videos",),
    "audios": ("audios",),
    "chat_template_kwargs": ("chat_template_kwargs",),
}
"""What truetune calls a column of its own formats, and what files call it; `column_aliases` adds plug-ins."""
# Ids are named in an error, for a row that was tokenized before holds no text that could be trained
# again.
TOKEN_IDS = ("input_ids", "prompt_ids", "completion_ids", "chosen_ids", "rejected_ids")
"""Columns of token ids, by TRL's names; those that end in `_input_ids` are too"""
# Chosen by hand, not measured: a word too many here hides a column of text, a word too few asks the
# user which of two columns is the text.
METADATA_COLUMNS = frozenset(
    (
        "id",
        "ids",
        "uuid",
        "uid",
        "idx",
        "index",
        "key",
        "hash",
        "sha",
        "md5",
        "url",
        "uri",
        "link",
        "domain",
        "host",
    )
    + (
        "title",
        "name",
        "filename",
        "file",
        "path",
        "source",
        "src",
        "origin",
        "dataset",
        "subset",
        "split",
        "lang",
    )
    + (
        "language",
        "locale",
        "date",
        "time",
        "timestamp",
        "created",
        "updated",
        "year",
        "author",
        "license",
        "version",
    )
    + ("category", "type", "tag", "tags", "meta", "metadata", "score", "dump")
)
"""Words in the names of columns that say something about a row"""
ANSWER_COLUMNS = frozenset(
    (
        "answer",
        "answers",
        "label",
        "target",
        "output",
        "response",
        "completion",
        "solution",
        "result",
    )
)
"""Words in the names of columns that are answers, numbers too"""
# Half of it takes titles and labels for training text, double leaves out short answers; both end in
# a message that names --map, so that neither trains anything wrong in silence.
MIN_TEXT = 20
"""Characters. A shorter text of an unknown column may be a name, a code or a class: not trained unasked (chosen)"""
MESSAGE_COLUMNS = frozenset(
    alias
    for name in ("messages", "conversations", "prompt", "completion", "chosen", "rejected")
    for alias in COLUMN_ALIASES[name]
)
"""Columns that may hold messages"""
KNOWN_COLUMNS = frozenset(alias for aliases in COLUMN_ALIASES.values() for alias in aliases)
# People write --map in the words of the format that they know; these are the ones that mean one
# column alone.
_MAP_ALIASES = {
    "answer": "output",
    "response": "output",
    "question": "instruction",
    "query": "instruction",
}
_PAIR_COLUMNS = {"output": "completion", "instruction": "prompt"}
"""What an alias in a map means where the format is said to be prompt-completion."""


# Plug-ins register formats at import, so that the table is complete when it is first asked for.
@cache
def column_aliases() -> Mapping[str, tuple[str, ...]]:
    """truetune's name of each column, of any format, with the names that files use for it."""
    names: dict[str, tuple[str, ...]] = dict(COLUMN_ALIASES)
    for format in row_formats().values():
        names.update({name: (name,) for name in format.columns if name not in names})
        names.update(format.aliases)
    return names


def token_id_columns(row: Row) -> list[str]:
    """The columns of a row that hold token ids: text that was tokenized before."""
    return [
        name
        for name, value in row.items()
        if (name in TOKEN_IDS or name.endswith("_input_ids"))
        and isinstance(value, list)
        and value
        and all(type(id) is int for id in value)
    ]


def find_filled_column(row: Row, name: str) -> tuple[str, Any]:
    """The row's own name for a column, and the value in it; (name, None) if it has no value."""
    # The first alias with a value wins: a file may have `messages` filled and `dialogue` empty
    # beside it.
    for alias in column_aliases()[name]:
        value = row.get(alias)
        if value is not None:
            return alias, value
    return name, None


def find_only_text_column(row: Row) -> str | None:
    """The only column of text, in a row of no format, beside ids, names and dates. None if several
    hold text, for one of them may be the prompt of another, if another column is an answer by
    its name, or if the text is no longer than a name or a code may be.
    """
    texts = text_columns(row)
    if len(texts) != 1 or any(is_answer_column_name(name) for name in row):
        return None
    (name,) = texts
    text = row[name].strip()
    # A space, or another script: a hash or a URL is long too, and is no text.
    is_long = len(text) >= MIN_TEXT and (" " in text or not text.isascii())
    return name if is_long and name not in KNOWN_COLUMNS - {"text"} else None


def is_answer_column_name(name: str) -> bool:
    """Is a column one of answers, by its name?"""
    return not ANSWER_COLUMNS.isdisjoint(_words_of_column_name(name))


def text_columns(row: Row) -> list[str]:
    """The columns that hold text, and no id, name, date or the like; none where a column holds a list or an object."""
    # A row with structure has a form that we do not know; taking one of its texts would drop the
    # rest.
    if any(isinstance(value, list | dict) and value for value in row.values()):
        return []
    return [
        name
        for name, value in row.items()
        if isinstance(value, str) and value.strip() and not is_metadata_column_name(name)
    ]


def is_metadata_column_name(name: str) -> bool:
    """Does a column hold metadata of the row (id, name, date) by its name, and not its text?"""
    # By whole words: `id` is in `docId` and `doc_id`, and not in `idea`.
    return not METADATA_COLUMNS.isdisjoint(_words_of_column_name(name))


def _words_of_column_name(name: str) -> list[str]:
    """The words of a column's name: `docId` and `doc_id` are doc and id."""
    return re.split(r"[\W_]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())


def has_filled_column(row: Row, name: str) -> bool:
    """Has the row this column, under any of its names, with a value in it?"""
    return find_filled_column(row, name)[1] is not None


def find_column_name(row: Row, name: str) -> str | None:
    """The row's own name for a column, even if it is empty; None if it has no such column."""
    return next((alias for alias in column_aliases()[name] if alias in row), None)


def make_row_renamer(columns: Mapping[str, str], format: FormatName | None) -> Callable[[Row], Row]:
    """A function that gives the columns of a row truetune's names. A column that must make room for
    a mapped one is kept beside it, as unused. What is mapped to NO_COLUMN is read from no column:
    those of its own names are kept as unused.

    What is mapped to NO_COLUMN is read from no column: those of its own names are kept as unused.

    Raises SpecError for a name that truetune does not know.
    """
    by_column = _make_column_renamer(
        {ours: column for ours, column in columns.items() if not is_message_field_key(ours)}, format
    )
    # Names inside of messages are translated after the columns, in those columns alone that may
    # hold messages.
    inside = MessageNames.from_map(columns)
    if inside is None:
        return by_column
    return lambda row: {
        key: inside.rename_fields_of_messages(value) if key in MESSAGE_COLUMNS else value
        for key, value in by_column(row).items()
    }


def _make_column_renamer(
    columns: Mapping[str, str], format: FormatName | None
) -> Callable[[Row], Row]:
    """As `make_row_renamer`, for a map that names columns alone and nothing inside messages."""
    # One column may be both prompt and answer: whoever maps it so by mistake is told of the rows that come out.
    names: dict[str, list[str]] = {}
    for ours, column in columns.items():
        names.setdefault(column, []).append(_resolve_mapped_name(ours, column, format))
    taken = _names_given_by_map(columns, names)
    # What is mapped from nothing makes no column, and its own names count as taken.
    names.pop(NO_COLUMN, None)
    # Exchanging two sides exchanges what is said of them: a score that stayed would turn the pair's
    # meaning round.
    is_exchanged = names.get("chosen") == ["rejected"] and names.get("rejected") == ["chosen"]

    def rename(key: str) -> list[str]:
        """The new names of one column."""
        mapped = names.get(key)
        if mapped is not None:
            return mapped
        if key in taken:
            return [f"{key} (not mapped)"]
        return [_name_with_sides_exchanged(key) if is_exchanged else key]

    return lambda row: {name: value for key, value in row.items() for name in rename(key)}


def _names_given_by_map(columns: Mapping[str, str], names: Mapping[str, list[str]]) -> set[str]:
    """All names of the columns that a map gives. Raises SpecError if it gives one twice.

    `--map output=resp` beside a column `output`: the row must not have the name twice, and the loser must not vanish.
    """
    given = [name for several in names.values() for name in several]
    if len(set(given)) < len(given):
        pairs = ", ".join(f"{ours}={column}" for ours, column in columns.items())
        raise SpecError(f"--map names a column twice: {pairs}")
    return {alias for name in given for alias in column_aliases()[name]}


def _resolve_mapped_name(ours: str, column: str, format: FormatName | None) -> str:
    """The column of truetune's that the left side of --map OURS=THEIRS means. Raises SpecError where it is none."""
    name = _MAP_ALIASES.get(ours, ours)
    if format == "prompt-completion" and ours in _MAP_ALIASES:
        name = _PAIR_COLUMNS[name]
    if name in column_aliases():
        return name
    # One suggestion: a list of near names is read as a list of choices.
    near = difflib.get_close_matches(ours, [*column_aliases(), *_MAP_ALIASES], n=1)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(column_aliases())}"
    raise SpecError(f"--map {ours}={column}: {ours} is no column that truetune knows; {hint}")


def _name_with_sides_exchanged(key: str) -> str:
    """The name of a column for a pair whose sides are exchanged: `score_chosen` becomes
    `score_rejected`.
    """
    if "margin" in key.lower():
        return f"{key} (exchanged)"
    return re.sub(
        "chosen|rejected", lambda found: "rejected" if found[0] == "chosen" else "chosen", key
    )


def refuse_missing_mapped_columns(row: Row, columns: Mapping[str, str], where: str) -> None:
    """Raise DataError if the map names a column that the row does not have."""
    for ours, column in columns.items():
        if column not in (*row, NO_COLUMN) and not is_message_field_key(ours):
            near = difflib.get_close_matches(column, list(row), n=1)
            hint = (
                f"; did you mean {near[0]}?" if near else f"; the row has {format_name_list(row)}"
            )
            raise DataError(f"{where}: --map {ours}={column}: there is no column {column}{hint}")
