"""Decodes the bytes of a Python file, and converts positions in it.

Line ends are kept as they are, because a fix must write back the same bytes around it; so text is decoded here and not
by `open`, and lines are counted as Python counts them. Positions have three forms: offsets in characters (what we
use), lines with columns in bytes (what `ast` gives), lines with columns in characters (what a person is shown).
"""

from __future__ import annotations

import io
import re
import tokenize
from bisect import bisect_right
from functools import cached_property
from pathlib import Path

from truetune.errors import DataError

MAX_SOURCE_BYTES = 4 << 20
"""Chosen, not measured: the largest scripts of the field have some 500 KB, and a larger file is generated code or data,
whose parsing takes gigabytes."""
LINE_END = re.compile(r"\r\n|\r|\n")


def decode_source_with_codec(data: bytes, path: str) -> tuple[str, str]:
    """The text (with its line ends, without a byte order mark) and the codec that writes it back.

    Raises DataError.
    """
    try:
        codec = tokenize.detect_encoding(io.BytesIO(data).readline)[0]
        return data.decode(codec), codec
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        raise DataError(
            f"{path}: the bytes are not text in the encoding that the file names ({error})"
        ) from None


def read_source_bytes(path: Path) -> bytes:
    """The bytes of a source file. Raises DataError if it is missing, unreadable or larger than
    `MAX_SOURCE_BYTES`.
    """
    try:
        size = path.stat().st_size
        if size > MAX_SOURCE_BYTES:
            raise DataError(
                f"{path}: {size:,} bytes; files over {MAX_SOURCE_BYTES:,} are not looked at"
            )
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: can't be read ({error.strerror or error})") from None


class LineIndex:
    """Lines of a text as Python counts them: `str.splitlines` also splits at form feeds and other signs."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.starts = [0, *(match.end() for match in LINE_END.finditer(text))]

    def __len__(self) -> int:
        return len(self.starts)

    def line(self, number: int) -> str:
        """The line of that number (1-based), with its end."""
        end = self.starts[number] if number < len(self.starts) else len(self.text)
        return self.text[self.starts[number - 1] : end]

    def offset(self, line: int, column: int) -> int:
        """The offset, in characters, of a 1-based line and a column in UTF-8 bytes, as `ast` gives
        them.
        """
        # `ast` counts columns in UTF-8 bytes, whatever the file's encoding is.
        start = self.starts[line - 1]
        if self.is_ascii:
            return start + column
        return start + len(self.line(line).encode()[:column].decode(errors="replace"))

    def place(self, offset: int) -> tuple[int, int]:
        """The place of an offset: 1-based line and column, in characters."""
        line = bisect_right(self.starts, offset)
        return line, offset - self.starts[line - 1] + 1

    @cached_property
    def is_ascii(self) -> bool:
        """Are all characters ASCII? Then columns in bytes are columns in characters, and none need be counted."""
        return self.text.isascii()

    @cached_property
    def newline(self) -> str:
        """The newline that the text uses: the line break at the end of its first line."""
        match = LINE_END.search(self.text)
        return match[0] if match else "\n"
