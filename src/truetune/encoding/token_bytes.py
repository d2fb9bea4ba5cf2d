"""The bytes that each token stands for, which place tokens in a text without the tokenizer's offsets."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tokenizers
from numpy.typing import NDArray

SPACE = "\u2581"


class TokenBytes:
    """Bytes by id, spelled when they are first asked for."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        added = backend.get_added_tokens_decoder()
        size = max([*added, backend.get_vocab_size(with_added_tokens=True) - 1], default=-1) + 1
        is_byte_level = "ByteLevel" in repr(type(backend.decoder))
        self.lengths: NDArray[np.int32] = np.zeros(size, dtype=np.int32)
        """(ids,) bytes of each id that was asked for"""
        self.exact = is_byte_level and _keeps_ascii(backend)
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
        """What one id spells."""
        spelled = self._added.get(id)
        return self._spell(self._token(id) or "") if spelled is None else spelled

    def lengths_of(self, ids: NDArray[np.int32]) -> NDArray[np.int32]:
        """(tokens,) -> (tokens,): how many bytes each id spells."""
        unknown = np.unique(ids[self._begin[ids] < 0]).tolist()
        if unknown:
            spelled = [self.spell(id) for id in unknown]
            self.lengths[unknown] = [len(spelling) for spelling in spelled]
            self._begin[unknown] = (
                len(self._table) + np.cumsum(self.lengths[unknown]) - self.lengths[unknown]
            )
            self._table += b"".join(spelled)
        return np.asarray(self.lengths[ids])

    def bytes(self, ids: NDArray[np.int32]) -> NDArray[np.uint8]:
        """(tokens,) -> (bytes,): what the ids spell, end to end."""
        lengths = self.lengths_of(ids)
        ends = np.cumsum(lengths, dtype=np.int64)
        places = np.repeat(self._begin[ids] - ends + lengths, lengths) + np.arange(
            ends[-1] if len(ends) else 0
        )
        table: NDArray[np.uint8] = np.frombuffer(self._table, dtype=np.uint8)
        return np.asarray(table[places])


def _keeps_ascii(backend: tokenizers.Tokenizer) -> bool:
    """No normalizer, or one that composes characters; byte-level pieces with a token for each byte of ASCII."""
    normalizer = str(backend.normalizer)
    known = all(
        backend.token_to_id(character) is not None for character in map(chr, range(0x21, 0x7F))
    )
    return known and normalizer in ("None", "NFC()", "Sequence(normalizers=[])")


def _byte_characters() -> dict[str, int]:
    """GPT-2's table of a printable character for each byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(256 + i): byte for i, byte in enumerate(others)
    }


_TO_BYTES = str.maketrans({character: chr(byte) for character, byte in _byte_characters().items()})


def _byte_level_bytes(token: str) -> bytes:
    try:
        return token.translate(_TO_BYTES).encode("latin-1")
    except UnicodeEncodeError:
        return token.encode()


def _sentencepiece_bytes(token: str) -> bytes:
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        return bytes.fromhex(token[3:5])
    return token.replace(SPACE, " ").encode()
