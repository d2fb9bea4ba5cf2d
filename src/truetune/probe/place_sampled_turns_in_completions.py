"""Where in the completions of an agent its sampled tokens stand, told from what each turn was given and gave.

A turn is given the ids of all that came before it: prompt, earlier turns, what tools wrote. So its first token stands
behind as many ids, and what stands between two turns was not sampled, whatever the trainer's mask says of it.

The trade-off: a turn is put to the first completion that begins with what it was given. Two completions that are the
same up to there may be exchanged; their places are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class SampledTurn:
    """One call of the sampler, for some or all of the completions."""

    given: Sequence[Sequence[int]]
    """The ids that each of them had so far, with the prompt"""
    sampled: Sequence[Sequence[int]]


@dataclass(frozen=True)
class PlacedTurns:
    """All turns of the completions."""

    sampled_ids: tuple[tuple[int, ...], ...]
    """Of each completion, its turns one after the other"""
    places: tuple[tuple[int, ...], ...]
    """Where in the completion each of these tokens stands"""
    between: NDArray[np.bool_]
    """(completions, tokens) what stands between two turns: the text of tools, and what the template writes around it"""


def place_turns(
    turns: Sequence[SampledTurn],
    prompts: Sequence[Sequence[int]],
    completion_ids: NDArray[np.integer],
) -> PlacedTurns | None:
    """Place the turns of one generation.

    Args:
        turns: in their order; the first is of all completions.
        prompts: ids of each completion's prompt, without padding.
        completion_ids: (completions, tokens), padded on the right.

    Returns:
        None where a turn was given what begins no completion: that trainer puts its turns together otherwise.
    """
    count, width = completion_ids.shape
    if not turns or len(turns[0].given) != count:
        return None
    sequences = [
        [*prompt, *row] for prompt, row in zip(prompts, completion_ids.tolist(), strict=True)
    ]
    sampled: list[list[int]] = [[] for _ in range(count)]
    places: list[list[int]] = [[] for _ in range(count)]
    for turn in turns:
        rows = _rows_of_turn(turn, sequences)
        if rows is None:
            return None
        for row, given, ids in zip(rows, turn.given, turn.sampled, strict=True):
            start = len(given) - len(prompts[row])
            # Beyond the limit of a completion nothing is trained.
            kept = list(ids)[: max(0, width - start)]
            sampled[row] += kept
            places[row] += range(start, start + len(kept))
    return PlacedTurns(
        tuple(map(tuple, sampled)),
        tuple(map(tuple, places)),
        _places_between(places, (count, width)),
    )


def _rows_of_turn(turn: SampledTurn, sequences: Sequence[Sequence[int]]) -> list[int] | None:
    """The completion that each part of a turn belongs to; None where one begins none of those that are left."""
    rows: list[int] = []
    for given in turn.given:
        # They are asked in order, so that the next one fits nearly always.
        after = rows[-1] + 1 if rows else 0
        for row in (*range(after, len(sequences)), *range(after)):
            if row not in rows and list(sequences[row][: len(given)]) == list(given):
                rows.append(row)
                break
        else:
            return None
    return rows


def _places_between(places: Sequence[Sequence[int]], shape: tuple[int, int]) -> NDArray[np.bool_]:
    """(completions, tokens) places before the last sampled one that were not sampled."""
    between = np.zeros(shape, np.bool_)
    for row, own in enumerate(places):
        between[row, : max(own, default=-1) + 1] = True
        between[row, list(own)] = False
    return between
