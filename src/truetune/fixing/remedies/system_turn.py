"""A system turn that the template refuses."""

from __future__ import annotations

from collections.abc import Iterator

from truetune.fixing.remedy import Attempt, Remedy, RowView, Stage
from truetune.fixing.row_edits import PutValue, RemoveEntry
from truetune.fixing.row_judge import JudgedRows


class MoveSystemTurn(Remedy):
    """Its text is put in front of the first question, as serving must then do as well."""

    rule = "template-rejects-rows"
    what = "put the system turn in front of the first question"
    safe = False
    stage = Stage.TEMPLATE

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        first = next((turn for turn in row.turns if turn.role in ("system", "developer")), None)
        asked = next((turn for turn in row.turns if turn.role in ("user", "human")), None)
        if row.rejected is None or first is None or asked is None or len(first.path) < 2:
            return
        key = "value" if asked.role_key == "from" else "content"
        said, question = first.message.get(key), asked.message.get(key)
        if (
            isinstance(said, str)
            and isinstance(question, str)
            and first.path[:-1] == asked.path[:-1]
        ):
            joined = f"{said}\n\n{question}" if said.strip() else question
            yield [PutValue((*asked.path, key), joined), RemoveEntry(first.path)]

    def measure(self, judged: JudgedRows) -> int:
        return len(judged.rejected)
