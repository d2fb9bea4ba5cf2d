"""Renames the keys of messages to role and content, where they have other names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from truetune.fixing.base_of_row_remedies import (
    Attempt,
    ProblemRemedy,
    RowView,
    Stage,
    combine_into_one_attempt,
)
from truetune.fixing.remedies.rename_role_aliases import standard_role_of_name
from truetune.fixing.row_edits import Edit, RenameKey
from truetune.fixing.row_messages_with_paths import ROLE_KEYS, TEXT_KEYS, Turn

# Names that mean one thing in a message; `name` is not among them, for OpenAI's form has a name
# beside the role.
ROLE_NAMES = ("speaker", "author", "sender", "Role", "ROLE", "From")
CONTENT_NAMES = ("text", "message", "body", "utterance", "msg", "Content", "CONTENT", "Value")


class RenameKeys(ProblemRemedy):
    """Renames the keys of messages of a form that no reader knows, where their names leave no
    doubt.
    """

    rule = "turn-roles-unknown-to-template"
    what = "rename the keys of messages to role and content"
    safe = True
    stage = Stage.SHAPE
    kinds = ("unknown-role", "no-content")

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        """One attempt that renames the keys of all messages of the row: a chat has one form."""
        yield from combine_into_one_attempt(
            edit for turn in row.turns for edit in _edits_of_turn(turn)
        )


def _edits_of_turn(turn: Turn) -> Iterator[Edit]:
    """Edits that rename the keys of a message, where the role is plain and one key alone can be its
    text.
    """
    message = turn.message
    key = turn.role_key or next((name for name in ROLE_NAMES if name in message), None)
    # `author: Jane` names a person: a key of ours must hold a role.
    if key is None or (key not in ROLE_KEYS and standard_role_of_name(message[key]) is None):
        return
    if key not in ROLE_KEYS:
        yield RenameKey((*turn.path, key), "role")
    if _has_readable_content(message, key):
        return
    names = (*TEXT_KEYS, *CONTENT_NAMES)
    texts = [name for name in names if isinstance(message.get(name), str)]
    # Two texts: which of them is the content, nobody can tell.
    if len(texts) == 1:
        yield RenameKey((*turn.path, texts[0]), "content")


def _has_readable_content(message: Mapping[str, Any], role_key: str) -> bool:
    """Has a message what readers take for its content? They take `value` beside `from` alone."""
    if "content" in message or message.get("tool_calls"):
        return True
    return role_key == "from" and "value" in message
