"""Fingerprints of rows: a few bytes each that tell equal and similar rows.

Sketches are MinHash (Broder 1997): the share of equal entries of two sketches estimates the Jaccard similarity of the
sets they were made from.

Sketches are of token ids, which exist already as one flat array, and not of words: no text is split again, and it
works for languages without spaces. The trade-off of so few hashes: an estimate from 16 entries is off by up to some
0.12 (one standard deviation at similarity 0.5). It only chooses candidates; rules compare these rows themselves.
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
from truetune.data.media_of_row import MEDIA_PARTS, find_media_of_row
from truetune.render.rendering import Source

NGRAM = 5
"""Tokens of a phrase: some four words, which two texts seldom share by chance. Chosen, not measured; 3 would call texts
of one topic similar, 10 would miss a row with a word changed in every sentence."""
HASHES = 16
"""Entries of a sketch, 64 bytes a row. Chosen, not measured: the error falls with the root of this number."""
WORD_HASHES = 8
"""Entries of the sketch of single tokens, which only looks for the most alike rows"""
ANSWER_HASHES = 8
"""Entries of the sketch of answers alone"""
IS_CONTENT = np.zeros(len(Source), dtype=np.bool_)
IS_CONTENT[
    [
        Source.USER,
        Source.ASSISTANT,
        Source.REASONING,
        Source.TOOL_CALL,
        Source.TOOL_RESULT,
        Source.TEXT,
    ]
] = True
IS_ANSWER = np.zeros(len(Source), dtype=np.bool_)
IS_ANSWER[[Source.ASSISTANT, Source.REASONING, Source.TOOL_CALL, Source.TEXT]] = True
_NOISE = str.maketrans("", "", string.punctuation + string.whitespace)
# Fixed, for sketches of two data sets (training and evaluation) are compared with each other.
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
    """(rows, HASHES) sketch of the token 5-grams of the contents; EMPTY_SKETCH where there are none"""
    answer: NDArray[np.uint64]
    """(rows,) of the last answer, normalised"""
    answer_phrases: NDArray[np.uint32]
    """(rows, ANSWER_HASHES) as `phrases`, of the answers alone: long prompts are alike whose answers are not"""


def make_fingerprints(
    rows: Sequence[Conversation],
    examples: Sequence[int | None],
    ids: NDArray[np.int32],
    offsets: NDArray[np.int64],
    source: NDArray[np.uint8],
) -> Fingerprints:
    """Fingerprints of rows; `examples` holds the number of each row's longest example, None where it has none."""
    marks = [_mark_of_media(row) for row in rows]
    texts = [_with_mark(_texts_of_turns(row), mark) for row, mark in zip(rows, marks, strict=True)]
    joined = [
        "\x1f".join((*turns, *_label_or_rejected_texts(row)))
        for row, turns in zip(rows, texts, strict=True)
    ]
    prompts = ["\x1f".join(turns[:-1]) for turns in texts]
    hashed, value_offsets = _hash_tokens(ids, offsets, IS_CONTENT[source])
    # -1 is the last row of the sketches, which stands for a row without an example.
    numbers = [-1 if i is None else i for i in examples]
    phrases = _phrase_sketches(hashed, value_offsets, HASHES)[numbers]
    of_answers = _hash_tokens(ids, offsets, IS_ANSWER[source])
    answers = _phrase_sketches(*of_answers, ANSWER_HASHES)[numbers]
    # The same answer with the verdicts good and bad is no duplicate: one flipped bit makes every entry another one.
    # Entries of an empty sketch stay, for they say "nothing".
    is_bad = np.array([row.label is False for row in rows], dtype=np.bool_)
    phrases[is_bad] ^= phrases[is_bad] != EMPTY_SKETCH
    _tell_phrases_apart_by_media(phrases, marks)
    return Fingerprints(
        exact=_hash_texts(joined),
        normal=_hash_texts([text.lower().translate(_NOISE) for text in joined]),
        prompt=_hash_texts([text.lower().translate(_NOISE) for text in prompts]),
        phrases=phrases,
        answer=_hash_texts(
            [turns[-1].lower().translate(_NOISE) if turns else "" for turns in texts]
        ),
        answer_phrases=answers,
    )


def _tell_phrases_apart_by_media(phrases: NDArray[np.uint32], marks: Sequence[str]) -> None:
    """Change the sketches of rows with pictures: the same question on another picture is another row.

    Args:
        phrases: (rows, HASHES), changed in place.
        marks: (rows,) hexadecimal digits, or nothing for a row without pictures.
    """
    for number, mark in enumerate(marks):
        if mark:
            has_phrases = phrases[number] != EMPTY_SKETCH
            phrases[number] ^= has_phrases * np.uint32(int(mark[:7], 16))


def word_sketches(
    examples: Sequence[int | None],
    ids: NDArray[np.int32],
    offsets: NDArray[np.int64],
    kept: NDArray[np.bool_],
) -> NDArray[np.uint32]:
    """(rows, WORD_HASHES) sketch of the single tokens of each row's longest example.

    `kept`: (tokens,) those that count; `examples` as in `make_fingerprints`.
    """
    numbers = [-1 if i is None else i for i in examples]
    return _minhash_sketch(*_hash_tokens(ids, offsets, kept), 0, WORD_HASHES)[numbers]


def phrase_sketches_of_rejected_sides(
    ids: NDArray[np.int32], offsets: NDArray[np.int64], kept: NDArray[np.bool_]
) -> NDArray[np.uint32]:
    """(examples + 1, HASHES) as `phrases`, of the rejected sides of pairs: their phrases are no chosen side's.

    The minimum of two sketches is the sketch of both sets. The last row stands for no example.
    """
    # A bit that no vocabulary reaches makes other tokens of them. Without it a pair whose sides are exchanged would be
    # a duplicate of the pair.
    hashed, value_offsets = _hash_tokens(ids ^ np.int32(1 << 30), offsets, kept)
    return _phrase_sketches(hashed, value_offsets, HASHES)


def _hash_tokens(
    ids: NDArray[np.int32], offsets: NDArray[np.int64], kept: NDArray[np.bool_]
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """((kept tokens,) hashes, (examples + 1,) where each example begins in them).

    Args:
        ids: (tokens,)
        offsets: (examples + 1,) into the tokens.
        kept: (tokens,) those that count.
    """
    # Fibonacci hashing: neighbouring ids get values far apart, or a sum of five would have few different values.
    value_offsets = np.concatenate(([0], np.cumsum(kept, dtype=np.int64)))[offsets]
    hashed = ids[kept].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    hashed ^= hashed >> np.uint64(29)
    return hashed, value_offsets


def _phrase_sketches(
    hashed: NDArray[np.uint64], value_offsets: NDArray[np.int64], hashes: int
) -> NDArray[np.uint32]:
    """(examples + 1, hashes) of the NGRAM tokens from each token on; arguments as `_hash_tokens` gives them."""
    # Each position has a factor of its own, so that the order of tokens counts. Grams that reach over the end of an
    # example are made too, and `_minhash_sketch` leaves them out.
    grams = np.zeros(max(0, len(hashed) - NGRAM + 1), dtype=np.uint64)
    for i, step in enumerate(_STEPS):
        grams += hashed[i : len(grams) + i] * step
    return _minhash_sketch(grams, value_offsets, NGRAM - 1, hashes)


def _minhash_sketch(
    values: NDArray[np.uint64], value_offsets: NDArray[np.int64], overhang: int, hashes: int
) -> NDArray[np.uint32]:
    """The smallest of each example's values under each of several hash functions.

    Args:
        values: one for each token, or for each n-gram that begins there.
        value_offsets: (examples + 1,) where each example begins in `values`.
        overhang: how many of the last values of an example reach over its end.
        hashes: how many hash functions.

    Returns:
        (examples + 1, hashes); the last row stands for a row without an example.
    """
    count = len(value_offsets) - 1
    sketch = np.full((count + 1, hashes), EMPTY_SKETCH, dtype=np.uint32)
    low = value_offsets[:-1]
    high = np.minimum(value_offsets[1:] - overhang, len(values))
    not_empty = np.flatnonzero(high > low)
    if len(not_empty):
        # `reduceat` over low, high, low, high, ...: every second result is an example, the others are the gaps between
        # them. An edge at the very end is an error to it, and means "to the end" where it is left out.
        edges = np.stack((low[not_empty], high[not_empty]), axis=1).ravel()
        if edges[-1] == len(values):
            edges = edges[:-1]
        for k in range(hashes):
            # Multiply-shift hashing: the upper half of a product with an odd factor.
            mixed = ((values * _FACTORS[k]) >> np.uint64(32)).astype(np.uint32)
            sketch[not_empty, k] = np.minimum.reduceat(mixed, edges)[::2]
    return sketch


def _texts_of_turns(row: Conversation) -> list[str]:
    """What each turn of a row says; the last one is the answer."""
    if not row.is_chat:
        return [row.prompt or "", row.completion or row.text or ""]
    return [
        text_of(message.get("content")) + text_of(message.get("tool_calls"))
        for message in row.messages
    ]


def _with_mark(turns: list[str], mark: str) -> list[str]:
    """The turns with the mark of the row's pictures at the first one: they belong to what is asked."""
    return [turns[0] + mark, *turns[1:]] if mark and turns else turns


def _mark_of_media(row: Conversation) -> str:
    """Hexadecimal digits that are equal for equal pictures, sounds and videos; empty where the row has none."""
    media = find_media_of_row(row)
    if not media:
        return ""
    values = [reference.value for reference in (*media.in_columns, *media.in_parts)]
    return blake2b(repr(values).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _label_or_rejected_texts(row: Conversation) -> list[str]:
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
    """The text of a content: a string, or its parts one after the other, without pictures, sound and video."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(map(_text_of_part, content))
    return "" if content is None else str(content)


def _text_of_part(part: Any) -> str:
    """The text of a part of a content; a part of an unknown form is written out."""
    if not isinstance(part, dict):
        return str(part)
    return "" if part.get("type") in MEDIA_PARTS else str(part.get("text", part))


def _hash_texts(texts: list[str]) -> NDArray[np.uint64]:
    """(texts,) 8 bytes of blake2b: among ten million rows two differ with equal hashes once in 300,000 data sets."""
    digests = b"".join(
        blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest() for text in texts
    )
    return np.frombuffer(digests, dtype=np.uint64)


EMPTY_TEXT_HASH = int(_hash_texts([""])[0])
"""Of a row without a prompt, and of a text of punctuation alone: such rows have nothing in common"""
