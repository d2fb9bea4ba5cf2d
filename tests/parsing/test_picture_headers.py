"""Headers of pictures are read without decoding, and say where a file is no picture or ends too early."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pictures import grey_png
from truetune.parsing.read_picture_header import (
    PictureError,
    bytes_of_base64,
    read_picture_header_of_bytes,
    read_picture_header_of_file,
    read_picture_size,
)

EXIF_TURNED = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0"


def jpeg(width: int, height: int, *, components: int = 3, exif: bytes = b"") -> bytes:
    """The segments of a JPEG, with a scan of two bytes."""
    frame = b"\x08" + height.to_bytes(2, "big") + width.to_bytes(2, "big") + bytes([components])
    parts = [(0xE1, exif)] if exif else []
    parts += [(0xC0, frame + b"\x01\x22\0" * components), (0xDA, b"\x01\x01\0\0\x3f\0")]
    segments = b"".join(
        bytes((0xFF, mark)) + (len(content) + 2).to_bytes(2, "big") + content
        for mark, content in parts
    )
    return b"\xff\xd8" + segments + b"\x11\x22" + b"\xff\xd9"


def webp(kind: bytes, content: bytes) -> bytes:
    """A WebP of one chunk."""
    body = b"WEBP" + kind + len(content).to_bytes(4, "little") + content
    return b"RIFF" + len(body).to_bytes(4, "little") + body


LOSSY = webp(b"VP8 ", b"\0\0\0\x9d\x01\x2a\x80\x02\xe0\x01")
LOSSLESS = webp(b"VP8L", b"\x2f" + (639 | 479 << 14 | 1 << 28).to_bytes(4, "little") + b"\0" * 5)
EXTENDED = webp(b"VP8X", b"\x10\0\0\0\x7f\x02\0\xdf\x01\0")
BMP = b"BM" + (54 + 8).to_bytes(4, "little") + b"\0" * 4 + (54).to_bytes(4, "little")
BMP += (
    (40).to_bytes(4, "little") + (1).to_bytes(4, "little") + (-2).to_bytes(4, "little", signed=True)
)
BMP += b"\x01\0\x18\0" + b"\0" * 24 + b"\0" * 8
SOUND = {
    "PNG": (grey_png(640, 480), (640, 480)),
    "JPEG": (jpeg(640, 480), (640, 480)),
    "JPEG turned by Exif": (jpeg(640, 480, exif=EXIF_TURNED), (480, 640)),
    "JPEG with a film behind it": (jpeg(640, 480) + b"\0" * 200_000, (640, 480)),
    "GIF": (b"GIF89a\x80\x02\xe0\x01\xf7\0\0;", (640, 480)),
    "lossy WebP": (LOSSY, (640, 480)),
    "lossless WebP": (LOSSLESS, (640, 480)),
    "extended WebP": (EXTENDED, (640, 480)),
    "BMP from the top": (BMP, (1, 2)),
}


@pytest.mark.parametrize(("content", "size"), SOUND.values(), ids=SOUND)
def test_size_as_viewers_show_it(content: bytes, size: tuple[int, int], tmp_path: Path) -> None:
    header = read_picture_header_of_bytes(content)
    assert (header.shown_size, header.is_cut) == (size, False)
    path = tmp_path / "picture"
    path.write_bytes(content)
    assert read_picture_header_of_file(path) == header
    assert read_picture_size(path) == size


@pytest.mark.parametrize("content", [content for content, _ in SOUND.values()], ids=SOUND)
def test_each_beginning_of_a_file_is_cut_or_an_error(content: bytes) -> None:
    # GIF has no length that could be compared, and a JPEG is whole where its picture ends.
    if content.startswith(b"GIF"):
        return
    whole = content.find(b"\xff\xd9") + 2 if content.startswith(b"\xff\xd8") else len(content)
    for kept in range(0, whole, 7):
        try:
            assert read_picture_header_of_bytes(content[:kept]).is_cut, kept
        except PictureError:
            continue


def test_colours_and_depth() -> None:
    grey = read_picture_header_of_bytes(grey_png(2, 2, bits=16))
    assert (grey.colours, grey.bits, grey.has_alpha) == ("grey", 16, False)
    assert read_picture_header_of_bytes(jpeg(8, 8, components=4)).colours == "cmyk"
    assert read_picture_header_of_bytes(LOSSLESS).has_alpha
    assert read_picture_header_of_bytes(EXTENDED).has_alpha


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"\n<!DOCTYPE html><title>404</title>", "HTML"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
        (b"<svg xmlns='a'/>", "SVG"),
        (b"%PDF-1.7", "PDF"),
        (b"\x00\x01\x02", "first bytes"),
        (grey_png(4, 4)[:20], "within its PNG header"),
        (b"\xff\xd8\xff\xe0", "within its JPEG header"),
    ],
)
def test_what_is_no_picture_is_said(content: bytes, says: str) -> None:
    with pytest.raises(PictureError, match=says):
        read_picture_header_of_bytes(content)


def test_a_side_of_no_pixels_is_an_error() -> None:
    content = bytearray(grey_png(4, 4))
    content[16:20] = b"\0\0\0\0"
    with pytest.raises(PictureError, match="0 x 4 pixels"):
        read_picture_header_of_bytes(bytes(content))


def test_a_bomb_costs_nothing() -> None:
    content = bytearray(grey_png(4, 4))
    content[16:24] = (60_000).to_bytes(4, "big") * 2
    assert read_picture_header_of_bytes(bytes(content)).shown_size == (60_000, 60_000)


def test_formats_of_which_only_the_name_is_known() -> None:
    for content, name in ((b"II*\0" + b"\0" * 8, "TIFF"), (b"\0\0\0\x1cftypavif", "AVIF")):
        header = read_picture_header_of_bytes(content)
        assert (header.format, header.is_size_known) == (name, False)


def test_broken_base64_is_an_error() -> None:
    with pytest.raises(PictureError, match="base64"):
        bytes_of_base64("iVBOR")
