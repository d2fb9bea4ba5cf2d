"""Fingerprints of rows: a few bytes each that tell equal and similar rows.

Sketches are MinHash (Broder 1997): the share of equal entries of two sketches estimates the Jaccard similarity of the
sets they were made from.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truetune.data.conversation import Conversation
from truetune.render.rendering import Source

NGRAM = 5
HASHES = 16
WORD_HASHES = 8
CONTENT = np.zeros(len(Source), dtype=np.bool_)
CONTENT[
    [
        Source.USER,
        Source.ASSISTANT,
        Source.REASONING,
        Source.TOOL_CALL,
        Source.TOOL_RESULT,
        Source.TEXT,
    ]
] = True
_NOISE = str.maketrans("", "", string.punctuation + string.whitespace)
_RNG = np.random.default_rng(20240229)
_FACTORS = _RNG.integers(1, 2**63, size=HASHES, dtype=np.uint64) | np.uint64(1)
_STEPS = _RNG.integers(1, 2**63, size=NGRAM, dtype=np.uint64) | np.uint64(1)
EMPTY_SKETCH = np.uint32(0xFFFFFFFF)


@dataclass(frozen=True, slots=True)
class Fingerprints:
    """Of the rows of a batch."""

    exact: NDArray[np.uint64]
    """(rows,) of contents; of both sides of a pair, and with KTO's verdict"""
    normal: NDArray[np.uint64]
    """(rows,) the same without case, white space and punctuation"""
    prompt: NDArray[np.uint64]
    """(rows,) of what stands before the last answer, normalised"""
    phrases: NDArray[np.uint32]
    """(rows, HASHES) sketch of the token 5-grams of the contents; NOTHING where there are none"""


def make_fingerprints(
    rows: Sequence[Conversation],
    examples: Sequence[int | None],
    ids: NDArray[np.int32],
    offsets: NDArray[np.int64],
    source: NDArray[np.uint8],
) -> Fingerprints:
    """Fingerprints of rows; `examples` holds the number of each row's longest example, None where it has none."""
    texts = [_turn_texts(row) for row in rows]
    joined = [
        "\x1f".join((*turns, *_preference_texts(row)))
        for row, turns in zip(rows, texts, strict=True)
    ]
    prompts = ["\x1f".join(turns[:-1]) for turns in texts]
    hashed, places = _hash_tokens(ids, offsets, CONTENT[source])
    numbers = [-1 if i is None else i for i in examples]
    phrases = _phrase_sketches(hashed, places)[numbers]
    bad = np.array([row.label is False for row in rows], dtype=np.bool_)
    phrases[bad] ^= phrases[bad] != EMPTY_SKETCH
    return Fingerprints(
        exact=_hash_texts(joined),
        normal=_hash_texts([text.lower().translate(_NOISE) for text in joined]),
        prompt=_hash_texts([text.lower().translate(_NOISE) for text in prompts]),
        phrases=phrases,
    )


def word_sketches(
    examples: Sequence[int | None],
    ids: NDArray[np.int32],
    offsets: NDArray[np.int64],
    kept: NDArray[np.bool_],
) -> NDArray[np.uint32]:
    """(rows, WORD_HASHES) sketch of the single tokens of each row's longest example.

    `kept`: (tokens,) those that count; `examples` as in `fingerprints`.
    """
    numbers = [-1 if i is None else i for i in examples]
    return _minhash_sketch(*_hash_tokens(ids, offsets, kept), 0, WORD_HASHES)[numbers]


def rejected_phrases(
    ids: NDArray[np.int32], offsets: NDArray[np.int64], kept: NDArray[np.bool_]
) -> NDArray[np.uint32]:
    """(examples + 1, HASHES) as `phrases`, of the rejected sides of pairs: their phrases are no chosen side's.

    The minimum of two sketches is the sketch of both sets. The last row stands for no example.
    """
    return _phrase_sketches(*_hash_tokens(ids ^ np.int32(1 << 30), offsets, kept))


def _hash_tokens(
    ids: NDArray[np.int32], offsets: NDArray[np.int64], kept: NDArray[np.bool_]
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """((kept tokens,) hashes, (examples + 1,) where each example begins in them)."""
    places = np.concatenate(([0], np.cumsum(kept, dtype=np.int64)))[offsets]
    hashed = ids[kept].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    hashed ^= hashed >> np.uint64(29)
    return hashed, places


def _phrase_sketches(hashed: NDArray[np.uint64], places: NDArray[np.int64]) -> NDArray[np.uint32]:
    grams = np.zeros(max(0, len(hashed) - NGRAM + 1), dtype=np.uint64)
    for i, step in enumerate(_STEPS):
        grams += hashed[i : len(grams) + i] * step
    return _minhash_sketch(grams, places, NGRAM - 1, HASHES)


def _minhash_sketch(
    values: NDArray[np.uint64], places: NDArray[np.int64], short: int, hashes: int
) -> NDArray[np.uint32]:
    """(examples + 1, hashes); the last row stands for a row without an example."""
    count = len(places) - 1
    sketch = np.full((count + 1, hashes), EMPTY_SKETCH, dtype=np.uint32)
    low = places[:-1]
    high = np.minimum(places[1:] - short, len(values))
    full = np.flatnonzero(high > low)
    if len(full):
        edges = np.stack((low[full], high[full]), axis=1).ravel()
        edges = edges[:-1] if edges[-1] == len(values) else edges
        for k in range(hashes):
            mixed = ((values * _FACTORS[k]) >> np.uint64(32)).astype(np.uint32)
            sketch[full, k] = np.minimum.reduceat(mixed, edges)[::2]
    return sketch


def _turn_texts(row: Conversation) -> list[str]:
    if not row.is_chat:
        return [row.prompt or "", row.completion or row.text or ""]
    return [
        text_of(message.get("content")) + text_of(message.get("tool_calls"))
        for message in row.messages
    ]


def _preference_texts(row: Conversation) -> list[str]:
    """What a preference row holds beside its answer."""
    if row.label is not None:
        return [str(row.label)]
    if isinstance(row.rejected, list):
        return [
            text_of(message.get("content")) + text_of(message.get("tool_calls"))
            for message in row.rejected
        ]
    return [] if row.rejected is None else [row.rejected]


def text_of(content: Any) -> str:
    """The text of a content: a string, or its parts one after the other."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(
            str(part.get("text", part)) if isinstance(part, dict) else str(part) for part in content
        )
    return "" if content is None else str(content)


def _hash_texts(texts: list[str]) -> NDArray[np.uint64]:
    digests = b"".join(
        blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest() for text in texts
    )
    return np.frombuffer(digests, dtype=np.uint64)
