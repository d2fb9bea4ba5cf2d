"""Boilerplate: tokens that most examples have, word for word, wherever they stand in them."""

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
    masks = [
        _covered_tokens(np.isin(one, common), len(example.ids), in_a_row) & example.is_prompt
        for one, example in zip(grams, examples, strict=True)
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


def _covered_tokens(begins: NDArray[np.bool_], tokens: int, in_a_row: int) -> NDArray[np.bool_]:
    """(tokens,) those of a stretch that begins at a true entry."""
    covered = np.zeros(tokens, dtype=np.bool_)
    for step in range(in_a_row):
        covered[step : len(begins) + step] |= begins
    return covered
