"""Contents that are a list of strings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.fixing.remedy import Attempt, ProblemRemedy, RowView, Stage, combine_into_one_attempt
from truetune.fixing.row_edits import PutValue


def strings_in(row: RowView) -> Iterator[tuple[tuple[str | int, ...], list[str]]]:
    """(place, strings) of each content that is such a list."""
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
    """A list of one string is that string: nothing has to be guessed."""

    rule = "malformed-rows"
    what = "write a content that is a list of one string as that string"
    safe = True
    stage = Stage.SHAPE
    kinds = ("not-a-string",)

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        """Each content that is a list of one string."""
        yield from combine_into_one_attempt(
            PutValue(path, parts[0], row.json_text_at((*path, 0)))
            for path, parts in strings_in(row)
            if len(parts) == 1
        )


class JoinStrings(ProblemRemedy):
    """What stood between them is not known."""

    rule = "malformed-rows"
    what = "join a content that is a list of strings by line ends"
    safe = False
    stage = Stage.SHAPE
    kinds = ("not-a-string",)

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        """Each content that is a list of strings, joined."""
        yield from combine_into_one_attempt(
            PutValue(path, "\n".join(parts)) for path, parts in strings_in(row)
        )
