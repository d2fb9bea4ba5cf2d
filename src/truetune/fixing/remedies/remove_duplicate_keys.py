"""Removes keys that are twice in an object."""

from __future__ import annotations

from collections.abc import Iterator

from truetune.fixing.base_of_row_remedies import (
    Attempt,
    ProblemRemedy,
    RowView,
    Stage,
    combine_into_one_attempt,
)
from truetune.fixing.row_edits import RemoveRepeatedKey


class RemoveEqualKeys(ProblemRemedy):
    """Removes one of two keys that hold the same value, so that nothing is lost."""

    rule = "malformed-rows"
    what = "remove a key that occurs twice with one value"
    safe = True
    stage = Stage.TEXT
    kinds = ("duplicate-key",)

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        """An attempt that removes the first of two members with the same value."""
        repeated = list(row.body.repeated_keys())
        yield from combine_into_one_attempt(
            RemoveRepeatedKey(path, key) for path, key, differ in repeated if not differ
        )


class KeepLastKey(ProblemRemedy):
    """Keeps the last of several equal keys, as all readers of JSON do, and says what they lose in
    silence.
    """

    rule = "malformed-rows"
    what = "keep the last of two values of one key, as readers do"
    safe = False
    stage = Stage.TEXT
    kinds = ("duplicate-key",)

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        """An attempt that removes all but the last member of each key."""
        yield from combine_into_one_attempt(
            RemoveRepeatedKey(path, key) for path, key, _ in row.body.repeated_keys()
        )
