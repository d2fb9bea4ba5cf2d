"""Encoder: texts in bulk to ids, and the character at which each token begins.

How: each text is cut at its added tokens (`split_at_added_tokens`). Each different piece of a batch is encoded once,
by a fast engine where one is proved (`proved_tokenizer_engines`), and the pieces' tokens are laid end to end. Where a
token begins in the text follows from the bytes that the tokens before it spell (`token_bytes`), which costs some numpy
operations for a batch; only for texts that their ids do not spell (a normalizer changed them) the offsets of
`tokenizers` are asked for.

Arrays, all flat: the tokens of n texts are one array of ids, with offsets (n + 1,) that say where each text begins in
it. In comments below, `texts`, `pieces`, `tokens`, `bytes` and `characters` as a dimension are such total numbers.

The trade-off: index arithmetic instead of a loop over texts. A loop in Python costs more than encoding itself;
`tests/encoding/test_encoder.py` compares ids and starts with those of `tokenizers` for every published family.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import tokenizers
from numpy.typing import NDArray

from truetune.encoding.proved_tokenizer_engines import (
    Engine,
    EnginesDiffer,
    FlatIds,
    NewerCharacters,
    fastest_engine,
    flatten_ids,
    insert_ids_of_empty_texts,
    offsets_of,
    reference_engine,
)
from truetune.encoding.split_at_added_tokens import PieceRule, find_piece_rule
from truetune.encoding.token_bytes import TokenBytes

ENGINE_LOAD_CHARACTERS = 1 << 21
"""Characters after which it pays to load a faster engine. Chosen, not measured again: loading and proving one takes
about a second. At half, small data waits for an engine that it hardly uses; at double, that much more is encoded
slowly. Workers of a pool load it at once (0), for they live long."""
SAMPLE_PIECES = 1000
"""Pieces of the first texts that a fast engine must encode as `tokenizers` did: text as the data really has it. Chosen,
not measured; more would prove more, and delay the first batch."""
CHECK_EVERY = 499
"""One in so many pieces that a fast engine encodes is encoded by `tokenizers` as well, and compared. Where `tokenizers`
takes ten times as long, this adds 2 %. A prime, so that it does not fall in step with data that repeats (every tenth
piece a system prompt)."""


class EncodedTexts(NamedTuple):
    """Tokens of several texts, laid end to end."""

    ids: NDArray[np.int32]
    """(tokens,)"""
    offsets: NDArray[np.int64]
    """(texts + 1,)"""
    starts: NDArray[np.int32]
    """(tokens,) the character of its text that holds a token's first byte"""


class Encoder:
    """Encodes without special tokens of its own: what stands in the text is all there is.

    Attributes:
        backend: the tokenizer whose ids are the right ones.
        engine: what encodes now; `tokenizers` itself until a faster one is loaded.
        vocabulary: the bytes that each id spells.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        only_reference: bool = False,
        characters_before_fast_engine: int = ENGINE_LOAD_CHARACTERS,
    ) -> None:
        """Make an encoder; no fast engine is loaded yet.

        Args:
            backend: the tokenizer.
            only_reference: never use a fast engine.
            characters_before_fast_engine: how many characters `tokenizers` encodes before one is loaded.
        """
        self.backend = backend
        self.vocabulary = TokenBytes(backend)
        self.engine = self._reference = reference_engine(backend)
        self._rule = find_piece_rule(backend)
        self._characters_before_fast_engine = characters_before_fast_engine
        self._newer_characters = NewerCharacters()
        self._engine_is_final = only_reference or self._rule is None

    def encode(self, texts: list[str]) -> EncodedTexts:
        """The ids of texts, and the character at which each token begins.

        Args:
            texts: renderings, with their control tokens written out.

        Returns:
            The tokens of all texts, end to end, in order.

        Raises:
            EnginesDiffer: a FastPathError, where a fast engine gave other ids than `tokenizers`.
        """
        if self._rule is None:
            return self._with_token_starts(self._reference.encode(texts), texts, "")
        parts = [self._rule.pattern.split(text) for text in texts]
        # Pieces are encoded behind a prefix where the beginning of a text is special to the tokenizer (it adds a
        # space there). A text that does not begin with an added token has such a beginning itself.
        if self._rule.prefix and any(split[0] for split in parts):
            return self._with_token_starts(self._reference.encode(texts), texts, "")
        return self._encode_by_pieces(parts, self._rule)

    def encode_control_tokens_in_content_as_text(
        self, text: str, content: Sequence[tuple[int, int]]
    ) -> EncodedTexts | None:
        """The tokens of one text, whose fields hold control tokens that are to be text.

        Args:
            text: a rendering.
            content: (start, end) characters of its fields; a control token that begins in one of them is text.

        Returns:
            The tokens of the one text; None where this tokenizer can't do that.
        """
        if self._rule is None or self._rule.prefix:
            return None
        added = self._rule.added
        # Text and control tokens in turn: those with odd numbers are the template's own control tokens.
        pieces = [""]
        position = 0
        for split in self._rule.pattern.split(text):
            in_content = any(start <= position < end for start, end in content)
            if split in added and not in_content:
                pieces += [split, ""]
            else:
                pieces[-1] += split
            position += len(split)
        piece_ids = []
        for number, piece in enumerate(pieces):
            if number % 2:
                piece_ids.append([added[piece]])
            else:
                piece_ids.append(
                    self._tokenizer_without_control_tokens.encode(
                        piece, add_special_tokens=False
                    ).ids
                )
        encoded = self._with_token_starts(
            flatten_ids(piece_ids), pieces, "", self._tokenizer_without_control_tokens
        )
        # From characters of a piece to characters of the whole text.
        piece_starts = offsets_of([len(piece) for piece in pieces])[:-1]
        tokens_per_piece = np.diff(encoded.offsets)
        starts = encoded.starts + np.repeat(piece_starts, tokens_per_piece).astype(np.int32)
        return EncodedTexts(encoded.ids, encoded.offsets[[0, -1]], starts)

    @cached_property
    def _tokenizer_without_control_tokens(self) -> tokenizers.Tokenizer:
        """A tokenizer that takes its control tokens for text."""
        backend = tokenizers.Tokenizer.from_str(self.backend.to_str())
        backend.encode_special_tokens = True
        return backend

    def _encode_by_pieces(self, parts: list[list[str]], rule: PieceRule) -> EncodedTexts:
        """Encode each different piece once, and lay the pieces of each text end to end.

        Args:
            parts: of each text its pieces and added tokens in turn, as `re.split` gives them.
            rule: how they were cut.
        """
        # Number each different piece in the order of its first use. The numbers up to len(added) are for the empty
        # piece (between two added tokens) and for the added tokens, whose ids are known.
        first_number = len(rule.added) + 1
        numbers: defaultdict[str, int] = defaultdict(itertools.count(first_number).__next__)
        numbers.update({token: number for number, token in enumerate(("", *rule.added))})
        # (pieces,): all pieces of all texts in order, each as its number, and its length in characters.
        all_pieces = list(itertools.chain.from_iterable(parts))
        count = len(all_pieces)
        # `fromiter` over `map` keeps both loops in C; a list in between would hold an object for each piece.
        order = np.fromiter(map(numbers.__getitem__, all_pieces), dtype=np.int64, count=count)
        characters = np.fromiter(map(len, all_pieces), dtype=np.int64, count=count)
        text_offsets = offsets_of([len(split) for split in parts])  # (texts + 1,) into the pieces
        new_pieces = list(itertools.islice(numbers, first_number, None))
        unique = self._encode_pieces_behind_empty_text_and_added_tokens(new_pieces, rule)

        # Token k of the result is token `gather[k]` of the different pieces: where its piece begins there, plus how far
        # it is behind the piece's first token here.
        lengths = np.diff(unique.offsets)[order]  # (pieces,) in tokens
        piece_offsets = offsets_of(lengths)  # (pieces + 1,) into the tokens
        token_count = piece_offsets[-1]
        gather = np.repeat(unique.offsets[order] - piece_offsets[:-1], lengths)
        gather += np.arange(token_count)

        # A token begins where it does in its piece, and its piece where it does in its text.
        character_offsets = offsets_of(characters)  # (pieces + 1,) into the characters of all texts
        text_starts = np.repeat(character_offsets[text_offsets[:-1]], np.diff(text_offsets))
        piece_starts = character_offsets[:-1] - text_starts  # (pieces,) in characters of its text
        starts = unique.starts[gather] + np.repeat(piece_starts, lengths)
        return EncodedTexts(
            unique.ids[gather], piece_offsets[text_offsets], starts.astype(np.int32)
        )

    def _encode_pieces_behind_empty_text_and_added_tokens(
        self, pieces: list[str], rule: PieceRule
    ) -> EncodedTexts:
        """The tokens of an empty text, of each added token, and of each of these pieces.

        In the order of the numbers that `_encode_by_pieces` gives them.
        """
        engine = self._choose_engine(pieces, rule)
        # Characters that are newer than a library's tables: only `tokenizers` has the tables of the right version.
        odd = (
            [] if engine is self._reference else self._newer_characters.find_texts_with_any(pieces)
        )
        if odd:
            others = [*pieces]
            for i in odd:
                others[i] = ""
            odd_ids = self._encode_behind_prefix(
                self._reference, [pieces[i] for i in odd], rule.prefix
            )
            ids = insert_ids_of_empty_texts(
                self._encode_behind_prefix(engine, others, rule.prefix), odd, odd_ids
            )
        else:
            ids = self._encode_behind_prefix(engine, pieces, rule.prefix)
        if engine is not self._reference:
            self._check_against_reference(engine, ids, pieces, rule.prefix)
        encoded = self._with_token_starts(ids, pieces, rule.prefix)
        # In front of them: the empty piece without a token, and each added token as one token that begins at 0.
        added_ids = np.array(list(rule.added.values()), dtype=np.int32)
        count = len(added_ids)
        return EncodedTexts(
            np.concatenate((added_ids, encoded.ids)),
            np.concatenate(([0], np.arange(count), encoded.offsets + count)),
            np.concatenate((np.zeros(count, dtype=np.int32), encoded.starts)),
        )

    def _choose_engine(self, pieces: list[str], rule: PieceRule) -> Engine:
        """What encodes these pieces; a faster engine is loaded once there was enough text for it."""
        if not self._engine_is_final:
            self._characters_before_fast_engine -= sum(map(len, pieces))
            if self._characters_before_fast_engine < 0:
                samples = pieces[:SAMPLE_PIECES]
                self.engine = fastest_engine(self.backend, samples, rule.pattern, rule.prefix)
                self._engine_is_final = True
        return self.engine

    def _check_against_reference(
        self, engine: Engine, flat_ids: FlatIds, pieces: list[str], prefix: str
    ) -> None:
        """Compare some pieces' ids with those of `tokenizers`. Raises EnginesDiffer.

        One in CHECK_EVERY, and the first two that are not ASCII: libraries differ there, and such pieces are rare in
        English data.
        """
        not_ascii = (i for i, piece in enumerate(pieces) if not piece.isascii())
        chosen = sorted({*range(0, len(pieces), CHECK_EVERY), *itertools.islice(not_ascii, 2)})
        expected = self._encode_behind_prefix(self._reference, [pieces[i] for i in chosen], prefix)
        for number, i in enumerate(chosen):
            if not np.array_equal(expected.of(number), flat_ids.of(i)):
                raise EnginesDiffer(
                    f"{engine.name} and {self._reference.name} encode {pieces[i][:200]!r}"
                    " differently"
                )

    @staticmethod
    def _encode_behind_prefix(engine: Engine, texts: list[str], prefix: str) -> FlatIds:
        """The ids of texts as they are behind `prefix`, an added token, whose own id is left out."""
        if not prefix:
            return engine.encode(texts)
        encoded = engine.encode([prefix + text for text in texts])
        # The first token of each text is the prefix; every text before it loses one token too.
        is_text = np.ones(len(encoded.ids), dtype=np.bool_)
        is_text[encoded.offsets[:-1]] = False
        return FlatIds(encoded.ids[is_text], encoded.offsets - np.arange(len(encoded.offsets)))

    def _with_token_starts(
        self,
        flat_ids: FlatIds,
        texts: list[str],
        prefix: str,
        backend: tokenizers.Tokenizer | None = None,
    ) -> EncodedTexts:
        """Texts with their ids and the starts of these, by the quickest of three ways for each text.

        1. An ASCII text of an exact vocabulary: a token begins after the bytes of those before it (here).
        2. A text whose ids spell its bytes: likewise, then from bytes to characters (`_starts_by_spelled_bytes`).
        3. Any other text: by the offsets of `tokenizers` (`_starts_of_differently_spelled_text`).

        Args:
            found: the ids of `texts`.
            texts: what was encoded.
            prefix: an added token that stood before each text while it was encoded; empty for none.
            backend: the tokenizer that gave the ids, where it is not `self.backend`.
        """
        counts = np.diff(flat_ids.offsets)  # (texts,) in tokens
        # (tokens + 1,): where each token begins in the bytes that all ids spell, end to end.
        byte_offsets = offsets_of(self.vocabulary.lengths_of(flat_ids.ids))
        starts = byte_offsets[:-1] - np.repeat(byte_offsets[flat_ids.offsets[:-1]], counts)
        # In ASCII a byte is a character. Of an exact vocabulary, as many bytes as the text has are its bytes.
        characters = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
        is_easy = np.fromiter(map(str.isascii, texts), dtype=np.bool_, count=len(texts))
        is_easy &= self.vocabulary.exact
        is_easy &= np.diff(byte_offsets[flat_ids.offsets]) == characters
        others = np.flatnonzero(~is_easy)
        if len(others):
            in_others = np.repeat(~is_easy, counts)  # (tokens,)
            other_ids = FlatIds(flat_ids.ids[in_others], offsets_of(counts[others]))
            other_texts = [texts[i] for i in others.tolist()]
            starts[in_others] = self._starts_by_spelled_bytes(
                other_ids, other_texts, prefix, backend or self.backend
            )
        return EncodedTexts(flat_ids.ids, flat_ids.offsets, starts.astype(np.int32))

    def _starts_by_spelled_bytes(
        self, flat_ids: FlatIds, texts: list[str], prefix: str, backend: tokenizers.Tokenizer
    ) -> NDArray[np.int64]:
        """(tokens,) the starts: by the bytes that ids spell, for texts that they do not spell by the offsets.

        Two rows of bytes are compared: those of the texts, and those that the ids spell. Arguments as of
        `_with_token_starts`.
        """
        encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
        text_bytes = np.frombuffer(b"".join(encoded), dtype=np.uint8)  # (bytes of the texts,)
        spelled_bytes = self.vocabulary.bytes(flat_ids.ids)  # (bytes of the tokens,)
        # Where each text begins: (texts + 1,) in characters, in bytes, and in the bytes that its ids spell.
        character_offsets = offsets_of([len(text) for text in texts])
        byte_offsets = offsets_of([len(text) for text in encoded])
        token_offsets = offsets_of(self.vocabulary.lengths_of(flat_ids.ids))  # (tokens + 1,)
        spelled_offsets = token_offsets[flat_ids.offsets]
        byte_counts, spelled_counts = np.diff(byte_offsets), np.diff(spelled_offsets)  # (texts,)

        # A text is spelled by its ids where both have equally many bytes, and the same ones. Only texts with equal
        # numbers are compared, for then the two selections below stand byte under byte.
        is_odd = spelled_counts != byte_counts
        has_equal_count = np.repeat(~is_odd, byte_counts)
        is_same = np.ones(len(text_bytes), dtype=np.bool_)
        is_same[has_equal_count] = (
            text_bytes[has_equal_count] == spelled_bytes[np.repeat(~is_odd, spelled_counts)]
        )
        text_of_byte = np.repeat(np.arange(len(texts)), byte_counts)
        is_odd[text_of_byte[~is_same]] = True

        # Token k begins at byte `token_offsets[k]` of what is spelled. Odd texts have shifted those behind them; take
        # the shift of each text away, and look up to which character the byte belongs.
        tokens_per_text = np.diff(flat_ids.offsets)
        shift = np.repeat(spelled_offsets[:-1] - byte_offsets[:-1], tokens_per_text)
        # Clipped, for tokens of odd texts point anywhere, and an empty token at the very end points behind it.
        token_bytes = np.clip(token_offsets[:-1] - shift, 0, max(len(text_bytes) - 1, 0))
        characters = _character_indices(text_bytes)[token_bytes] if len(text_bytes) else token_bytes
        starts = characters - np.repeat(character_offsets[:-1], tokens_per_text)
        for i in np.flatnonzero(is_odd).tolist():
            own_tokens = slice(flat_ids.offsets[i], flat_ids.offsets[i + 1])
            starts[own_tokens] = self._starts_of_differently_spelled_text(
                flat_ids.of(i), texts[i], prefix, backend
            )
        return np.asarray(starts)

    def _starts_of_differently_spelled_text(
        self, ids: NDArray[np.int32], text: str, prefix: str, backend: tokenizers.Tokenizer
    ) -> NDArray[np.int64]:
        """(tokens,) the starts of a text that is spelled with a space before it, or otherwise than it stands there."""
        raw = text.encode("utf-8", "surrogatepass")
        if raw and self.vocabulary.bytes(ids).tobytes() == b" " + raw:
            # SentencePiece writes a space before a text. It belongs to the first token, which begins at 0 still.
            lengths = self.vocabulary.lengths_of(ids)
            token_bytes = np.maximum(np.cumsum(lengths) - lengths - 1, 0)
            return np.asarray(_character_indices(np.frombuffer(raw, dtype=np.uint8))[token_bytes])
        encoding = backend.encode(prefix + text, add_special_tokens=False)
        behind_prefix = slice(bool(prefix), None)  # the prefix is one token
        if encoding.ids[behind_prefix] != ids.tolist():
            raise EnginesDiffer(
                f"{self.engine.name} and {self._reference.name} encode {text[:200]!r} differently"
            )
        first_characters = [start for start, _ in encoding.offsets[behind_prefix]]
        starts = np.array(first_characters, dtype=np.int64) - len(prefix)
        # Offsets of a normalized text may step back (a letter and its accent are exchanged). Labels search in the
        # starts, which must therefore rise.
        return np.asarray(np.maximum.accumulate(np.maximum(starts, 0)))


def _character_indices(raw: NDArray[np.uint8]) -> NDArray[np.int64]:
    """(bytes,) of UTF-8 -> (bytes,) the index of the character that each belongs to."""
    # A character begins at every byte that is no continuation byte, 10xxxxxx.
    return np.cumsum((raw & 0xC0) != 0x80, dtype=np.int64) - 1
