"""Encoder: texts in bulk to ids, and the character at which each token begins."""

from __future__ import annotations

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

    def encode(self, texts: list[str]) -> Encoded:
        """Where the ids of a text spell it byte for byte, their lengths give the starts; else the offsets do."""
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
