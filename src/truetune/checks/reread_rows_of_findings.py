"""Reads the rows that findings name once more, for a report keeps their places, not the rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from truetune.checks.look_up_rows_far_into_data import read_rows_at_origins
from truetune.data.conversation import Conversation, Origin
from truetune.data.read_rows_as_conversations import read_conversations
from truetune.settings.run_spec import RunSpec


def reread_rows(spec: RunSpec, wanted: Collection[Origin]) -> Iterator[Conversation]:
    """The rows at these origins. Those of lines and of tables are read alone; of other files all before them are too.

    Raises DataError where the data can't be read again.
    """
    left = set(wanted)
    for row in read_rows_at_origins(spec, wanted):
        left.discard(row.origin)
        yield row
    if not left:
        return
    last = max(origin.row for origin in left)
    for row in read_conversations(
        spec.data,
        format=spec.format,
        columns=spec.map,
        on_broken=_ignore_broken_line,
        on_empty=_ignore_broken_line,
    ):
        if row.origin in left:
            yield row
        if row.origin.row >= last:
            return


def _ignore_broken_line(*_: object) -> None:
    """Does nothing: a line that holds no row has no row to give."""
