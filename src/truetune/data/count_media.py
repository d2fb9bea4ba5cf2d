"""Counts the images, sound and video of rows.

A processor turns each into tokens, hundreds for an image, by its size and its own settings. A tokenizer alone can't
count those, so what is said of lengths leaves them out, and has to say so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from truetune.data.conversation import Conversation

MEDIA_KINDS = ("image", "sound", "video")
MEDIA_COLUMNS = {
    **dict.fromkeys(("image", "images", "image_path", "image_url", "img"), "image"),
    **dict.fromkeys(("audio", "audios", "sound", "speech"), "sound"),
    **dict.fromkeys(("video", "videos", "video_path"), "video"),
}
"""Columns in which data sets keep them: paths, URLs, or the bytes"""
MEDIA_PARTS = {
    **dict.fromkeys(("image", "image_url", "input_image"), "image"),
    **dict.fromkeys(("audio", "audio_url", "input_audio"), "sound"),
    **dict.fromkeys(("video", "video_url", "input_video"), "video"),
}
"""Types of content parts"""


@dataclass(frozen=True, slots=True)
class Media:
    """How many of each there are, and in how many rows."""

    rows: int = 0
    images: int = 0
    sounds: int = 0
    videos: int = 0

    def __add__(self, other: Media) -> Media:
        """The media of both."""
        return Media(
            self.rows + other.rows,
            self.images + other.images,
            self.sounds + other.sounds,
            self.videos + other.videos,
        )

    def __bool__(self) -> bool:
        """Is there any?"""
        return self.rows > 0

    def __str__(self) -> str:
        """`30 images and 1 video`"""
        counts = zip(MEDIA_KINDS, (self.images, self.sounds, self.videos), strict=True)
        return " and ".join(
            f"{count:,} {kind}{'s' * (count != 1)}" for kind, count in counts if count
        )

    @property
    def note_on_lengths(self) -> str:
        """The note for lengths in tokens, which leave these media out."""
        return f"the tokens of {self} are not counted"


NO_MEDIA = Media()


def count_media(rows: Iterable[Conversation]) -> Media:
    """Count the images, sound and video of rows, by their columns and by the parts of their
    contents.
    """
    total = NO_MEDIA
    for row in rows:
        in_columns = MEDIA_COLUMNS.keys() & row.raw.keys() if row.raw else ()
        # Content parts are lists; texts, which nearly all rows hold, are passed over without a look.
        parts = [
            message["content"] for message in row.messages if type(message.get("content")) is list
        ]
        if in_columns or parts:
            total += _count_in_row(row, in_columns, parts)
    return total


def _count_in_row(row: Conversation, columns: Iterable[str], contents: list[list[Any]]) -> Media:
    """Count the media of one row. A column's item and a part of a message mean the same picture, so
    the greater of the two numbers counts.
    """
    held, placed = dict.fromkeys(MEDIA_KINDS, 0), dict.fromkeys(MEDIA_KINDS, 0)
    for column in columns:
        held[MEDIA_COLUMNS[column]] += _count_items((row.raw or {})[column])
    for content in contents:
        for part in content:
            kind = MEDIA_PARTS.get(str(part.get("type"))) if isinstance(part, dict) else None
            if kind is not None:
                placed[kind] += 1
    # The column holds the images, and a part of the messages says where each stands: the two are the same ones.
    counts = [max(held[kind], placed[kind]) for kind in MEDIA_KINDS]
    return Media(1, *counts) if any(counts) else NO_MEDIA


def _count_items(value: Any) -> int:
    """How many items a column's value holds: a list holds several, an empty value none."""
    if isinstance(value, list):
        return sum(map(_count_items, value))
    # `datasets` keeps an image as an object of bytes and path; one with neither is an empty cell.
    if isinstance(value, dict):
        return int(any(part is not None for part in value.values()))
    return int(bool(value))
