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

from truetune.encoding.engines import (
    Engine,
    EnginesDiffer,
    FlatIds,
    OddCharacters,
    fastest_engine,
    flatten_ids,
    insert_ids,
    offsets_of,
    reference_engine,
)
from truetune.encoding.text_pieces import PieceRule, find_piece_rule
from truetune.encoding.token_bytes import TokenBytes

ENGINE_LOAD_CHARACTERS = 1 << 21
"""By then it pays to load a faster engine."""
SAMPLE_PIECES = 1000
"""Pieces of the first texts that a fast engine must encode as `tokenizers` did."""
CHECK_EVERY = 499
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
        self,
        backend: tokenizers.Tokenizer,
        *,
        only_reference: bool = False,
        patience: int = ENGINE_LOAD_CHARACTERS,
    ) -> None:
        """`patience` is how many characters `tokenizers` encodes before a faster engine is loaded."""
        self.backend = backend
        self.vocabulary = TokenBytes(backend)
        self.engine = self._reference = reference_engine(backend)
        self._cut = find_piece_rule(backend)
        self._patience = patience
        self._odd = OddCharacters()
        self._settled = only_reference or self._cut is None

    def encode(self, texts: list[str]) -> Encoded:
        """Where the ids of a text spell it byte for byte, their lengths give the starts; else the offsets do.

        Raises EnginesDiffer, a FastPathError.
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
            (
                [self._cut.added[piece]]
                if i % 2
                else self._literal.encode(piece, add_special_tokens=False).ids
            )
            for i, piece in enumerate(pieces)
        ]
        encoded = self._placed(flatten_ids(known), pieces, "", self._literal)
        bases = offsets_of([len(piece) for piece in pieces])[:-1]
        starts = encoded.starts + np.repeat(bases, np.diff(encoded.offsets)).astype(np.int32)
        return Encoded(encoded.ids, encoded.offsets[[0, -1]], starts)

    @cached_property
    def _literal(self) -> tokenizers.Tokenizer:
        """A tokenizer that takes its control tokens for text."""
        backend = tokenizers.Tokenizer.from_str(self.backend.to_str())
        backend.encode_special_tokens = True
        return backend

    def _by_pieces(self, parts: list[list[str]], cut: PieceRule) -> Encoded:
        """Encode each different piece once, and lay the pieces of each text end to end."""
        numbers: defaultdict[str, int] = defaultdict(itertools.count(len(cut.added) + 1).__next__)
        numbers.update({token: i for i, token in enumerate(("", *cut.added))})
        everything = list(itertools.chain.from_iterable(parts))
        order = np.fromiter(
            map(numbers.__getitem__, everything), dtype=np.int64, count=len(everything)
        )
        sizes = np.fromiter(map(len, everything), dtype=np.int64, count=len(everything))
        borders = offsets_of([len(split) for split in parts])
        known = self._pieces(list(itertools.islice(numbers, len(cut.added) + 1, None)), cut)

        lengths = np.diff(known.offsets)[order]
        ends = offsets_of(lengths)
        gather = np.repeat(known.offsets[order] - ends[:-1], lengths) + np.arange(ends[-1])
        places = offsets_of(sizes)
        within = places[:-1] - np.repeat(places[borders[:-1]], np.diff(borders))
        starts = known.starts[gather] + np.repeat(within, lengths)
        return Encoded(known.ids[gather], ends[borders], starts.astype(np.int32))

    def _pieces(self, pieces: list[str], cut: PieceRule) -> Encoded:
        """Nothing, the added tokens, and then these pieces, each as a text of its own."""
        engine = self._engine(pieces, cut)
        odd = [] if engine is self._reference else self._odd.among(pieces)
        if odd:
            plain = [*pieces]
            for i in odd:
                plain[i] = ""
            theirs = self._behind_prefix(self._reference, [pieces[i] for i in odd], cut.prefix)
            found = insert_ids(self._behind_prefix(engine, plain, cut.prefix), odd, theirs)
        else:
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

    def _engine(self, pieces: list[str], cut: PieceRule) -> Engine:
        if not self._settled:
            self._patience -= sum(map(len, pieces))
            if self._patience < 0:
                self.engine, self._settled = (
                    fastest_engine(self.backend, pieces[:SAMPLE_PIECES], cut.pattern, cut.prefix),
                    True,
                )
        return self.engine

    def _compare(self, engine: Engine, found: FlatIds, pieces: list[str], prefix: str) -> None:
        odd = itertools.islice((i for i, piece in enumerate(pieces) if not piece.isascii()), 2)
        chosen = sorted({*range(0, len(pieces), CHECK_EVERY), *odd})
        wanted = self._behind_prefix(self._reference, [pieces[i] for i in chosen], prefix)
        for place, i in enumerate(chosen):
            if not np.array_equal(wanted.of(place), found.of(i)):
                raise EnginesDiffer(
                    f"{engine.name} and {self._reference.name} encode {pieces[i][:200]!r}"
                    " differently"
                )

    @staticmethod
    def _behind_prefix(engine: Engine, texts: list[str], prefix: str) -> FlatIds:
        if not prefix:
            return engine.encode(texts)
        found = engine.encode([prefix + text for text in texts])
        kept = np.ones(len(found.ids), dtype=np.bool_)
        kept[found.offsets[:-1]] = False
        return FlatIds(found.ids[kept], found.offsets - np.arange(len(found.offsets)))

    def _placed(
        self,
        found: FlatIds,
        texts: list[str],
        prefix: str,
        backend: tokenizers.Tokenizer | None = None,
    ) -> Encoded:
        """With the starts: the bytes before a token, where a text is ASCII and its ids are known to spell it."""
        counts = np.diff(found.offsets)
        ends = offsets_of(self.vocabulary.lengths_of(found.ids))
        starts = ends[:-1] - np.repeat(ends[found.offsets[:-1]], counts)
        sizes = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
        easy = (
            np.fromiter(map(str.isascii, texts), dtype=np.bool_, count=len(texts))
            & self.vocabulary.exact
        )
        easy &= np.diff(ends[found.offsets]) == sizes
        others = np.flatnonzero(~easy)
        if len(others):
            mask = np.repeat(~easy, counts)
            theirs = FlatIds(found.ids[mask], offsets_of(counts[others]))
            starts[mask] = self._compared(
                theirs, [texts[i] for i in others.tolist()], prefix, backend or self.backend
            )
        return Encoded(found.ids, found.offsets, starts.astype(np.int32))

    def _compared(
        self, found: FlatIds, texts: list[str], prefix: str, backend: tokenizers.Tokenizer
    ) -> NDArray[np.int64]:
        """(tokens,) the starts: by the bytes that ids spell, for texts that they do not spell by the offsets."""
        encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
        raw = np.frombuffer(b"".join(encoded), dtype=np.uint8)
        borders, byte_borders = (
            offsets_of([len(text) for text in texts]),
            offsets_of([len(text) for text in encoded]),
        )
        ends = offsets_of(self.vocabulary.lengths_of(found.ids))
        counts, spelled = np.diff(found.offsets), self.vocabulary.bytes(found.ids)
        odd = np.diff(ends[found.offsets]) != np.diff(byte_borders)
        """texts that their ids do not spell"""
        kept = np.repeat(~odd, np.diff(byte_borders))
        same = np.ones(len(raw), dtype=np.bool_)
        same[kept] = raw[kept] == spelled[np.repeat(~odd, np.diff(ends[found.offsets]))]
        odd[np.repeat(np.arange(len(texts)), np.diff(byte_borders))[~same]] = True
        shift = np.repeat(ends[found.offsets[:-1]] - byte_borders[:-1], counts)
        """from where a text's bytes stand in `raw` to where they stand in `spelled`"""
        places = np.clip(ends[:-1] - shift, 0, max(len(raw) - 1, 0))
        starts = (_character_indices(raw)[places] if len(raw) else places) - np.repeat(
            borders[:-1], counts
        )
        for i in np.flatnonzero(odd).tolist():
            starts[found.offsets[i] : found.offsets[i + 1]] = self._one(
                found.of(i), texts[i], prefix, backend
            )
        return np.asarray(starts)

    def _one(
        self, ids: NDArray[np.int32], text: str, prefix: str, backend: tokenizers.Tokenizer
    ) -> NDArray[np.int64]:
        """(tokens,) the starts of a text that is spelled with a space before it, or otherwise than it stands there."""
        raw, lengths = text.encode("utf-8", "surrogatepass"), self.vocabulary.lengths_of(ids)
        if raw and self.vocabulary.bytes(ids).tobytes() == b" " + raw:
            places = np.maximum(np.cumsum(lengths) - lengths - 1, 0)
            return np.asarray(_character_indices(np.frombuffer(raw, dtype=np.uint8))[places])
        encoding = backend.encode(prefix + text, add_special_tokens=False)
        if encoding.ids[bool(prefix) :] != ids.tolist():
            raise EnginesDiffer(
                f"{self.engine.name} and {self._reference.name} encode {text[:200]!r} differently"
            )
        places = np.array(
            [start - len(prefix) for start, _ in encoding.offsets[bool(prefix) :]], dtype=np.int64
        )
        return np.asarray(np.maximum.accumulate(np.maximum(places, 0)))


def _character_indices(raw: NDArray[np.uint8]) -> NDArray[np.int64]:
    """(bytes,) of UTF-8 -> (bytes,) the index of the character that each belongs to."""
    return np.cumsum((raw & 0xC0) != 0x80, dtype=np.int64) - 1
