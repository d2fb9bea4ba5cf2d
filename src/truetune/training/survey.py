"""Survey: what can be known of a run's data and model before anything is chosen."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from truetune.data.conversation import Conversation
from truetune.data.rows import read_conversations
from truetune.encoding.encoder import Encoder
from truetune.encoding.stream import batch as batch_of
from truetune.errors import SpecError, TruetuneError
from truetune.render.probes import prepared
from truetune.spec.run import RunSpec
from truetune.training.shape import Shape, shape_of

SAMPLED = 1000
"""Rows that are looked at"""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of the examples that were looked at."""

    examples: int
    mean: float
    most: int
    """95 of 100 examples have at most so many."""
    longest: int


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found."""

    format: str | None
    """Of the first row"""
    rows: int
    """An estimate, where there are more than were looked at"""
    exact: bool
    lengths: Lengths | None
    """None where the tokenizer could not be read, or nothing was encoded"""
    shape: Shape | None
    """None where config.json could not be read"""
    notes: tuple[str, ...]
    """What could not be looked at, and why"""


def survey(spec: RunSpec) -> Survey:
    """Look at the first rows of `data`, and at the model's config.json. Raises DataError."""
    rows, count, exact = _sample(spec)
    notes: list[str] = []
    lengths = _tried(lambda: _lengths(spec, rows), "the lengths of the examples", notes)
    shape = _tried(lambda: shape_of(spec), "the size of the model", notes)
    return Survey(rows[0].format if rows else None, count, exact, lengths, shape, tuple(notes))


def _sample(spec: RunSpec) -> tuple[list[Conversation], int, bool]:
    told = [0, 0, 1]

    def listen(rows: int, done: int, total: int) -> None:
        told[:] = rows, done, total

    source = read_conversations(spec.data, format=spec.format, columns=spec.map, progress=listen)
    rows = list(islice(source, SAMPLED))
    if len(rows) < SAMPLED or next(source, None) is None:
        return rows, len(rows), True
    seen, done, total = told
    return rows, math.ceil(seen * total / max(done, 1)), False


def _lengths(spec: RunSpec, rows: list[Conversation]) -> Lengths:
    """Of a pair, the longer side counts."""
    ready = replace(prepared(spec), only_reference=True)
    batch = batch_of(rows, ready.renderer(), Encoder(ready.tokenizer.backend, only_reference=True))
    if not batch.examples:
        raise SpecError(f"none of {len(rows):,} rows can be rendered: {batch.rejected[0].reason}")
    tokens = batch.lengths
    if batch.pairs is not None:
        tokens = np.maximum(batch.pairs.chosen.lengths, batch.pairs.rejected.lengths)
    return Lengths(
        len(tokens), float(tokens.mean()), int(np.quantile(tokens, 0.95)), int(tokens.max())
    )


def _tried(look: Callable[[], Any], what: str, notes: list[str]) -> Any:
    try:
        return look()
    except TruetuneError as error:
        notes.append(f"{what}: not known ({error})")
        return None
