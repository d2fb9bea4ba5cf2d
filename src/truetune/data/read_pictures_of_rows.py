"""Reads the pictures that rows name or hold: where each file is, and what its header says.

A relative path is looked for in the folder that the settings name, beside the data file, one folder above it, and in
the folder of the command, as the stacks do between them. Nothing is fetched: an address is `remote`, and said to be so.
Headers of files are kept for the rows and rules that follow; only some hundred bytes of each file are read.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from truetune.data.conversation import Conversation
from truetune.data.media_of_row import MediaReference, find_media_of_row
from truetune.errors import shorten_name
from truetune.parsing.read_picture_header import (
    PictureError,
    PictureHeader,
    bytes_of_base64,
    read_picture_header_of_bytes,
    read_picture_header_of_file,
)

PictureState = Literal["read", "missing", "broken", "remote", "unread"]
MAX_FILES_READ = 200_000
"""Files whose headers are read; at some 50 us each this is ten seconds. Chosen, not measured"""
FINGERPRINT_BYTES = 4096
"""Bytes of the end that tell two pictures of one size apart"""
ADDRESS = re.compile(r"(?!file:)[a-z][a-z0-9+.-]{1,20}://", re.IGNORECASE)
DATA_URL = re.compile(r"data:[^,]{0,200},")
BASE64_BEGINNINGS = ("iVBORw0KGgo", "/9j/", "R0lGOD", "UklGR")
"""How PNG, JPEG, GIF and WebP begin as base64"""
MIN_BASE64_CHARACTERS = 100
"""A shorter text that begins so may be a path: `/9j/1.png`. Chosen by hand: no picture is that small"""


class Picture(NamedTuple):
    """One picture of a row."""

    reference: MediaReference
    state: PictureState
    name: str
    """Its path as the row has it, or what it is instead"""
    header: PictureHeader | None = None
    """None where it could not be read"""
    problem: str = ""
    """Why it is no sound picture; empty where it is"""
    fingerprint: tuple[int, ...] = ()
    """Equal for equal files; empty where it was not read"""
    is_in_row: bool = False
    """Does the row hold its bytes, and no path?"""


class RowPictures(NamedTuple):
    """The pictures of a row, in the order in which the model gets them."""

    row: Conversation
    pictures: tuple[Picture, ...]


@dataclass(slots=True)
class PictureReader:
    """Reads the pictures of rows, each file once."""

    media_dir: str | None = None
    """The folder that relative paths begin at; None: only the folders around the data are searched"""
    _files: dict[str, Picture] = field(default_factory=dict)
    _last_rows: Sequence[Conversation] | None = None
    _pictures_of_last_rows: list[RowPictures] = field(default_factory=list)

    def pictures_of_rows(self, rows: Sequence[Conversation]) -> list[RowPictures]:
        """The pictures of those rows that have any. The last list is remembered: several rules ask for it."""
        if rows is not self._last_rows:
            self._pictures_of_last_rows = [
                found for row in rows if (found := self.pictures_of_row(row)).pictures
            ]
            self._last_rows = rows
        return self._pictures_of_last_rows

    def pictures_of_row(self, row: Conversation) -> RowPictures:
        """The pictures of one row."""
        references = find_media_of_row(row).in_order("image")
        return RowPictures(row, tuple(self._read(reference, row) for reference in references))

    def _read(self, reference: MediaReference, row: Conversation) -> Picture:
        """One picture, by its bytes, its data URL or its path."""
        content, name = _content_and_name(reference.value)
        if content is not None:
            return _picture_of_bytes(reference, content, name)._replace(is_in_row=True)
        if not name:
            return Picture(reference, "unread", "a value of an unknown form")
        if is_base64_picture(name):
            return _picture_of_base64(reference, name)._replace(is_in_row=True)
        if ADDRESS.match(name):
            return Picture(reference, "remote", name)
        return self._picture_of_file(name, row)._replace(reference=reference)

    def _picture_of_file(self, name: str, row: Conversation) -> Picture:
        """The picture of a file, read once for each path and folder of data."""
        key = f"{row.origin.file}\0{name}"
        known = self._files.get(key)
        if known is not None:
            return known
        if len(self._files) >= MAX_FILES_READ:
            return Picture(_NO_REFERENCE, "unread", name)
        picture = self._read_file(name, row.origin.file)
        self._files[key] = picture
        return picture

    def _read_file(self, name: str, data_file: str) -> Picture:
        """The picture of a file that a row names, from the first folder that has it."""
        for path in self._candidate_paths(name, data_file):
            try:
                # A pipe or a device would never end: only files are opened.
                if path.is_file():
                    return _picture_of_path(path, name)
            except (OSError, ValueError):
                # A name that no file system takes.
                continue
        return Picture(_NO_REFERENCE, "missing", name, problem="there is no such file")

    def _candidate_paths(self, name: str, data_file: str) -> Iterator[Path]:
        """Where a file may be."""
        path = Path(name.removeprefix("file://")).expanduser()
        if path.is_absolute():
            yield path
            return
        folder = Path(data_file).parent
        folders = (self.media_dir, folder, folder.parent, Path())
        for start in dict.fromkeys(Path(start) for start in folders if start is not None):
            yield start / path


_NO_REFERENCE = MediaReference("image", "", None)


def is_base64_picture(text: str) -> bool:
    """Is a text a data URL, or base64 that begins as a picture does?"""
    if DATA_URL.match(text):
        return True
    return len(text) >= MIN_BASE64_CHARACTERS and text.startswith(BASE64_BEGINNINGS)


def _content_and_name(value: Any) -> tuple[bytes | None, str]:
    """The bytes that a value holds, and its path or address."""
    if isinstance(value, bytes):
        return value, "its bytes"
    if isinstance(value, str):
        return None, value
    if not isinstance(value, dict):
        return None, ""
    content = value.get("bytes")
    name = next((value[key] for key in ("path", "url") if isinstance(value.get(key), str)), "")
    if isinstance(content, bytes) and content:
        return content, name or "its bytes"
    # A file of JSON can hold bytes as base64 alone.
    return None, content if isinstance(content, str) and content else name


def _picture_of_bytes(reference: MediaReference, content: bytes, name: str) -> Picture:
    """A picture whose bytes are known."""
    try:
        header = read_picture_header_of_bytes(content)
    except PictureError as error:
        return Picture(reference, "broken", name, problem=str(error))
    mark = zlib.crc32(content[-FINGERPRINT_BYTES:])
    return _picture_of_header(reference, name, header, (len(content), mark))


def _picture_of_base64(reference: MediaReference, text: str) -> Picture:
    """A picture that stands as base64 in a row."""
    name = "a data URL" if text.startswith("data:") else "base64 text"
    begin = DATA_URL.match(text)
    if begin is not None and ";base64," not in begin[0]:
        return Picture(reference, "unread", name)
    try:
        content = bytes_of_base64(text[begin.end() :] if begin is not None else text)
    except PictureError as error:
        return Picture(reference, "broken", name, problem=str(error))
    return _picture_of_bytes(reference, content, name)


def _picture_of_path(path: Path, name: str) -> Picture:
    """A picture of a file that is there."""
    try:
        header = read_picture_header_of_file(path)
        with path.open("rb") as file:
            size = path.stat().st_size
            file.seek(max(size - FINGERPRINT_BYTES, 0))
            mark = zlib.crc32(file.read(FINGERPRINT_BYTES))
    except PictureError as error:
        return Picture(_NO_REFERENCE, "broken", name, problem=str(error))
    except OSError as error:
        return Picture(_NO_REFERENCE, "broken", name, problem=f"it can't be read: {error.strerror}")
    return _picture_of_header(_NO_REFERENCE, name, header, (size, mark))


def _picture_of_header(
    reference: MediaReference, name: str, header: PictureHeader, content: tuple[int, int]
) -> Picture:
    """A picture whose header could be read; `content` tells it from others of its size."""
    fingerprint = (header.width, header.height, *content)
    problem = "its end is missing" if header.is_cut else ""
    state: PictureState = "read" if header.is_size_known else "unread"
    return Picture(reference, state, shorten_name(name), header, problem, fingerprint)
