"""Makes one text of contents that are a list of strings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.fixing.base_of_row_remedies import (
    Attempt,
    ProblemRemedy,
    RowView,
    Stage,
    combine_into_one_attempt,
)
from truetune.fixing.row_edits import PutValue


def find_listed_contents(row: RowView) -> Iterator[tuple[tuple[str | int, ...], list[str]]]:
    """(path, strings) of each content that is a list of strings."""
    for turn in row.turns:
        # Lists of parts are a form that templates know: only strings are meant here.
        for key in ("content", "value"):
            content: Any = turn.message.get(key)
            if (
                isinstance(content, list)
                and content
                and all(isinstance(part, str) for part in content)
            ):
                yield (*turn.path, key), content


class UnlistOneString(ProblemRemedy):
    """Makes a text of a list of one string: nothing has to be guessed."""

    rule = "malformed-rows"
    what = "write a content that is a list of one string as that string"
    safe = True
    stage = Stage.SHAPE
    kinds = ("not-a-string",)

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        """One attempt that makes a text of each content that is a list of one string."""
        yield from combine_into_one_attempt(
            PutValue(path, parts[0], row.json_text_at((*path, 0)))
            for path, parts in find_listed_contents(row)
            if len(parts) == 1
        )


class JoinStrings(ProblemRemedy):
    """Joins a list of several strings; not safe, since what separated them is not known."""

    rule = "malformed-rows"
    what = "join a content that is a list of strings by line ends"
    safe = False
    stage = Stage.SHAPE
    kinds = ("not-a-string",)

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        """Attempts that join each content that is a list of strings."""
        yield from combine_into_one_attempt(
            PutValue(path, "\n".join(parts)) for path, parts in find_listed_contents(row)
        )
