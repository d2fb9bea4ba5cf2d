"""The bytes that each token stands for, which place tokens in a text without the tokenizer's offsets."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tokenizers
from numpy.typing import NDArray

SPACE = "\u2581"


class Vocabulary:
    """Bytes by id, spelled when they are first asked for."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        added = backend.get_added_tokens_decoder()
        size = max([*added, backend.get_vocab_size(with_added_tokens=True) - 1], default=-1) + 1
        self.lengths: NDArray[np.int32] = np.zeros(size, dtype=np.int32)
        """(ids,) bytes of each id that was asked for"""
        special = {id: token.content.encode() for id, token in added.items()}
        self.spell: Callable[[int], bytes] = _Spellings(backend, special, self.lengths).__getitem__

    def bytes(self, ids: list[int]) -> bytes:
        """What the ids spell."""
        return b"".join(map(self.spell, ids))


class _Spellings(dict[int, bytes]):
    def __init__(self, backend: tokenizers.Tokenizer, special: dict[int, bytes], lengths: NDArray[np.int32]) -> None:
        super().__init__(special)
        lengths[list(special)] = [len(spelling) for spelling in special.values()]
        self.token = backend.id_to_token
        self.spell = _byte_level if "ByteLevel" in repr(type(backend.decoder)) else _sentencepiece
        self.lengths = lengths

    def __missing__(self, id: int) -> bytes:
        spelling = self[id] = self.spell(self.token(id) or "")
        self.lengths[id] = len(spelling)
        return spelling


def _byte_characters() -> dict[str, int]:
    """GPT-2's table of a printable character for each byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


_BYTES = _byte_characters()
_TO_BYTES = str.maketrans({character: chr(byte) for character, byte in _BYTES.items()})


def _byte_level(token: str) -> bytes:
    try:
        return token.translate(_TO_BYTES).encode("latin-1")
    except UnicodeEncodeError:
        return token.encode()


def _sentencepiece(token: str) -> bytes:
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        return bytes.fromhex(token[3:5])
    return token.replace(SPACE, " ").encode()
