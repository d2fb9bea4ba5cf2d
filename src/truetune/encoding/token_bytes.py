"""The bytes that each token stands for, which place tokens in a text without the tokenizer's offsets.

Byte-level vocabularies (GPT-2's and those after it) write a printable character for each byte; SentencePiece's write a
mark for a space and `<0x0A>` for bytes that no token spells. So the spelling of an id is bytes that can be counted,
and the bytes before a token say where it stands. The trade-off: for a tokenizer that changes text first, what its ids
spell is not what stood there; `encoder` compares, and asks `tokenizers` for the offsets of such texts, which is slower.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tokenizers
from numpy.typing import NDArray

SPACE = "\u2581"
"""SentencePiece's mark for a space, LOWER ONE EIGHTH BLOCK"""


class TokenBytes:
    """Bytes by id, spelled when they are first asked for.

    All spellings stand in one table of bytes, and each id's beginning and length in arrays: what thousands of ids
    spell is then one indexing operation of numpy. Vocabularies have up to 262,144 tokens and data uses a part of them,
    so that spelling all at the start would only make it slow.
    """

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        added = backend.get_added_tokens_decoder()
        size = max([*added, backend.get_vocab_size(with_added_tokens=True) - 1], default=-1) + 1
        is_byte_level = "ByteLevel" in repr(type(backend.decoder))
        self.lengths: NDArray[np.int32] = np.zeros(size, dtype=np.int32)
        """(ids,) bytes of each id that was asked for"""
        self.exact = is_byte_level and _is_ascii_kept_and_in_vocabulary(backend)
        """Do the ids of a text of ASCII characters spell just it, by how the tokenizer is made?"""
        self._begin: NDArray[np.int64] = np.full(size, -1, dtype=np.int64)
        self._table = b""
        self._added = (
            {id: token.content.encode() for id, token in added.items()} if is_byte_level else {}
        )
        self._token = backend.id_to_token
        self._spell: Callable[[str], bytes] = (
            _byte_level_bytes if is_byte_level else _sentencepiece_bytes
        )

    def spell(self, id: int) -> bytes:
        """The bytes that one id spells."""
        spelled = self._added.get(id)
        return self._spell(self._token(id) or "") if spelled is None else spelled

    def lengths_of(self, ids: NDArray[np.int32]) -> NDArray[np.int32]:
        """(tokens,) -> (tokens,): how many bytes each id spells."""
        new_ids = np.unique(ids[self._begin[ids] < 0]).tolist()
        if new_ids:
            spelled = [self.spell(id) for id in new_ids]
            lengths = np.array([len(spelling) for spelling in spelled], dtype=np.int32)
            self.lengths[new_ids] = lengths
            # Behind all that the table holds, each after the ones before it.
            self._begin[new_ids] = len(self._table) + np.cumsum(lengths) - lengths
            self._table += b"".join(spelled)
        return np.asarray(self.lengths[ids])

    def bytes(self, ids: NDArray[np.int32]) -> NDArray[np.uint8]:
        """(tokens,) -> (bytes,): the bytes that the ids spell, end to end."""
        lengths = self.lengths_of(ids)
        ends = np.cumsum(lengths, dtype=np.int64)  # (tokens,) where each ends in the result
        byte_count = ends[-1] if len(ends) else 0
        # Byte k of the result, of token t, is byte `begin[t] + (k - start of t)` of the table.
        shift = self._begin[ids] - (ends - lengths)  # (tokens,)
        table_indices = np.repeat(shift, lengths) + np.arange(byte_count)  # (bytes,)
        table: NDArray[np.uint8] = np.frombuffer(self._table, dtype=np.uint8)
        return np.asarray(table[table_indices])


def _is_ascii_kept_and_in_vocabulary(backend: tokenizers.Tokenizer) -> bool:
    """Does the tokenizer leave ASCII as it is, with a token for each printable character? It has no
    normalizer then, or one that composes characters.
    """
    # NFC leaves ASCII as it is; it matters for other text only.
    normalizer = str(backend.normalizer)
    printable_ascii = map(chr, range(0x21, 0x7F))
    has_all = all(backend.token_to_id(character) is not None for character in printable_ascii)
    return has_all and normalizer in ("None", "NFC()", "Sequence(normalizers=[])")


def _byte_characters() -> dict[str, int]:
    """GPT-2's table of a printable character for each byte.

    Bytes that are printable in Latin-1 stand for themselves, the other 68 for the characters from U+0100 on, in order
    (`bytes_to_unicode` of GPT-2's encoder.py).
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(256 + i): byte for i, byte in enumerate(others)
    }


_TO_BYTES = str.maketrans({character: chr(byte) for character, byte in _byte_characters().items()})


def _byte_level_bytes(token: str) -> bytes:
    """The bytes of a token of a byte-level vocabulary; of one with other characters in it, as it is written."""
    try:
        return token.translate(_TO_BYTES).encode("latin-1")
    except UnicodeEncodeError:
        return token.encode()


def _sentencepiece_bytes(token: str) -> bytes:
    """The bytes of a token of a SentencePiece vocabulary: `<0x0A>` is one byte, the mark is a space."""
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        return bytes.fromhex(token[3:5])
    return token.replace(SPACE, " ").encode()
