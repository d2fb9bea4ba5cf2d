"""Finds boilerplate: tokens that most examples have, word for word, wherever they stand in them.

Long documents of one kind (contracts, reports) have each phrase of their trade in most examples, in any order, and are
no shared text. So a short stretch counts only where it follows the same stretch, or the beginning, in most examples, or
is followed by the same one or the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Chosen, not measured. At four, phrases of the language are shared text; at sixteen, short system prompts are missed.
IN_A_ROW = 8
"""Tokens in a row that are the same text: shorter ones are phrases of the language"""
BYTES_IN_A_ROW = 32
"""Where each token is a byte: as long as eight tokens of English"""
SHARE = 0.5
"""Share of the examples that have it"""
LONG_STRETCH = 4
"""So many times as long as the least stretch, it is no phrase of the language, wherever it stands. Chosen, not
measured: a sentence of two lines"""
BEGINNING, END = np.uint64(1), np.uint64(2)
"""Neighbours of the first and of the last stretch of an example"""
# Odd factors: multiplying by an even one loses bits of a token. The seed is fixed, so that hashes stay the same.
FACTORS = np.random.default_rng(8).integers(1, 2**63, BYTES_IN_A_ROW, dtype=np.uint64) | np.uint64(
    1
)


class ExampleTokens(NamedTuple):
    """The beginning of an example."""

    ids: NDArray[np.int32]
    is_prompt: NDArray[np.bool_]
    is_learned: NDArray[np.bool_]


class BoilerplateTokens(NamedTuple):
    """Tokens of the examples that were compared."""

    examples: int
    tokens: int
    learned: int
    shared: int
    """Of text that most examples have"""
    shared_learned: int
    """Of these, in the loss"""
    begins: NDArray[np.int64]
    """Places of its first tokens in the first example"""


def find_boilerplate_tokens(
    examples: Sequence[ExampleTokens], in_a_row: int = IN_A_ROW
) -> BoilerplateTokens:
    """Which tokens of prompts most examples have, so many in a row.

    Args:
        examples: Their beginnings.
        in_a_row: Tokens that are the same text; at most BYTES_IN_A_ROW.
    """
    grams = [_hash_grams(example.ids, in_a_row) for example in examples]
    values, counts = np.unique(
        np.concatenate([np.unique(one) for one in grams]), return_counts=True
    )
    common = values[counts >= SHARE * len(grams)]
    stretches = [_runs_of_common_grams(one, np.isin(one, common)) for one in grams]
    links = _common_pairs_of_stretches(stretches)
    masks = [
        _tokens_of_grams(
            _grams_of_long_or_linked_stretches(of_example, links, in_a_row, len(one)),
            len(example.ids),
            in_a_row,
        )
        & example.is_prompt
        for of_example, one, example in zip(stretches, grams, examples, strict=True)
    ]
    learned = [example.is_learned for example in examples]
    return BoilerplateTokens(
        examples=len(grams),
        tokens=sum(map(len, masks)),
        learned=sum(int(mask.sum()) for mask in learned),
        shared=sum(int(mask.sum()) for mask in masks),
        shared_learned=sum(
            int((mask & own).sum()) for mask, own in zip(masks, learned, strict=True)
        ),
        begins=np.flatnonzero(masks[0])[:in_a_row],
    )


def _hash_grams(ids: NDArray[np.int32], in_a_row: int) -> NDArray[np.uint64]:
    """(tokens - in_a_row + 1,) hashes of the tokens in a row from each place on."""
    grams = np.zeros(max(0, len(ids) - in_a_row + 1), dtype=np.uint64)
    for step, factor in enumerate(FACTORS[:in_a_row]):
        # + 1, for token 0 would add nothing, whatever its place.
        grams += (ids[step : len(grams) + step].astype(np.uint64) + np.uint64(1)) * factor
    return grams


class _Stretches(NamedTuple):
    """The stretches of common text in one example."""

    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    """After the last gram of each"""
    links: NDArray[np.uint64]
    """(stretches + 1,) which stretch stands before and which after each gap, as one number"""


def _runs_of_common_grams(grams: NDArray[np.uint64], is_common: NDArray[np.bool_]) -> _Stretches:
    """The runs of common n-grams in one example, with a hash for each link between one run and the
    next.
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[False], is_common, [False]]).astype(np.int8)))
    starts, stops = edges[::2], edges[1::2]
    before = np.concatenate([[BEGINNING], grams[stops - 1]]).astype(np.uint64)
    behind = np.concatenate([grams[starts], [END]]).astype(np.uint64)
    return _Stretches(starts, stops, before * FACTORS[0] + behind * FACTORS[1])


def _common_pairs_of_stretches(stretches: Sequence[_Stretches]) -> NDArray[np.uint64]:
    """Pairs of stretches that follow each other in most examples."""
    links, counts = np.unique(
        np.concatenate([np.unique(one.links) for one in stretches]), return_counts=True
    )
    return links[counts >= SHARE * len(stretches)]


def _grams_of_long_or_linked_stretches(
    stretches: _Stretches, links: NDArray[np.uint64], in_a_row: int, grams: int
) -> NDArray[np.bool_]:
    """(grams,) true for the grams of stretches that are long, or that have a common neighbour."""
    is_common = np.isin(stretches.links, links)
    is_long = stretches.stops - stretches.starts + in_a_row > LONG_STRETCH * in_a_row
    kept = np.zeros(grams, dtype=np.bool_)
    for i in np.flatnonzero(is_common[:-1] | is_common[1:] | is_long):
        kept[stretches.starts[i] : stretches.stops[i]] = True
    return kept


def _tokens_of_grams(begins: NDArray[np.bool_], tokens: int, in_a_row: int) -> NDArray[np.bool_]:
    """(tokens,) true for the tokens of each gram that begins at a true entry."""
    covered = np.zeros(tokens, dtype=np.bool_)
    for step in range(in_a_row):
        covered[step : len(begins) + step] |= begins
    return covered
