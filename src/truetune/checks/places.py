"""Cases at a token: in a row's example, or in that of one turn where turns are examples of their own."""

from __future__ import annotations

import numpy as np

from truetune.checks.findings import Case
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch
from truetune.render.rendering import Turn


def at_token(batch: Batch, place: int, text: str) -> Case:
    """`place` counts over all tokens of the batch."""
    i = int(np.searchsorted(batch.offsets, place, side="right")) - 1
    return in_example(batch, i, place - int(batch.offsets[i]), text)


def in_example(batch: Batch, i: int, token: int | None, text: str, turn: int | None = None) -> Case:
    """`token` counts over the tokens of example `i`; it is left out where that is the example of another turn."""
    row, rendering = batch.examples[i]
    turn = rendering.turn if turn is None else turn
    return Case(text, row.origin, turn, token=token if rendering.turn in (None, turn) else None)


def at_character(batch: Batch, i: int, character: int, text: str, turn: int | None = None) -> Case:
    """The token that holds a character of the example's text; -1 is no place."""
    starts = batch.starts[batch.offsets[i] : batch.offsets[i + 1]]
    holds = int(np.searchsorted(starts, character, side="right")) - 1
    first = int(np.searchsorted(starts, starts[holds])) if character >= 0 and holds >= 0 else None
    return in_example(batch, i, first, text, turn)


def at_turn(batch: Batch, i: int, turn: Turn, text: str) -> Case:
    """Where an assistant turn begins: what inference must produce of it, or else what is left of its message."""
    runs = batch.examples[i].rendering.runs if turn.start < 0 else ()
    left = (run.start for run in runs if run.path.startswith(f"messages[{turn.message}]."))
    return at_character(batch, i, next(left, turn.start), text, turn.message)


def at_answer(batch: Batch, i: int, text: str) -> Case:
    """The first supervised token."""
    first = int(batch.contexts[i])
    return in_example(batch, i, first if first < batch.lengths[i] else None, text)


def in_row(batch: Batch, row: Conversation, text: str) -> Case:
    """The first supervised token of a row's last example, where it has one."""
    mine = [i for i, example in enumerate(batch.examples) if example.row is row]
    return at_answer(batch, mine[-1], text) if mine else Case(text, row.origin)
