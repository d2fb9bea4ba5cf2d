"""Reads what the header of a picture's file says: format, size in pixels, colours, and whether the end is missing.

Nothing is decoded, so a picture that would unpack to gigabytes costs what any other costs: some hundred bytes are read,
and Pillow is not needed. Of PNG, JPEG, WebP and BMP it is also known whether the file ends before its picture does. The
trade-off: damage in the middle of the pixels is not seen, and of TIFF, HEIC or AVIF only the format is known.
"""

from __future__ import annotations

import binascii
import os
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import IO, Literal, NamedTuple

Colours = Literal["grey", "rgb", "palette", "cmyk"]
PNG_SIGNATURE, JPEG_START, JPEG_END = b"\x89PNG\r\n\x1a\n", b"\xff\xd8", b"\xff\xd9"
MAX_SEGMENTS = 100_000
"""Chunks or segments of a file that are followed. libpng writes a chunk for each 8 KiB: this is a file of 800 MB"""
TAIL_BYTES = 1 << 16
"""Bytes at the end in which the end mark of a JPEG is looked for first: cameras write previews and notes behind it"""
MAX_SEARCHED_BYTES = 1 << 28
"""Bytes that are searched for the end mark where it is not near the end: a phone writes a film behind its picture"""
MAX_EXIF_BYTES = 1 << 16
"""Bytes of Exif that are read: a segment of JPEG has no more"""
HEAD_BYTES = 512
"""Bytes by which a file is told that is no picture"""
FRAME_MARKS = frozenset(
    (*range(0xC0, 0xC4), *range(0xC5, 0xC8), *range(0xC9, 0xCC), *range(0xCD, 0xD0))
)
"""Marks of JPEG that precision, height, width and the number of colours follow"""
MARKS_ALONE = frozenset((0x01, *range(0xD0, 0xD8)))
"""Marks of JPEG that have no length"""
SCAN_MARK, EXIF_MARK = 0xDA, 0xE1
PNG_COLOURS: dict[int, Colours] = {0: "grey", 2: "rgb", 3: "palette", 4: "grey", 6: "rgb"}
COLOURS_BY_COMPONENTS: dict[int, Colours] = {1: "grey", 3: "rgb", 4: "cmyk"}
ORIENTATION_TAG = 0x0112
TURNED_ORIENTATIONS = range(5, 9)
"""Values of Exif's orientation that exchange width and height"""
FORMATS_BY_NAME_ALONE = (
    (b"II*\0", "TIFF"),
    (b"MM\0*", "TIFF"),
    (b"\0\0\1\0", "ICO"),
    (b"8BPS", "Photoshop"),
    (b"\0\0\0\x0cJXL ", "JPEG XL"),
    (b"\xff\x0a", "JPEG XL"),
    (b"\0\0\0\x0cjP  ", "JPEG 2000"),
    (b"\xff\x4f\xff\x51", "JPEG 2000"),
)
"""First bytes of formats whose header is not read here"""
ISO_MEDIA_BRANDS = {
    **dict.fromkeys((b"avif", b"avis"), "AVIF"),
    **dict.fromkeys((b"heic", b"heix", b"hevc", b"mif1", b"msf1"), "HEIC"),
}
"""Brands behind `ftyp` at the fourth byte"""
NO_PICTURES = (
    (b"version https://git-lfs", "a pointer of Git LFS: the picture was never fetched"),
    (b"<!doctype html", "a page of HTML, which a server sends if it lacks the picture"),
    (b"<html", "a page of HTML, which a server sends if it lacks the picture"),
    (b"<?xml", "XML or SVG, which has no pixels"),
    (b"<svg", "SVG, which has no pixels"),
    (b"%pdf-", "a PDF document"),
    (b"pk\x03\x04", "a zip archive"),
    (b"{", "JSON"),
)
"""Beginnings, in lower case, of what often lies at the place of a picture"""


class PictureError(ValueError):
    """The bytes are no picture, or its header is broken; the text says what they are."""


@dataclass(frozen=True, slots=True)
class PictureHeader:
    """What the header of a picture says."""

    format: str
    """PNG, JPEG, GIF, WebP, BMP, or another of which no more is known"""
    width: int = 0
    """Pixels, as the file holds them; 0: not known"""
    height: int = 0
    colours: Colours | None = None
    bits: int = 8
    """Of a colour of a pixel"""
    has_alpha: bool = False
    is_turned: bool = False
    """Does Exif's orientation exchange width and height? Viewers, transformers and datasets turn the picture"""
    is_cut: bool = False
    """Does the file end before its picture does?"""

    @property
    def is_size_known(self) -> bool:
        """Was the header of this format read?"""
        return self.width > 0 and self.height > 0

    @property
    def shown_size(self) -> tuple[int, int]:
        """(width, height) as a viewer shows the picture."""
        return (self.height, self.width) if self.is_turned else (self.width, self.height)


class _PictureBytes(NamedTuple):
    """The bytes of a picture, and how many there are."""

    file: IO[bytes]
    size: int

    def read(self, start: int, count: int) -> bytes:
        """`count` bytes from `start` on, fewer at the end."""
        self.file.seek(start)
        return self.file.read(count)


def read_picture_header_of_file(path: Path) -> PictureHeader:
    """The header of a picture's file.

    Raises:
        OSError: the file can't be read.
        PictureError: it holds no picture, or a broken header.
    """
    with path.open("rb") as file:
        return _read_header(_PictureBytes(file, os.fstat(file.fileno()).st_size))


def read_picture_header_of_bytes(content: bytes) -> PictureHeader:
    """The header of a picture whose file is held in memory.

    Raises:
        PictureError: it is no picture, or has a broken header.
    """
    return _read_header(_PictureBytes(BytesIO(content), len(content)))


def bytes_of_base64(text: str) -> bytes:
    """The bytes of a picture that stands as base64 in a row.

    Raises:
        PictureError: the text is no base64.
    """
    try:
        return b64decode(text)
    except (binascii.Error, ValueError) as error:
        raise PictureError(f"its base64 can't be decoded: {error}") from None


def read_picture_size(path: Path) -> tuple[int, int] | None:
    """(width, height) in pixels, as viewers show the picture; None where the file is not there, or of another kind."""
    try:
        header = read_picture_header_of_file(path)
    except (OSError, ValueError):
        return None
    return header.shown_size if header.is_size_known else None


def _read_header(picture: _PictureBytes) -> PictureHeader:
    """The header, by the format that the first bytes tell. Raises PictureError."""
    head = picture.read(0, HEAD_BYTES)
    if not head:
        raise PictureError("the file is empty")
    header = _header_by_first_bytes(picture, head)
    if header is None:
        raise PictureError(f"it is no picture: {_describe_other_content(head)}")
    if not header.is_size_known and header.colours is not None:
        raise PictureError(
            f"its {header.format} header says {header.width} x {header.height} pixels"
        )
    return header


def _header_by_first_bytes(picture: _PictureBytes, head: bytes) -> PictureHeader | None:
    """The header by the format; None for bytes of no format of pictures. Raises PictureError."""
    if head.startswith(PNG_SIGNATURE):
        return _read_png(picture, head)
    if head.startswith(JPEG_START):
        return _read_jpeg(picture)
    if head.startswith((b"GIF87a", b"GIF89a")):
        return _read_gif(head)
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return _read_webp(picture, head)
    if head.startswith(b"BM") and len(head) >= 26:
        return _read_bmp(picture, head)
    return _header_of_format_known_by_name(head)


def _header_of_format_known_by_name(head: bytes) -> PictureHeader | None:
    """A header with the format alone; None for bytes of no format that is known."""
    if head[4:8] == b"ftyp" and head[8:12] in ISO_MEDIA_BRANDS:
        return PictureHeader(ISO_MEDIA_BRANDS[head[8:12]])
    names = (name for start, name in FORMATS_BY_NAME_ALONE if head.startswith(start))
    name = next(names, None)
    return None if name is None else PictureHeader(name)


def _describe_other_content(head: bytes) -> str:
    """What bytes are that are no picture."""
    begin = head.lstrip().lower()
    for start, meaning in NO_PICTURES:
        if begin.startswith(start):
            return meaning
    return f"its first bytes are {head[:8]!r}"


def _read_png(picture: _PictureBytes, head: bytes) -> PictureHeader:
    """The header of a PNG. Raises PictureError where it is cut."""
    if len(head) < 29 or head[12:16] != b"IHDR":
        raise PictureError("it ends within its PNG header")
    width, height = int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")
    bits, kind = head[24], head[25]
    header = PictureHeader(
        "PNG", width, height, PNG_COLOURS.get(kind, "rgb"), bits, has_alpha=kind in (4, 6)
    )
    # The last chunk is always the same 12 bytes: where they are, no more chunks need to be followed.
    is_whole = picture.read(max(picture.size - 12, 0), 12)[4:8] == b"IEND"
    for kind_of_chunk, start, length in _png_chunks(picture):
        if kind_of_chunk == b"tRNS":
            header = replace(header, has_alpha=True)
        if kind_of_chunk == b"eXIf":
            header = replace(header, is_turned=_is_turned_by_exif(picture, start, length))
        if kind_of_chunk == b"IEND":
            is_whole = True
        # What is read here stands before the pixels.
        if is_whole and kind_of_chunk in (b"IDAT", b"IEND"):
            break
    return replace(header, is_cut=not is_whole)


def _png_chunks(picture: _PictureBytes) -> Iterator[tuple[bytes, int, int]]:
    """(kind, start, length) of the chunks of a PNG that are whole."""
    at = len(PNG_SIGNATURE)
    for _ in range(MAX_SEGMENTS):
        head = picture.read(at, 8)
        length = int.from_bytes(head[:4], "big")
        # 12 bytes besides: length, kind and checksum.
        if len(head) < 8 or at + 12 + length > picture.size:
            return
        yield head[4:8], at + 8, length
        at += 12 + length


def _read_jpeg(picture: _PictureBytes) -> PictureHeader:
    """The header of a JPEG. Raises PictureError where no frame header is found."""
    is_turned = False
    frame: PictureHeader | None = None
    for mark, start, length in _jpeg_segments(picture):
        if mark == EXIF_MARK and picture.read(start, 6) == b"Exif\0\0":
            is_turned = _is_turned_by_exif(picture, start + 6, length - 6)
        elif mark in FRAME_MARKS:
            frame = _jpeg_frame(picture.read(start, 6))
        elif mark == SCAN_MARK and frame is not None:
            is_cut = not _has_jpeg_end(picture, start)
            return replace(frame, is_turned=is_turned, is_cut=is_cut)
    if frame is None:
        raise PictureError("it ends within its JPEG header")
    return replace(frame, is_turned=is_turned, is_cut=True)


def _jpeg_segments(picture: _PictureBytes) -> Iterator[tuple[int, int, int]]:
    """(mark, start of the content, its length) of the segments of a JPEG, up to the first scan."""
    at = 2
    for _ in range(MAX_SEGMENTS):
        head = picture.read(at, 4)
        if len(head) < 4 or head[0] != 0xFF:
            return
        if head[1] == 0xFF or head[1] in MARKS_ALONE:
            # A byte that fills, or a mark without content.
            at += 1 if head[1] == 0xFF else 2
            continue
        # A segment says its own length, the two bytes of it counted.
        length = max(int.from_bytes(head[2:4], "big"), 2)
        yield head[1], at + 4, length - 2
        if head[1] == SCAN_MARK:
            return
        at += 2 + length


def _jpeg_frame(content: bytes) -> PictureHeader:
    """The header that a frame segment gives. Raises PictureError where it is cut."""
    if len(content) < 6:
        raise PictureError("it ends within its JPEG header")
    height, width = int.from_bytes(content[1:3], "big"), int.from_bytes(content[3:5], "big")
    colours = COLOURS_BY_COMPONENTS.get(content[5], "rgb")
    return PictureHeader("JPEG", width, height, colours, content[0])


def _has_jpeg_end(picture: _PictureBytes, scan: int) -> bool:
    """Is the end mark behind the beginning of the scan? In the scan itself the two bytes never stand."""
    if JPEG_END in picture.read(max(picture.size - TAIL_BYTES, scan), TAIL_BYTES):
        return True
    # Something long lies behind the picture, or its end is missing: the whole rest is searched, in pieces that overlap
    # by one byte.
    for start in range(scan, min(picture.size, scan + MAX_SEARCHED_BYTES), TAIL_BYTES):
        if JPEG_END in picture.read(start, TAIL_BYTES + 1):
            return True
    return picture.size > scan + MAX_SEARCHED_BYTES


def _read_gif(head: bytes) -> PictureHeader:
    """The header of a GIF. Raises PictureError where it is cut."""
    if len(head) < 13:
        raise PictureError("it ends within its GIF header")
    width, height = int.from_bytes(head[6:8], "little"), int.from_bytes(head[8:10], "little")
    return PictureHeader("GIF", width, height, "palette")


def _read_webp(picture: _PictureBytes, head: bytes) -> PictureHeader:
    """The header of a WebP. Raises PictureError where it is cut, or of no known form."""
    kind, content = head[12:16], head[20:30]
    if len(content) < 10:
        raise PictureError("it ends within its WebP header")
    is_cut = int.from_bytes(head[4:8], "little") + 8 > picture.size
    header = PictureHeader("WebP", colours="rgb", is_cut=is_cut)
    if kind == b"VP8 ":
        # 14 bits each, behind a tag and a start code of three bytes.
        width, height = (int.from_bytes(content[at : at + 2], "little") & 0x3FFF for at in (6, 8))
        return replace(header, width=width, height=height)
    if kind == b"VP8L":
        packed = int.from_bytes(content[1:5], "little")
        width, height = (packed & 0x3FFF) + 1, (packed >> 14 & 0x3FFF) + 1
        return replace(header, width=width, height=height, has_alpha=bool(packed >> 28 & 1))
    if kind == b"VP8X":
        width, height = (int.from_bytes(content[at : at + 3], "little") + 1 for at in (4, 7))
        return replace(
            header,
            width=width,
            height=height,
            has_alpha=bool(content[0] & 0x10),
            is_turned=bool(content[0] & 0x08) and _is_webp_turned(picture),
        )
    raise PictureError(f"its WebP header begins with {kind!r}")


def _is_webp_turned(picture: _PictureBytes) -> bool:
    """Does the Exif of a WebP exchange width and height?"""
    at = 12
    for _ in range(MAX_SEGMENTS):
        head = picture.read(at, 8)
        length = int.from_bytes(head[4:8], "little")
        if len(head) < 8:
            return False
        if head[:4] == b"EXIF":
            start = at + 8
            # Some writers keep the six bytes that JPEG has in front.
            skipped = 6 if picture.read(start, 6) == b"Exif\0\0" else 0
            return _is_turned_by_exif(picture, start + skipped, length - skipped)
        at += 8 + length + length % 2
    return False


def _read_bmp(picture: _PictureBytes, head: bytes) -> PictureHeader:
    """The header of a BMP."""
    is_old = int.from_bytes(head[14:18], "little") == 12
    if is_old:
        width, height = (int.from_bytes(head[at : at + 2], "little") for at in (18, 20))
        bits = int.from_bytes(head[24:26], "little")
    else:
        width = int.from_bytes(head[18:22], "little", signed=True)
        # A negative height says that the rows begin at the top.
        height = abs(int.from_bytes(head[22:26], "little", signed=True))
        bits = int.from_bytes(head[28:30], "little")
    is_packed = not is_old and int.from_bytes(head[30:34], "little") != 0
    # Rows are filled up to four bytes.
    needed = int.from_bytes(head[10:14], "little") + (width * bits + 31) // 32 * 4 * height
    colours: Colours = "palette" if bits <= 8 else "rgb"
    is_cut = not is_packed and needed > picture.size
    return PictureHeader("BMP", max(width, 0), height, colours, is_cut=is_cut)


def _is_turned_by_exif(picture: _PictureBytes, start: int, length: int) -> bool:
    """Does the orientation in an Exif block exchange width and height?"""
    exif = picture.read(start, min(max(length, 0), MAX_EXIF_BYTES))
    order: Literal["little", "big"] = "little" if exif[:2] == b"II" else "big"
    if exif[:2] not in (b"II", b"MM"):
        return False
    at = int.from_bytes(exif[4:8], order)
    entries = int.from_bytes(exif[at : at + 2], order)
    for number in range(entries):
        # Twelve bytes each: tag, type, count, value.
        entry = exif[at + 2 + 12 * number : at + 14 + 12 * number]
        if len(entry) < 12:
            return False
        if int.from_bytes(entry[:2], order) == ORIENTATION_TAG:
            return int.from_bytes(entry[8:10], order) in TURNED_ORIENTATIONS
    return False
