"""PictureExpansion: what a processor writes for a picture's placeholder."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple


class Piece(NamedTuple):
    """A text that is written some times, one after the other."""

    text: str
    times: int = 1


class PictureRefusedError(ValueError):
    """The processor raises an error on a picture of this size."""


@dataclass(frozen=True, slots=True)
class PictureExpansion:
    """What a processor writes for a picture's placeholder."""

    pieces: tuple[Piece, ...]
    """A piece of more than one copy is a token of the picture itself; the others are marks around it"""

    @classmethod
    def of(cls, pieces: Iterable[Piece]) -> PictureExpansion:
        """The expansion of these pieces, neighbours of the same text joined, empty ones left out."""
        joined = (
            Piece(text, sum(piece.times for piece in same))
            for text, same in groupby(pieces, key=lambda piece: piece.text)
        )
        return cls(tuple(piece for piece in joined if piece.text and piece.times))

    @property
    def text(self) -> str:
        """The text with each piece once."""
        return "".join(piece.text for piece in self.pieces)

    def written_out(self) -> str:
        """The text as the processor writes it."""
        return "".join(piece.text * piece.times for piece in self.pieces)
