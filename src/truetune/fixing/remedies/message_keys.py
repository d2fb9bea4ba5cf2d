"""Messages whose keys are called otherwise than role and content."""

from __future__ import annotations

from collections.abc import Iterator

from truetune.fixing.remedies.role_alias import role_meant
from truetune.fixing.remedy import Attempt, ProblemRemedy, RowView, Stage, as_one_attempt
from truetune.fixing.row_edits import Edit, RenameKey
from truetune.fixing.row_turns import ROLE_KEYS, TEXT_KEYS, Turn

ROLE_NAMES = ("speaker", "author", "sender", "Role", "ROLE", "From")
CONTENT_NAMES = ("text", "message", "body", "utterance", "msg", "Content", "CONTENT", "Value")


class RenameKeys(ProblemRemedy):
    rule = "role-alias-dropped"
    what = "rename the keys of messages to role and content"
    safe = True
    stage = Stage.SHAPE
    kinds = ("unknown-role", "no-content")

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        yield from as_one_attempt(edit for turn in row.turns for edit in _edits_of_turn(turn))


def _edits_of_turn(turn: Turn) -> Iterator[Edit]:
    """Where the role is plain and one key alone can be its text."""
    message = turn.message
    key = turn.role_key or next((name for name in ROLE_NAMES if name in message), None)
    if key is None or (role_meant(message[key]) is None and key not in ROLE_KEYS):
        return
    if key not in ROLE_KEYS:
        yield RenameKey((*turn.path, key), "role")
    # readers take `from` with `content`, and `role` with `content` alone
    if "content" in message or (key == "from" and "value" in message) or message.get("tool_calls"):
        return
    texts = [name for name in (*TEXT_KEYS, *CONTENT_NAMES) if isinstance(message.get(name), str)]
    if len(texts) == 1:
        yield RenameKey((*turn.path, texts[0]), "content")
