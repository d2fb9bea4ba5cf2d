"""Encoder: texts in bulk to ids, and the character at which each token begins."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import tokenizers
from numpy.typing import NDArray

from truetune.encode.engines import Engine, EnginesDiffer, Flat, fastest, flat, reference
from truetune.encode.pieces import Cut, cut
from truetune.encode.vocabulary import Vocabulary

PATIENCE = 1 << 21
"""By then it pays to load a faster engine."""
SAMPLES = 2000
"""Pieces of the first texts that a fast engine must encode as `tokenizers` did."""
CHECK_EVERY = 199
"""One in so many pieces that a fast engine encodes is encoded by `tokenizers` as well, and compared."""


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

    def __init__(
        self, backend: tokenizers.Tokenizer, *, only_reference: bool = False, patience: int = PATIENCE
    ) -> None:
        """`patience` is how many characters `tokenizers` encodes before a faster engine is loaded."""
        self.backend = backend
        self.vocabulary = Vocabulary(backend)
        self.engine = self._reference = reference(backend)
        self._cut = cut(backend)
        self._patience = patience
        self._settled = only_reference or self._cut is None

    def encode(self, texts: list[str]) -> Encoded:
        """Where the ids of a text spell it byte for byte, their lengths give the starts; else the offsets do.

        Raises EnginesDiffer.
        """
        if self._cut is None:
            return self._placed(self._reference.encode(texts), texts, "")
        parts = [self._cut.pattern.split(text) for text in texts]
        if self._cut.prefix and any(split[0] for split in parts):
            return self._placed(self._reference.encode(texts), texts, "")
        return self._by_pieces(parts, self._cut)

    def as_text(self, text: str, content: Sequence[tuple[int, int]]) -> Encoded | None:
        """One text, in which control tokens that begin in one of the ranges are only text.

        None where this tokenizer can't do that.
        """
        if self._cut is None or self._cut.prefix:
            return None
        pieces, at = [""], 0
        for split in self._cut.pattern.split(text):
            forged = split in self._cut.added and any(start <= at < end for start, end in content)
            if split in self._cut.added and not forged:
                pieces += [split, ""]
            else:
                pieces[-1] += split
            at += len(split)
        known = [
            [self._cut.added[piece]] if i % 2 else self._literal.encode(piece, add_special_tokens=False).ids
            for i, piece in enumerate(pieces)
        ]
        encoded = self._placed(flat(known), pieces, "")
        bases = np.cumsum([0, *map(len, pieces[:-1])])
        starts = encoded.starts + np.repeat(bases, np.diff(encoded.offsets)).astype(np.int32)
        return Encoded(encoded.ids, encoded.offsets[[0, -1]], starts)

    @cached_property
    def _literal(self) -> tokenizers.Tokenizer:
        """A tokenizer that takes its control tokens for text."""
        backend = tokenizers.Tokenizer.from_str(self.backend.to_str())
        backend.encode_special_tokens = True
        return backend

    def _by_pieces(self, parts: list[list[str]], cut: Cut) -> Encoded:
        """Encode each different piece once, and lay the pieces of each text end to end."""
        numbers: defaultdict[str, int] = defaultdict(itertools.count(len(cut.added) + 1).__next__)
        numbers.update({token: i for i, token in enumerate(("", *cut.added))})
        everything = list(itertools.chain.from_iterable(parts))
        order = np.fromiter(map(numbers.__getitem__, everything), dtype=np.int64, count=len(everything))
        sizes = np.fromiter(map(len, everything), dtype=np.int64, count=len(everything))
        borders = np.concatenate(([0], np.cumsum([len(split) for split in parts])))
        known = self._pieces(list(itertools.islice(numbers, len(cut.added) + 1, None)), cut)

        lengths = np.diff(known.offsets)[order]
        ends = np.concatenate(([0], np.cumsum(lengths)))
        gather = np.repeat(known.offsets[order] - ends[:-1], lengths) + np.arange(ends[-1])
        places = np.concatenate(([0], np.cumsum(sizes)))
        within = places[:-1] - np.repeat(places[borders[:-1]], np.diff(borders))
        starts = known.starts[gather] + np.repeat(within, lengths)
        return Encoded(known.ids[gather], ends[borders], starts.astype(np.int32))

    def _pieces(self, pieces: list[str], cut: Cut) -> Encoded:
        """Nothing, the added tokens, and then these pieces, each as a text of its own."""
        engine = self._engine(pieces)
        found = self._behind_prefix(engine, pieces, cut.prefix)
        if engine is not self._reference:
            self._compare(engine, found, pieces, cut.prefix)
        encoded = self._placed(found, pieces, cut.prefix)
        count = len(cut.added)
        return Encoded(
            np.concatenate((np.array(list(cut.added.values()), dtype=np.int32), encoded.ids)),
            np.concatenate(([0], np.arange(count), encoded.offsets + count)),
            np.concatenate((np.zeros(count, dtype=np.int32), encoded.starts)),
        )

    def _engine(self, pieces: list[str]) -> Engine:
        if not self._settled:
            self._patience -= sum(map(len, pieces))
            if self._patience < 0:
                self.engine, self._settled = fastest(self.backend, pieces[:SAMPLES]), True
        return self.engine

    def _compare(self, engine: Engine, found: Flat, pieces: list[str], prefix: str) -> None:
        odd = itertools.islice((i for i, piece in enumerate(pieces) if not piece.isascii()), 4)
        chosen = sorted({*range(0, len(pieces), CHECK_EVERY), *odd})
        wanted = self._behind_prefix(self._reference, [pieces[i] for i in chosen], prefix)
        for place, i in enumerate(chosen):
            if not np.array_equal(wanted.of(place), found.of(i)):
                raise EnginesDiffer(f"{engine.name} and {self._reference.name} encode {pieces[i][:200]!r} differently")

    @staticmethod
    def _behind_prefix(engine: Engine, texts: list[str], prefix: str) -> Flat:
        if not prefix:
            return engine.encode(texts)
        found = engine.encode([prefix + text for text in texts])
        kept = np.ones(len(found.ids), dtype=np.bool_)
        kept[found.offsets[:-1]] = False
        return Flat(found.ids[kept], found.offsets - np.arange(len(found.offsets)))

    def _placed(self, found: Flat, texts: list[str], prefix: str) -> Encoded:
        """With the starts: by the bytes that the ids spell, for texts that they do not spell by the offsets."""
        raw = np.frombuffer("".join(texts).encode("utf-8", "surrogatepass"), dtype=np.uint8)
        first = (raw & 0xC0) != 0x80
        character = np.cumsum(first, dtype=np.int64) - 1
        bounds = np.concatenate(([0], np.cumsum([len(text) for text in texts])))
        byte_bounds = bounds if len(raw) == bounds[-1] else np.append(np.flatnonzero(first), len(raw))[bounds]

        spelled = self.vocabulary.bytes(found.ids)
        lengths = self.vocabulary.lengths[found.ids]
        ends = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
        text_ends = ends[found.offsets]
        extra = np.diff(text_ends) - np.diff(byte_bounds)
        """a space that the tokenizer writes before a text"""
        if not extra.any() and np.array_equal(spelled, raw):
            starts = character[ends[:-1]] if len(ends) > 1 else ends[:-1]
            return Encoded(
                found.ids, found.offsets, (starts - np.repeat(bounds[:-1], np.diff(found.offsets))).astype(np.int32)
            )
        return self._one_by_one(found, texts, prefix)

    def _one_by_one(self, found: Flat, texts: list[str], prefix: str) -> Encoded:
        starts = np.zeros(len(found.ids), dtype=np.int32)
        odd = []
        for i, text in enumerate(texts):
            ids, raw = found.of(i), text.encode("utf-8", "surrogatepass")
            spelled = self.vocabulary.bytes(ids).tobytes()
            shift = len(spelled) - len(raw)
            if spelled != raw and not (shift == 1 and spelled[:1] == b" " and spelled[1:] == raw):
                odd.append(i)
            elif len(ids):
                ends = np.cumsum(self.vocabulary.lengths[ids], dtype=np.int64)
                begins = np.clip(ends - self.vocabulary.lengths[ids] - shift, 0, max(len(raw) - 1, 0))
                starts[found.offsets[i] : found.offsets[i + 1]] = _characters(raw)[begins] if raw else 0
        if odd:
            encodings = self.backend.encode_batch([prefix + texts[i] for i in odd], add_special_tokens=False)
            for i, encoding in zip(odd, encodings, strict=True):
                places = np.array([start for start, _ in encoding.offsets[bool(prefix) :]], dtype=np.int32)
                places = np.maximum(places - len(prefix), 0)
                starts[found.offsets[i] : found.offsets[i + 1]] = np.maximum.accumulate(places) if len(places) else 0
        return Encoded(found.ids, found.offsets, starts)


def _characters(raw: bytes) -> NDArray[np.int64]:
    """(bytes,) the index of the character that each byte belongs to."""
    return np.cumsum((np.frombuffer(raw, dtype=np.uint8) & 0xC0) != 0x80) - 1
