"""Search: where in the text of a line the fields of a row stand."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truetune.auditing.audit import Field
from truetune.render.render_plan import THINK_END
from truetune.render.rendering import Source

WINDOW = 16
"""Bytes by which a row is recognised"""
SHORT = 12
"""A text of fewer bytes must begin and end where a word or a token does."""
SOLID = re.compile(rb"[^\x00-\x1f\"\\<>&'\x80-\xff]+")
"""Bytes that no template, escape or normalizer changes"""
Normalize = Callable[[str], str]


class Spot(NamedTuple):
    """`text[start:end]` is from a field."""

    field: int
    source: Source
    start: int
    end: int
    cut: bool
    """Is it only the beginning, or only the end, of the field?"""


class Piece(NamedTuple):
    """A field, or a part of it that templates write by itself."""

    field: int
    source: Source
    text: str


class Text:
    """The bytes that the tokens of a range spell, and which of them are placed already."""

    def __init__(self, text: bytes, begins: Sequence[int]) -> None:
        self.text = text
        self.order: NDArray[np.int64] = np.asarray(begins, np.int64)
        self.begins = frozenset(begins)
        self.taken = bytearray(len(text))

    def is_free(self, start: int, end: int) -> bool:
        """Is nothing placed there yet?"""
        return 1 not in self.taken[start:end]

    def take(self, start: int, end: int) -> None:
        """Place something there."""
        self.taken[start:end] = b"\x01" * (end - start)

    def free(self, start: int, end: int) -> None:
        """Undo it."""
        self.taken[start:end] = bytes(end - start)

    def inside(self, spot: Spot) -> NDArray[np.int64]:
        """The tokens of a spot; the first may begin with the space before it."""
        first = int(np.searchsorted(self.order, spot.start))
        at = int(self.order[first]) if first < len(self.order) else len(self.text)
        if at > spot.start and self.text[int(self.order[first - 1]) : spot.start].isspace():
            first -= 1
        return np.arange(first, int(np.searchsorted(self.order, spot.end)))

    def found(self, wanted: bytes, low: int, high: int) -> list[int]:
        """Where a text stands in the open, in order, without overlaps."""
        places, at = [], self.text.find(wanted, low, high)
        while at >= 0:
            end = at + len(wanted)
            fits = self.is_free(at, end) and (
                len(wanted) >= SHORT or (self._edge(at) and self._edge(end))
            )
            if fits:
                places.append(at)
            at = self.text.find(wanted, end if fits else at + 1, high)
        return places

    def _edge(self, at: int) -> bool:
        """Does a token begin here, or a word begin or end?"""
        if at in self.begins or at in (0, len(self.text)):
            return True
        return not (self.text[at - 1 : at].isalnum() and self.text[at : at + 1].isalnum())

    def score(self, start: int, end: int) -> int:
        """How much a place looks like that of a content: between lines, or between control tokens."""
        before, after = self.text[:start].rstrip(b" ")[-1:], self.text[end:].lstrip(b" ")[:1]
        ends = 2 * (after in (b"<", b"[", b"\n", b"")) + (before in (b">", b"]", b"\n", b":", b""))
        return ends + (start in self.begins) + (end in self.begins)


def windows(fields: Iterable[Field]) -> list[bytes]:
    """Pieces of a row's longest texts, one of which stands wherever the row does; none where all are short."""
    made: dict[bytes, None] = {}
    for field in sorted(fields, key=lambda field: -len(field.text))[:4]:
        runs = [run.strip() for run in SOLID.findall(field.text.encode("utf-8", "replace"))]
        for solid in sorted(runs, key=len)[:-4:-1]:
            if len(solid) >= WINDOW:
                middle = (len(solid) - WINDOW) // 2
                made |= dict.fromkeys(
                    (solid[:WINDOW], solid[middle : middle + WINDOW], solid[-WINDOW:])
                )
    return list(made)


def spots(
    fields: Sequence[Field], text: Text, low: int, high: int, normalize: Normalize, *, cut: bool
) -> list[Spot]:
    """Where the fields of one row stand in a free part of a text; longest first, equal ones in their order.

    With `cut` a field may stand there in part, at either end.
    """
    made: list[Spot] = []
    groups: dict[str, list[Piece]] = {}
    for piece in _pieces(fields):
        groups.setdefault(piece.text.strip(), []).append(piece)
    whole: set[int] = set()
    for wanted in sorted(groups, key=lambda wanted: -len(wanted)):
        pieces = [piece for piece in groups[wanted] if piece.field not in whole]
        for spot in _placed(wanted, pieces, fields, made, text, low, high, normalize):
            made += _parted(spot, text)
            text.take(spot.start, spot.end)
            if spot.end - spot.start >= len(
                fields[spot.field].text.strip().encode("utf-8", "replace")
            ):
                whole.add(spot.field)
    if cut:
        made += _cut(fields, made, text, low, high)
    return made


def _pieces(fields: Sequence[Field]) -> Iterator[Piece]:
    """Each field, its thinking parted from its answer; a JSON text before its leaves."""
    for i, field in enumerate(fields):
        yield Piece(i, field.source, field.text)
        if field.source is Source.ASSISTANT and THINK_END in field.text:
            thinking, _, answer = field.text.rpartition(THINK_END)
            inside = thinking.rpartition("<think>")[2]
            if inside.strip():
                yield Piece(i, Source.REASONING, inside)
            if answer.strip():
                yield Piece(i, Source.ASSISTANT, answer)


def _parted(spot: Spot, text: Text) -> Iterator[Spot]:
    """A whole answer that begins with thinking as its two parts; the thinking takes the white space behind it."""
    whole = text.text[spot.start : spot.end]
    cut = whole.rfind(THINK_END.encode()) + len(THINK_END)
    if (
        spot.source is not Source.ASSISTANT
        or cut < len(THINK_END)
        or not whole.startswith(b"<think>")
    ):
        yield spot
        return
    cut += len(whole) - cut - len(whole[cut:].lstrip())
    yield spot._replace(source=Source.REASONING, end=spot.start + cut)
    if cut < len(whole):
        yield spot._replace(start=spot.start + cut)


def _placed(
    wanted: str,
    pieces: list[Piece],
    fields: Sequence[Field],
    made: list[Spot],
    text: Text,
    low: int,
    high: int,
    normalize: Normalize,
) -> Iterator[Spot]:
    """Each of some fields that hold the same text at a place of its own."""
    if not pieces:
        return
    for spelled in _spellings(wanted, normalize):
        places = text.found(spelled, low, high)
        if not places:
            continue
        size = len(spelled)
        for i, piece in enumerate(pieces):
            after, before = _between(fields, piece.field, made)
            here = [at for at in places if after <= at and at + size <= before]
            left = len(pieces) - i
            if not here:
                continue
            best = max(
                here[: max(1, len(here) - left + 1)],
                key=lambda at: (text.score(at, at + size), -at),
            )
            places = [at for at in places if at > best]
            yield Spot(piece.field, piece.source, best, best + size, False)
        return


def _spellings(wanted: str, normalize: Normalize) -> Iterator[bytes]:
    """How templates and tokenizers write a text."""
    seen = set()
    for made in (
        wanted,
        normalize(wanted).strip(),
        json.dumps(wanted, ensure_ascii=False)[1:-1],
        json.dumps(wanted)[1:-1],
        _html_safe(wanted),
    ):
        spelled = made.encode("utf-8", "replace")
        if spelled and spelled not in seen:
            seen.add(spelled)
            yield spelled


def _html_safe(text: str) -> str:
    """As Jinja's own `tojson` escapes it."""
    made = json.dumps(text)[1:-1]
    for character in "<>&'":
        made = made.replace(character, f"\\u{ord(character):04x}")
    return made


def _between(fields: Sequence[Field], field: int, made: list[Spot]) -> tuple[int, int]:
    """The part of a text in which a message's field must stand: behind those before it, before those behind it."""
    column, index = _message(fields[field].path)
    if index < 0:
        return 0, 1 << 62
    low, high = 0, 1 << 62
    for spot in made:
        other, place = _message(fields[spot.field].path)
        if other == column and place < index:
            low = max(low, spot.end)
        elif other == column and place > index:
            high = min(high, spot.start)
    return low, high


MESSAGE = re.compile(r"([^.\[]+)\[(\d+)\]")


@lru_cache(4096)
def _message(path: str) -> tuple[str, int]:
    found = MESSAGE.match(path)
    return (found[1], int(found[2])) if found else (path, -1)


def _cut(
    fields: Sequence[Field], made: list[Spot], text: Text, low: int, high: int
) -> Iterator[Spot]:
    """The field that the end of a text cuts, and the one that its beginning does."""
    known = {spot.field for spot in made}
    missing = [(i, field) for i, field in enumerate(fields) if i not in known]
    for at_end in (True, False):
        found = [
            spot
            for i, field in missing
            if (spot := _partly(i, field, text, low, high, at_end)) is not None
        ]
        if found:
            best = max(found, key=lambda spot: spot.end - spot.start)
            text.take(best.start, best.end)
            missing = [(i, field) for i, field in missing if i != best.field]
            yield best


def _partly(
    number: int, field: Field, text: Text, low: int, high: int, at_end: bool
) -> Spot | None:
    spelled = field.text.strip().encode("utf-8", "replace")
    part = text.text[low:high]
    for size in (WINDOW, 3) if at_end else (WINDOW,):
        key = spelled[:size] if at_end else spelled[-size:]
        at = part.rfind(key) if at_end else part.find(key)
        if len(key) < size or at < 0:
            continue
        start, end = (low + at, high) if at_end else (low, low + at + len(key))
        count = end - start
        same = text.text[start:end] == (spelled[:count] if at_end else spelled[-count:])
        if same and count < len(spelled) and text.is_free(start, end):
            return Spot(number, field.source, start, end, True)
    return None
