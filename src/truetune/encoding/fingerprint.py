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
CONTENT[[Source.USER, Source.ASSISTANT, Source.REASONING, Source.TOOL_CALL, Source.TOOL_RESULT, Source.TEXT]] = True
_NOISE = str.maketrans("", "", string.punctuation + string.whitespace)
_RNG = np.random.default_rng(20240229)
_FACTORS = _RNG.integers(1, 2**63, size=HASHES, dtype=np.uint64) | np.uint64(1)
_STEPS = _RNG.integers(1, 2**63, size=NGRAM, dtype=np.uint64) | np.uint64(1)
NOTHING = np.uint32(0xFFFFFFFF)


@dataclass(frozen=True, slots=True)
class Fingerprints:
    """Of the rows of a batch."""

    exact: NDArray[np.uint64]
    """(rows,) of roles and contents"""
    normal: NDArray[np.uint64]
    """(rows,) the same without case, white space and punctuation"""
    prompt: NDArray[np.uint64]
    """(rows,) of what stands before the last answer, normalised"""
    phrases: NDArray[np.uint32]
    """(rows, HASHES) sketch of the token 5-grams of the contents; NOTHING where there are none"""
    words: NDArray[np.uint32]
    """(rows, WORD_HASHES) sketch of the single tokens"""


def fingerprints(
    rows: Sequence[Conversation],
    examples: Sequence[int | None],
    ids: NDArray[np.int32],
    offsets: NDArray[np.int64],
    source: NDArray[np.uint8],
) -> Fingerprints:
    """Fingerprints of rows; `examples` holds the number of each row's longest example, None where it has none."""
    texts = [_contents(row) for row in rows]
    joined = ["\x1f".join(turns) for turns in texts]
    prompts = ["\x1f".join(turns[:-1]) for turns in texts]
    kept = CONTENT[source]
    places = np.concatenate(([0], np.cumsum(kept, dtype=np.int64)))[offsets]
    hashed = ids[kept].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    hashed ^= hashed >> np.uint64(29)
    grams = np.zeros(max(0, len(hashed) - NGRAM + 1), dtype=np.uint64)
    for i, step in enumerate(_STEPS):
        grams += hashed[i : len(grams) + i] * step
    numbers = [-1 if i is None else i for i in examples]
    return Fingerprints(
        exact=_hashes(joined),
        normal=_hashes([text.lower().translate(_NOISE) for text in joined]),
        prompt=_hashes([text.lower().translate(_NOISE) for text in prompts]),
        phrases=_sketch(grams, places, NGRAM - 1, HASHES)[numbers],
        words=_sketch(hashed, places, 0, WORD_HASHES)[numbers],
    )


def _sketch(values: NDArray[np.uint64], places: NDArray[np.int64], short: int, hashes: int) -> NDArray[np.uint32]:
    """(examples + 1, hashes); the last row stands for a row without an example."""
    count = len(places) - 1
    sketch = np.full((count + 1, hashes), NOTHING, dtype=np.uint32)
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


def _contents(row: Conversation) -> list[str]:
    if not row.is_chat:
        return [row.prompt or "", row.completion or row.text or ""]
    return [text_of(message.get("content")) + text_of(message.get("tool_calls")) for message in row.messages]


def text_of(content: Any) -> str:
    """The text of a content: a string, or its parts one after the other."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(str(part.get("text", part)) if isinstance(part, dict) else str(part) for part in content)
    return "" if content is None else str(content)


def _hashes(texts: list[str]) -> NDArray[np.uint64]:
    digests = b"".join(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest() for text in texts)
    return np.frombuffer(digests, dtype=np.uint64)
