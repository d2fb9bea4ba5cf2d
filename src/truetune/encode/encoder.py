"""Encoder: texts in bulk to ids, and the character at which each token begins.

A byte-level tokenizer cuts a text at its added tokens first, and encodes what stands between them piece by piece. So
do we, where that is so: a piece that stands in many texts (the turns that the examples of one chat share) is encoded
once a batch.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import tokenizers
from numpy.typing import NDArray

from truetune.encode.vocabulary import Vocabulary


class Encoded(NamedTuple):
    """Tokens of several texts, laid end to end."""

    ids: NDArray[np.int32]
    """(tokens,)"""
    offsets: NDArray[np.int64]
    """(texts + 1,)"""
    starts: NDArray[np.int32]
    """(tokens,) the character of its text that holds a token's first byte"""


class Encoder:
    """Encodes without special tokens of its own: what stands in the text is all there is."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self.backend = backend
        self.vocabulary = Vocabulary(backend)
        self._spelled, self._asked = 0, 0
        self._cut = _added_tokens(backend)
        self._first = True

    def encode(self, texts: list[str]) -> Encoded:
        """Where the ids of a text spell it byte for byte, their lengths give the starts; else the offsets do."""
        if self._cut is None:
            return self._whole(texts)
        encoded = self._by_pieces(texts, self._cut)
        if self._first:
            self._first = False
            whole = self._whole(texts)
            if not np.array_equal(whole.ids, encoded.ids) or not np.array_equal(whole.starts, encoded.starts):
                self._cut = None
                return whole
        return encoded

    def _by_pieces(self, texts: list[str], cut: re.Pattern[str]) -> Encoded:
        """Encode each different piece once, and lay the pieces of each text end to end."""
        numbers: dict[str, int] = {}
        order, places, counts = [], [], []
        for text in texts:
            at = 0
            pieces = [piece for piece in cut.split(text) if piece]
            for piece in pieces:
                order.append(numbers.setdefault(piece, len(numbers)))
                places.append(at)
                at += len(piece)
            counts.append(len(pieces))
        known = self._whole(list(numbers))
        sequence = np.array(order, dtype=np.int64)
        lengths = np.diff(known.offsets)[sequence]
        ends = np.cumsum(lengths)
        gather = np.arange(ends[-1] if len(ends) else 0) + np.repeat(
            known.offsets[:-1][sequence] - ends + lengths, lengths
        )
        borders = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))
        return Encoded(
            known.ids[gather],
            np.concatenate(([0], ends))[borders],
            (known.starts[gather] + np.repeat(np.array(places, dtype=np.int64), lengths)).astype(np.int32),
        )

    def _whole(self, texts: list[str]) -> Encoded:
        if self._asked > 64 and self._spelled * 2 < self._asked:
            return self._by_offsets(texts)
        lists = [e.ids for e in self.backend.encode_batch_fast(texts, add_special_tokens=False)]
        raw = [text.encode("utf-8", "surrogatepass") for text in texts]
        odd = [i for i, ids in enumerate(lists) if self.vocabulary.bytes(ids) != raw[i]]
        self._asked += len(texts)
        self._spelled += len(texts) - len(odd)
        encoded = self._by_lengths(lists, texts, raw)
        if odd:
            replaced = self._by_offsets([texts[i] for i in odd])
            for place, i in enumerate(odd):
                theirs = replaced.starts[replaced.offsets[place] : replaced.offsets[place + 1]]
                encoded.starts[encoded.offsets[i] : encoded.offsets[i + 1]] = theirs
        return encoded

    def _by_lengths(self, lists: list[list[int]], texts: list[str], raw: list[bytes]) -> Encoded:
        ids, offsets = _flat(lists)
        lengths = self.vocabulary.lengths[ids]
        ends = np.cumsum(lengths, dtype=np.int64)
        starts = ends - lengths
        bases = np.concatenate((ends, ends[-1:] if len(ends) else [0]))[offsets[:-1] - 1]
        bases[offsets[:-1] == 0] = 0
        starts = (starts - np.repeat(bases, np.diff(offsets))).astype(np.int32)
        for i, text in enumerate(texts):
            if len(raw[i]) != len(text):
                low, high = offsets[i], offsets[i + 1]
                starts[low:high] = _characters(raw[i])[np.minimum(starts[low:high], len(raw[i]))]
        return Encoded(ids, offsets, starts)

    def _by_offsets(self, texts: list[str]) -> Encoded:
        encodings = self.backend.encode_batch(texts, add_special_tokens=False)
        ids, offsets = _flat([e.ids for e in encodings])
        starts = np.zeros(len(ids), dtype=np.int32)
        for i, encoding in enumerate(encodings):
            places = np.array([start for start, _ in encoding.offsets], dtype=np.int32)
            starts[offsets[i] : offsets[i + 1]] = np.maximum.accumulate(places) if len(places) else places
        return Encoded(ids, offsets, starts)


def _added_tokens(backend: tokenizers.Tokenizer) -> re.Pattern[str] | None:
    """Where texts are cut; None where what stands beside a token changes how it is encoded."""
    added = [token for token in backend.get_added_tokens_decoder().values() if token.content]
    plain = not any(token.lstrip or token.rstrip or token.single_word or token.normalized for token in added)
    if not added or not plain or "ByteLevel" not in repr(type(backend.decoder)):
        return None
    contents = sorted((token.content for token in added), key=len, reverse=True)
    return re.compile(f"({'|'.join(map(re.escape, contents))})")


def _flat(lists: list[list[int]]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    offsets = np.zeros(len(lists) + 1, dtype=np.int64)
    np.cumsum([len(ids) for ids in lists], out=offsets[1:])
    arrays = [np.array(ids, dtype=np.int32) for ids in lists]
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.int32), offsets


def _characters(raw: bytes) -> NDArray[np.int32]:
    """(bytes + 1,) the index of the character that each byte belongs to."""
    first = (np.frombuffer(raw, dtype=np.uint8) & 0xC0) != 0x80
    count = np.cumsum(first, dtype=np.int32)
    return np.concatenate((count - 1, count[-1:] if len(count) else np.zeros(1, dtype=np.int32)))
