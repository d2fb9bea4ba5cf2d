"""Drops rows whose contents are in an earlier row or in the evaluation data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import blake2b

from truetune.fixing.base_of_row_remedies import Attempt, Remedy, RemedyContext, RowView, Stage
from truetune.fixing.row_edits import DropRow


class DropCopies(Remedy):
    """Drops copies: rows with the same contents, roles and tools as an earlier one; columns that
    reach no example may differ. Two hashes a row are kept.
    """

    rule = "duplicate-rows"
    what = "drop rows that are equal to an earlier one"
    safe = False
    stage = Stage.COPIES
    needs_tokenizer = False
    proved_by_rule = False

    def __init__(self, context: RemedyContext) -> None:
        super().__init__(context)
        self._seen: set[int] = set()
        self._contents: set[int] = set()

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        """An attempt that drops a row which was seen before; every row that stays is remembered."""
        fingerprint = _fingerprint_of_contents(row)
        if fingerprint in self._seen:
            yield [DropRow()]
        # The rule counts such a row, and it may be another task all the same: a person decides.
        elif row.fingerprint in self._contents:
            row.notes.append("the contents are those of an earlier row, roles or tools are not")
        self._seen.add(fingerprint)
        # Rows that are dropped are remembered too: a third copy has the first one's print.
        self._contents.add(row.fingerprint)


def _fingerprint_of_contents(row: RowView) -> int:
    """The fingerprint of a row's contents, roles and tools together."""
    roles = [message.get("role") for message in row.conversation.messages]
    # Hashes and not rows: a set of millions of rows then takes some hundred MB.
    surroundings = json.dumps(
        [row.fingerprint, roles, row.conversation.tools], sort_keys=True, default=str
    )
    return int.from_bytes(blake2b(surroundings.encode(), digest_size=8).digest(), "little")


class DropLeaked(Remedy):
    """Drops training rows that are in the evaluation data; the evaluation rows stay."""

    rule = "train-eval-leak"
    what = "drop rows that are in the evaluation data"
    safe = False
    stage = Stage.COPIES
    needs_tokenizer = False
    proved_by_rule = False

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        """An attempt that drops a row whose contents are in the evaluation data, case and spaces
        aside.
        """
        if row.normal_fingerprint in self.context.eval_prints:
            yield [DropRow()]
