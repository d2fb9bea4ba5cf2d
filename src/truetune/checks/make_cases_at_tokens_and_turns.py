"""Makes cases (the evidence of findings) that point at a token of a row's example, or at a message
or turn of it.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from truetune.checks.findings import Case
from truetune.data.conversation import Conversation, Problem
from truetune.encoding.batch import Batch
from truetune.render.rendering import Turn

Side = Literal["rejected"] | None
"""Whose tokens are those of a batch, where it holds the rejected sides of pairs"""


def side_of_pair_name(name: str) -> Side:
    """The rendered side (`chosen` or `rejected`) that a name means; None for any other."""
    return "rejected" if name == "rejected" else None


def case_at_token(batch: Batch, place: int, text: str, side: Side = None) -> Case:
    """The case at a token; `place` counts over all tokens of the batch."""
    i = int(np.searchsorted(batch.offsets, place, side="right")) - 1
    return case_in_example(batch, i, place - int(batch.offsets[i]), text, side=side)


def case_in_example(
    batch: Batch, i: int, token: int | None, text: str, turn: int | None = None, side: Side = None
) -> Case:
    """A case in example `i`.

    `token` counts over the tokens of that example; it is left out if the example is that of another
    turn.
    """
    row, rendering = batch.examples[i]
    turn = rendering.turn if turn is None else turn
    return Case(
        text, row.origin, turn, token=token if rendering.turn in (None, turn) else None, side=side
    )


def case_at_character(
    batch: Batch, i: int, character: int, text: str, turn: int | None = None
) -> Case:
    """A case at the token that holds a character of the text of example `i`; at no token if
    `character` is -1.
    """
    starts = batch.starts[batch.offsets[i] : batch.offsets[i + 1]]
    holds = int(np.searchsorted(starts, character, side="right")) - 1
    # Of several tokens of one character (its bytes) the first.
    first = int(np.searchsorted(starts, starts[holds])) if character >= 0 and holds >= 0 else None
    return case_in_example(batch, i, first, text, turn)


def case_at_turn(batch: Batch, i: int, turn: Turn, text: str) -> Case:
    """A case at the beginning of an assistant turn: of what inference must produce, else of what is
    left of its message.
    """
    start = first_character_of_message(batch, i, turn.message) if turn.start < 0 else turn.start
    return case_at_character(batch, i, start, text, turn.message)


def case_at_answer(batch: Batch, i: int, text: str, side: Side = None) -> Case:
    """A case at the first supervised token of example `i`."""
    first = int(batch.contexts[i])
    return case_in_example(batch, i, first if first < batch.lengths[i] else None, text, side=side)


def case_at_stop(batch: Batch, i: int, turn: Turn, text: str) -> Case:
    """A case at the stop token of an assistant turn, or at its last token if it has none."""
    last = turn.stop_start if turn.stop_start >= 0 else turn.end - 1
    return case_at_character(batch, i, last, text, turn.message)


def first_answer(batch: Batch) -> tuple[int, Turn] | None:
    """The first example of a chat with an answer that inference must produce, and that turn."""
    answer = (
        (i, turn) for i, example in enumerate(batch.examples) for turn in example.rendering.turns
    )
    return next(((i, turn) for i, turn in answer if turn.start >= 0), None)


def case_in_row(batch: Batch, row: Conversation, text: str) -> Case:
    """A case at the first supervised token of a row's last example, if it has one."""
    i = index_of_last_example(batch, row)
    return Case(text, row.origin) if i is None else case_at_answer(batch, i, text)


def case_in_rejected_side(batch: Batch, row: Conversation, text: str) -> Case:
    """A case at the first supervised token of a row's rejected side, if it has one."""
    other = batch.rejected_sides
    side = (
        []
        if other is None
        else [i for i, example in enumerate(other.examples) if example.row.origin == row.origin]
    )
    return (
        case_at_answer(other, side[-1], text, "rejected")
        if other is not None and side
        else Case(text, row.origin)
    )


def case_in_message(batch: Batch, row: Conversation, message: int, text: str) -> Case:
    """A case where a message begins in its row's last example, if anything of it stands there."""
    i = index_of_last_example(batch, row)
    start = -1 if i is None else first_character_of_message(batch, i, message)
    return (
        Case(text, row.origin, message)
        if i is None
        else case_at_character(batch, i, start, text, message)
    )


def case_of_problem(batch: Batch, row: Conversation, problem: Problem) -> Case:
    """A case at the message that a problem is in, else in its row."""
    for i, message in enumerate(row.messages):
        if message is problem.message:
            return case_in_message(batch, row, i, problem.text)
    rejected = row.rejected if isinstance(row.rejected, list) else ()
    if any(message is problem.message for message in rejected):
        return case_in_rejected_side(batch, row, problem.text)
    return Case(problem.text, row.origin)


def index_of_last_example(batch: Batch, row: Conversation) -> int | None:
    """The number of a row's last example; None where it has none."""
    return next(
        (i for i in reversed(range(len(batch.examples))) if batch.examples[i].row is row), None
    )


def first_character_of_message(batch: Batch, i: int, message: int) -> int:
    """The first character of the example's text that is from a message; -1 where none is."""
    runs = batch.examples[i].rendering.runs_of_text_by_origin
    return next((run.start for run in runs if run.path.startswith(f"messages[{message}].")), -1)
