"""Makes messages of prompts and answers that are plain strings, for a chat model."""

from __future__ import annotations

from collections.abc import Iterator

from truetune.data.column_name_aliases import COLUMN_ALIASES
from truetune.fixing.base_of_row_remedies import (
    Attempt,
    Remedy,
    RowView,
    Stage,
    combine_into_one_attempt,
)
from truetune.fixing.row_edits import Edit, PutValue


class WriteStringsAsMessages(Remedy):
    """Makes messages of prompt and answers, so that they go through the template; spaces at their
    ends are removed.
    """

    rule = "plain-string-pair-skips-template"
    what = "write prompt and answers as messages"
    safe = False
    stage = Stage.SHAPE

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        """One attempt that makes messages of the texts in all columns of the row."""
        yield from combine_into_one_attempt(self._edits_to_messages(row))

    def _edits_to_messages(self, row: RowView) -> Iterator[Edit]:
        """Edits that make each text of the pair one message of its role."""
        # Only columns of pairs: a column of plain text is trained as it is, on purpose.
        roles = {
            "prompt": "user",
            "completion": "assistant",
            "chosen": "assistant",
            "rejected": "assistant",
        }
        names = {alias: ours for ours in roles for alias in COLUMN_ALIASES[ours]} | dict(
            row.context.truetune_column_by_file_column
        )
        for column, text in row.value.items():
            role = roles.get(names.get(column, ""))
            if role is not None and isinstance(text, str) and column not in row.conversation.unused:
                # Stripped: spaces at the ends belonged to the plain text's border, which the
                # template now writes.
                yield PutValue((column,), [{"role": role, "content": text.strip()}])
