"""Counts how often each supervised token and each whole answer occurs in tokenized rows, which
tells what losses they allow.

A model that knows nothing but these counts reaches the entropy of the tokens; one that has memorised the rows reaches
that of the answers. Memory grows with the number of different answers, of which each is held once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from truetune.render.template_probes import Probes
from truetune.tokenized.find_token_sources import TokenPlacer
from truetune.tokenized.open_token_cache import TokenCache
from truetune.tokenized.read_tokenized_rows_in_chunks import read_chunks


@dataclass(frozen=True)
class SupervisedCounts:
    """Counts over all rows."""

    rows: int
    tokens: NDArray[np.int64]
    """By id, of the supervised tokens; of all tokens where nothing says what is learned"""
    answers: Counter[bytes]
    """Of the supervised tokens of each row together"""


def count_supervised_tokens_and_answers(cache: TokenCache, probes: Probes) -> SupervisedCounts:
    """Count how often each token and each answer that a cache supervises occurs. Raises DataError."""
    placer = TokenPlacer(probes)
    tokens = np.zeros(len(placer.vocabulary.lengths), np.int64)
    answers: Counter[bytes] = Counter()
    rows = 0
    for chunk in read_chunks(cache.sources):
        placed = placer.place(chunk)
        says = chunk.labels is not None or bool(chunk.masks)
        learned = (
            (chunk.supervised if says else np.ones(len(chunk.ids), np.bool_))
            & placed.valid
            & ~placed.padding
        )
        tokens += np.bincount(chunk.ids[learned], minlength=len(tokens))
        rows += len(chunk.rows)
        for start, end in zip(chunk.offsets[:-1].tolist(), chunk.offsets[1:].tolist(), strict=True):
            # Bytes hash quicker than tuples of ints, and equal ids give equal bytes.
            answers[chunk.ids[start:end][learned[start:end]].tobytes()] += 1
    return SupervisedCounts(rows, tokens, answers)
