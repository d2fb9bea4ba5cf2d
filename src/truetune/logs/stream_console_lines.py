"""Streams the lines of a text file of any size, in bounded memory; a line that redraws itself comes
in pieces.

A progress bar redraws itself behind carriage returns, so one line of a log may be as long as the run: it comes in
pieces, one for each drawing.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from truetune.parsing import InputLimitError
from truetune.parsing.input_limits import LOG_RECORD
from truetune.parsing.read_files_within_limits import refuse_mostly_blank_lines

CHUNK_BYTES = 1 << 20
"""Read at a time. Chosen, not measured: it bounds the memory"""
MAX_PIECE_CHARACTERS = LOG_RECORD.max_bytes
"""Characters of a piece: longer ones are no output that a person reads"""
LINE_ENDS = re.compile(r"\r\n|\n|\r")
ENCODING_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
"""How files begin that say their encoding: PowerShell's `>` writes UTF-16"""


def console_pieces(path: Path, note: Callable[[str], None]) -> Iterator[tuple[str, int]]:
    """Each piece of the file's text, and the 1-based number of its line. `note` is told what is left out."""
    number, blank, others = 1, 0, 0
    for piece, ends_line in _split_at_line_and_carriage_returns(path, note):
        if len(piece) >= MAX_PIECE_CHARACTERS:
            note(f"{path.name}: lines longer than {MAX_PIECE_CHARACTERS:,} characters")
        else:
            yield piece, number
        if piece and not piece.isspace():
            others += 1
        elif ends_line:
            blank += 1
            try:
                refuse_mostly_blank_lines(blank, others)
            except InputLimitError as error:
                note(f"{path.name}: the rest is left out ({error})")
                return
        number += ends_line


def _split_at_line_and_carriage_returns(
    path: Path, note: Callable[[str], None]
) -> Iterator[tuple[str, bool]]:
    """Pieces between line ends and carriage returns, each with whether the line ends after it."""
    rest = ""
    for text in _decoded_blocks(path, note):
        whole = rest + text
        start = 0
        for match in LINE_ENDS.finditer(whole):
            # a Windows line end may be cut by the border of two parts: its line feed is in the next one
            if match[0] == "\r" and match.end() == len(whole):
                break
            yield whole[start : match.start()], match[0] != "\r"
            start = match.end()
        rest = whole[start:]
        # A file without a line end would be kept whole. Its piece is left out in any case: all that counts is that it
        # stays too long.
        if len(rest) > 2 * MAX_PIECE_CHARACTERS:
            rest = rest[:MAX_PIECE_CHARACTERS]
    if rest:
        yield rest.rstrip("\r"), False


def _decoded_blocks(path: Path, note: Callable[[str], None]) -> Iterator[str]:
    """The file's text, block by block."""
    with path.open("rb") as file:
        head = file.read(4)
        mark, encoding = next(
            ((m, e) for m, e in ENCODING_MARKS if head.startswith(m)), (b"", "utf-8")
        )
        file.seek(len(mark))
        # a character of several bytes may be cut by the border of two parts: this decoder keeps its beginning
        decoder = codecs.getincrementaldecoder(encoding)("replace")
        while True:
            content = file.read(CHUNK_BYTES)
            text = decoder.decode(content, not content)
            if "\0" in text:
                note(f"{path.name}: parts with null bytes")
                text = text.replace("\0", "")
            if "\ufffd" in text:
                note(f"{path.name}: parts that are no UTF-8")
            if text:
                yield text
            if not content:
                return
