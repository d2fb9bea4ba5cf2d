"""Searches where in the text of a line the fields of a row stand.

Fields are looked for in the bytes that the tokens spell, longest first, in each way that templates and tokenizers write
a text; each place is taken once. The trade-off: a text that a template changes otherwise (trims inside, translates) is
not found, and its tokens count as template text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truetune.auditing.audit import Field
from truetune.render.rendering import Source
from truetune.render.unfilled_example_plan import THINK_END

# Chosen, not measured: at half, common phrases recognise wrong rows; at double, rows of short texts have no window.
WINDOW_BYTES = 16
"""Bytes by which a row is recognised"""
# Chosen, not measured: `no` stands inside of `know`; texts of some words hardly stand inside of others by chance.
SHORT_TEXT_BYTES = 12
"""A text of fewer bytes must begin and end where a word or a token does."""
UNCHANGED_BYTES = re.compile(rb"[^\x00-\x1f\"\\<>&'\x80-\xff]+")
"""Bytes that no template, escape or normalizer changes"""
NormalizeText = Callable[[str], str]


class FieldSpot(NamedTuple):
    """`text[start:end]` is from a field."""

    field: int
    source: Source
    start: int
    end: int
    cut: bool
    """Is it only the beginning, or only the end, of the field?"""


class FieldPiece(NamedTuple):
    """A field, or a part of it that templates write by itself."""

    field: int
    source: Source
    text: str


class SearchedText:
    """The bytes that the tokens of a range spell, and which of them are placed already."""

    def __init__(self, text: bytes, begins: Sequence[int]) -> None:
        """`begins` are the bytes of `text` at which its tokens begin, in order."""
        self.text = text
        # The same twice: sorted for `searchsorted`, and a set to ask whether a token begins at a byte.
        self.order: NDArray[np.int64] = np.asarray(begins, np.int64)
        self.begins = frozenset(begins)
        self.taken = bytearray(len(text))

    def is_free(self, start: int, end: int) -> bool:
        """Is nothing placed there yet?"""
        return 1 not in self.taken[start:end]

    def mark_taken(self, start: int, end: int) -> None:
        """Something is placed there from now on: no other text may stand there."""
        self.taken[start:end] = b"\x01" * (end - start)

    def mark_free(self, start: int, end: int) -> None:
        """Mark a place as free again: undo `mark_taken`."""
        self.taken[start:end] = bytes(end - start)

    def tokens_of(self, spot: FieldSpot) -> NDArray[np.int64]:
        """The tokens of a spot; the first may begin with the space before it."""
        # Tokens of many vocabularies carry the space before a word, which is no part of the field.
        first = int(np.searchsorted(self.order, spot.start))
        at = int(self.order[first]) if first < len(self.order) else len(self.text)
        if at > spot.start and self.text[int(self.order[first - 1]) : spot.start].isspace():
            first -= 1
        return np.arange(first, int(np.searchsorted(self.order, spot.end)))

    def find_free_occurrences(self, wanted: bytes, low: int, high: int) -> list[int]:
        """Where a text stands in the open, in order, without overlaps."""
        places, at = [], self.text.find(wanted, low, high)
        while at >= 0:
            end = at + len(wanted)
            # A short text inside of a word is another word.
            fits = self.is_free(at, end) and (
                len(wanted) >= SHORT_TEXT_BYTES
                or (self._is_token_or_word_boundary(at) and self._is_token_or_word_boundary(end))
            )
            if fits:
                places.append(at)
            at = self.text.find(wanted, end if fits else at + 1, high)
        return places

    def _is_token_or_word_boundary(self, at: int) -> bool:
        """Does a token begin here, or a word begin or end?"""
        if at in self.begins or at in (0, len(self.text)):
            return True
        return not (self.text[at - 1 : at].isalnum() and self.text[at : at + 1].isalnum())

    def score_boundaries(self, start: int, end: int) -> int:
        """How much a place looks like that of a content, 0 to 5: between lines, or between control tokens."""
        before, after = self.text[:start].rstrip(b" ")[-1:], self.text[end:].lstrip(b" ")[:1]
        # The end tells more than the beginning: contents end in a control token or a line, and begin anywhere.
        ends = 2 * (after in (b"<", b"[", b"\n", b"")) + (before in (b">", b"]", b"\n", b":", b""))
        return ends + (start in self.begins) + (end in self.begins)


def list_pieces_of_longest_texts(fields: Iterable[Field]) -> list[bytes]:
    """Pieces of a row's longest texts, one of which stands wherever the row does; none where all are short."""
    # A dictionary, for it keeps the order and each window once.
    pieces: dict[bytes, None] = {}
    # Four texts, three runs of each: a cut or rewritten line still holds one of them, and a row has few to look for.
    for field in sorted(fields, key=lambda field: -len(field.text))[:4]:
        encoded = field.text.encode("utf-8", "replace")
        runs = [run.strip() for run in UNCHANGED_BYTES.findall(encoded)]
        for solid in sorted(runs, key=len)[:-4:-1]:
            if len(solid) >= WINDOW_BYTES:
                # Beginning, middle and end: truncation leaves one of them.
                for start in (0, (len(solid) - WINDOW_BYTES) // 2, len(solid) - WINDOW_BYTES):
                    pieces[solid[start : start + WINDOW_BYTES]] = None
    return list(pieces)


def find_field_spots(
    fields: Sequence[Field],
    text: SearchedText,
    low: int,
    high: int,
    normalize: NormalizeText,
    *,
    cut: bool,
) -> list[FieldSpot]:
    """Where the fields of one row stand in a free part of a text; longest first, equal ones in their order.

    Args:
        fields: of the row.
        text: what is found in it is marked as taken.
        low: first byte of the part.
        high: the byte after its last one.
        normalize: what the tokenizer makes of a text before it cuts it into tokens.
        cut: may a field stand there in part, at either end?
    """
    spots: list[FieldSpot] = []
    groups: dict[str, list[FieldPiece]] = {}
    for piece in _list_field_pieces(fields):
        groups.setdefault(piece.text.strip(), []).append(piece)
    whole: set[int] = set()
    # Longest first: a short text may stand inside of a longer one, which must take its place before.
    for wanted in sorted(groups, key=lambda wanted: -len(wanted)):
        pieces = [piece for piece in groups[wanted] if piece.field not in whole]
        for spot in _place_fields_of_same_text(
            wanted, pieces, fields, spots, text, low, high, normalize
        ):
            spots += _split_thinking_from_answer(spot, text)
            text.mark_taken(spot.start, spot.end)
            if spot.end - spot.start >= len(
                fields[spot.field].text.strip().encode("utf-8", "replace")
            ):
                whole.add(spot.field)
    if cut:
        spots += _find_fields_cut_at_ends(fields, spots, text, low, high)
    return spots


def _list_field_pieces(fields: Sequence[Field]) -> Iterator[FieldPiece]:
    """Each field, its thinking parted from its answer; a JSON text before its leaves."""
    for i, field in enumerate(fields):
        yield FieldPiece(i, field.source, field.text)
        # Templates that move or drop thinking write the answer alone.
        if field.source is Source.ASSISTANT and THINK_END in field.text:
            thinking, _, answer = field.text.rpartition(THINK_END)
            inside = thinking.rpartition("<think>")[2]
            if inside.strip():
                yield FieldPiece(i, Source.REASONING, inside)
            if answer.strip():
                yield FieldPiece(i, Source.ASSISTANT, answer)


def _split_thinking_from_answer(spot: FieldSpot, text: SearchedText) -> Iterator[FieldSpot]:
    """A whole answer that begins with thinking as its two parts; the thinking takes the white space behind it."""
    whole = text.text[spot.start : spot.end]
    cut = whole.rfind(THINK_END.encode()) + len(THINK_END)
    # Only from the beginning: an answer that talks of thinking is an answer.
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


def _place_fields_of_same_text(
    wanted: str,
    pieces: list[FieldPiece],
    fields: Sequence[Field],
    spots: list[FieldSpot],
    text: SearchedText,
    low: int,
    high: int,
    normalize: NormalizeText,
) -> Iterator[FieldSpot]:
    """Each of some fields that hold the same text at a place of its own."""
    if not pieces:
        return
    for spelled in _list_spellings(wanted, normalize):
        places = text.find_free_occurrences(spelled, low, high)
        if not places:
            continue
        size = len(spelled)
        for i, piece in enumerate(pieces):
            after, before = _range_between_neighbours(fields, piece.field, spots)
            fitting = [at for at in places if after <= at and at + size <= before]
            left = len(pieces) - i
            if not fitting:
                continue
            # A place must remain for each of the pieces that come after this one.
            best = max(
                fitting[: max(1, len(fitting) - left + 1)],
                key=lambda at: (text.score_boundaries(at, at + size), -at),
            )
            places = [at for at in places if at > best]
            yield FieldSpot(piece.field, piece.source, best, best + size, False)
        return


def _list_spellings(wanted: str, normalize: NormalizeText) -> Iterator[bytes]:
    """How templates and tokenizers write a text."""
    spellings_so_far = set()
    # The likeliest first: as it is, as the tokenizer normalizes it, then as templates write JSON.
    for spelling in (
        wanted,
        normalize(wanted).strip(),
        json.dumps(wanted, ensure_ascii=False)[1:-1],
        json.dumps(wanted)[1:-1],
        _escape_as_jinja_tojson(wanted),
    ):
        spelled = spelling.encode("utf-8", "replace")
        if spelled and spelled not in spellings_so_far:
            spellings_so_far.add(spelled)
            yield spelled


def _escape_as_jinja_tojson(text: str) -> str:
    """As Jinja's own `tojson` escapes it."""
    escaped = json.dumps(text)[1:-1]
    for character in "<>&'":
        escaped = escaped.replace(character, f"\\u{ord(character):04x}")
    return escaped


def _range_between_neighbours(
    fields: Sequence[Field], field: int, spots: list[FieldSpot]
) -> tuple[int, int]:
    """The part of a text in which a message's field must stand: behind those before it, before those behind it."""
    column, index = _column_and_message_number(fields[field].path)
    # Not one of a list: it may stand anywhere.
    if index < 0:
        return 0, 1 << 62
    low, high = 0, 1 << 62
    for spot in spots:
        other, place = _column_and_message_number(fields[spot.field].path)
        if other == column and place < index:
            low = max(low, spot.end)
        elif other == column and place > index:
            high = min(high, spot.start)
    return low, high


MESSAGE_PATH = re.compile(r"([^.\[]+)\[(\d+)\]")


@lru_cache(4096)
def _column_and_message_number(path: str) -> tuple[str, int]:
    """(column, number of the message) of a path; -1 where it is in no list."""
    match = MESSAGE_PATH.match(path)
    return (match[1], int(match[2])) if match else (path, -1)


def _find_fields_cut_at_ends(
    fields: Sequence[Field], spots: list[FieldSpot], text: SearchedText, low: int, high: int
) -> Iterator[FieldSpot]:
    """The field that the end of a text cuts, and the one that its beginning does."""
    known = {spot.field for spot in spots}
    missing = [(i, field) for i, field in enumerate(fields) if i not in known]
    for at_end in (True, False):
        candidates = [_find_cut_field(i, field, text, low, high, at_end) for i, field in missing]
        cut_spots = [spot for spot in candidates if spot is not None]
        if cut_spots:
            # Several fields may begin alike: the one of which most stands there.
            best = max(cut_spots, key=lambda spot: spot.end - spot.start)
            text.mark_taken(best.start, best.end)
            missing = [(i, field) for i, field in missing if i != best.field]
            yield best


def _find_cut_field(
    number: int, field: Field, text: SearchedText, low: int, high: int, at_end: bool
) -> FieldSpot | None:
    """The part of one field that ends (`at_end`), or begins, a text; None where none does."""
    spelled = field.text.strip().encode("utf-8", "replace")
    part = text.text[low:high]
    # Truncation cuts ends far more often than beginnings, so there three bytes of a field are looked for too.
    for size in (WINDOW_BYTES, 3) if at_end else (WINDOW_BYTES,):
        key = spelled[:size] if at_end else spelled[-size:]
        at = part.rfind(key) if at_end else part.find(key)
        if len(key) < size or at < 0:
            continue
        start, end = (low + at, high) if at_end else (low, low + at + len(key))
        count = end - start
        same = text.text[start:end] == (spelled[:count] if at_end else spelled[-count:])
        if same and count < len(spelled) and text.is_free(start, end):
            return FieldSpot(number, field.source, start, end, True)
    return None
