"""Reads the width and height of a PNG, JPEG or GIF picture from the head of its file, without a
picture library.
"""

from __future__ import annotations

from pathlib import Path

HEAD_BYTES = 1 << 18
"""Bytes that are read: a JPEG may have a preview of 64 KiB and more before its size"""
PNG, GIF, JPEG = b"\x89PNG\r\n\x1a\n", b"GIF8", b"\xff\xd8"
FRAME_MARKS = frozenset(
    (*range(0xC0, 0xC4), *range(0xC5, 0xC8), *range(0xC9, 0xCC), *range(0xCD, 0xD0))
)
"""Marks of JPEG that height and width follow"""


def read_picture_size(path: Path) -> tuple[int, int] | None:
    """(width, height) in pixels; None where the file is not there, or of another kind."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except (OSError, ValueError):
        return None
    if head.startswith(PNG) and len(head) >= 24:
        return int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")
    if head.startswith(GIF) and len(head) >= 10:
        return int.from_bytes(head[6:8], "little"), int.from_bytes(head[8:10], "little")
    return _size_in_jpeg_head(head) if head.startswith(JPEG) else None


def _size_in_jpeg_head(head: bytes) -> tuple[int, int] | None:
    """(width, height) in the frame header of a JPEG, which is searched segment by segment."""
    at = 2
    while at + 9 <= len(head) and head[at] == 0xFF:
        if head[at + 1] in FRAME_MARKS:
            height, width = head[at + 5 : at + 7], head[at + 7 : at + 9]
            return int.from_bytes(width, "big"), int.from_bytes(height, "big")
        # A segment says its own length, the two bytes of it counted.
        at += 2 + max(int.from_bytes(head[at + 2 : at + 4], "big"), 2)
    return None
