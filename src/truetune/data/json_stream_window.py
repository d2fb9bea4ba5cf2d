"""A window on a JSON text, which grows as values are decoded from it and forgets what is read.

Python's decoder takes a whole text. A JSON file may have gigabytes, so that a value is decoded as soon as enough of the
text is there. The trade-off: a value that is cut is decoded again once the window has grown, each time to double its
size, so that a text is decoded twice at most on the whole.
"""

from __future__ import annotations

import codecs
import re
from typing import IO, Any

from truetune.data.column_name_aliases import KNOWN_COLUMNS
from truetune.data.remote_path import DataPath
from truetune.errors import DataError
from truetune.parsing.input_limits import ROW
from truetune.parsing.parse_json_within_limits import (
    JSONDecodeError,
    RowDecoder,
    replace_lone_surrogates,
)
from truetune.parsing.read_files_within_limits import message_for_too_long_line

# Chosen, not measured: large enough that values seldom cross an edge, small beside the memory of a
# process.
CHUNK_CHARACTERS = 1 << 20
_SPACE = re.compile(r"[\s,]*")
# A list of objects may be rows; a list of numbers or texts is a value like any other.
_OBJECTS = re.compile(r"\[\s*\{")


class JsonWindow:
    """Raises DataError, with the line, where the text is no JSON or no UTF-8."""

    def __init__(self, file: IO[bytes], path: DataPath) -> None:
        self.path = path
        self.line, self.offset = 1, 0
        """Where it has come to: the line, and how many bytes stand before"""
        self._file = file
        self._text = ""
        self._at = self._counted = self._bytes = 0
        self._decoder = RowDecoder()
        # A chunk may end inside a character; an incremental decoder keeps its first bytes.
        self._utf8 = codecs.getincrementaldecoder("utf-8")()

    @property
    def quote_next_text(self) -> str:
        """The beginning of the text that comes next, quoted for messages."""
        return quote_shortened(self._text[self._at : self._at + 40])

    def peek_character(self) -> str:
        """The next character that is neither white space nor a comma; empty at the end."""
        while True:
            match = _SPACE.match(self._text, self._at)
            assert match is not None
            self._at = match.end()
            if self._at < len(self._text):
                self._advance_line_and_offset(self._at)
                return self._text[self._at]
            if not self._read_next_block():
                return ""

    def skip_character(self) -> None:
        """Move past one character."""
        self._at += 1

    def skip_closing_bracket(self, bracket: str) -> None:
        """Move past a closing bracket. Raises DataError if anything else comes, or nothing."""
        character = self.peek_character()
        if character != bracket:
            what = f"expected {bracket or 'the end of the file'}, found {self.quote_next_text}"
            raise DataError(
                f"{self.path}:{self.line}:"
                f" {what if character else 'the file ends too early; is it whole?'}"
            )
        self.skip_character()

    def read_value_and_its_flaws(self) -> tuple[Any, bool, str | None]:
        """The JSON value that begins here, whether lone surrogates in it were replaced, and a key
        that one of its objects has twice.
        """
        while True:
            try:
                value, end, key = self._decoder.read_at(self._text, self._at)
            except JSONDecodeError as error:
                # An error at the very end may mean that the value continues in the next chunk:
                # `tru`, half an escape, an open string. 16 characters are more than any such token
                # has.
                cut = error.msg.startswith("Unterminated") or error.pos > len(self._text) - 16
                if cut and self._read_next_block():
                    continue
                self._advance_line_and_offset(error.pos)
                raise DataError(
                    f"{self.path}:{self.line}: not JSON: {error.msg}, found {self.quote_next_text}"
                ) from None
            except ValueError as error:
                raise DataError(
                    f"{self.path}:{self.line}: not JSON that can be read: {error}"
                ) from None
            # A number at the end of the window may have more digits behind it.
            if end == len(self._text) and self._read_next_block():
                continue
            start, self._at = self._at, end
            self._advance_line_and_offset(end)
            return *replace_lone_surrogates(value, self._text, start, end), key

    def enter_next_list_of_objects(self) -> str | None:
        """Go to the next list of objects inside the current object, and return its name. None if
        there is none, and if the object is itself a row: a list with the name of a column of
        messages is that row's chat.
        """
        if self.peek_character() == "{":
            self.skip_character()
        while self.peek_character() == '"':
            name = str(self.read_value_and_its_flaws()[0])
            if self.peek_character() == ":":
                self.skip_character()
            # A list under a name as `messages` is a value of a row, and this object is that row.
            if (
                self.peek_character() == "["
                and name not in KNOWN_COLUMNS
                and _OBJECTS.match(self._text_to_see_list_begin())
            ):
                return name
            self.read_value_and_its_flaws()
        return None

    def _text_to_see_list_begin(self) -> str:
        """Enough of the text ahead to see how a list begins."""
        while len(self._text) - self._at < CHUNK_CHARACTERS and self._read_next_block():
            pass
        return self._text[self._at : self._at + CHUNK_CHARACTERS]

    def _read_next_block(self) -> bool:
        """Read the next block and drop the text that was passed; False at the end of the file.
        Raises DataError.
        """
        if len(self._text) - self._at > ROW.max_bytes:
            raise DataError(f"{self.path}:{self.line}: {message_for_too_long_line()}")
        # Doubling: a long value is decoded at most twice as often as its length asks for.
        more = self._file.read(max(CHUNK_CHARACTERS, len(self._text) - self._at))
        try:
            text = self._utf8.decode(more, final=not more)
        except UnicodeDecodeError as error:
            self._advance_line_and_offset(len(self._text))
            line = self.line + error.object.count(b"\n", 0, error.start)
            raise not_utf8_error(
                self.path, line, self._bytes + len(more) - len(error.object), error
            ) from None
        # A byte order mark is no part of the text, but of the offsets that others cut the file by.
        if not self._bytes and text.startswith("\ufeff"):
            text, self.offset = text[1:], 3
        self._bytes += len(more)
        self._advance_line_and_offset(self._at)
        self._text = self._text[self._at :] + text
        self._at = self._counted = 0
        return bool(more)

    def _advance_line_and_offset(self, at: int) -> None:
        """Bring `line` and `offset` up to a place in the window."""
        # Lines and bytes are counted for what was passed since the last time, never for the whole
        # text again.
        passed = self._text[self._counted : at]
        self.line += passed.count("\n")
        self.offset += len(passed.encode())
        self._counted = at


def not_utf8_error(path: DataPath, line: int, offset: int, error: UnicodeDecodeError) -> DataError:
    """The error for bytes that are no UTF-8, with the line.

    Args:
        path: the file.
        line: the line of the first wrong byte, from 1.
        offset: how many bytes of the text stand before what was decoded.
        error: what decoding raised.
    """
    byte, at = error.object[error.start], offset + error.start
    return DataError(
        f"{path}:{line}: not UTF-8 (byte 0x{byte:02x} at byte {at} of the text); save the file as"
        " UTF-8"
    )


def quote_shortened(text: str) -> str:
    """The beginning of a text, quoted for a message."""
    return repr(text.strip()[:40])
