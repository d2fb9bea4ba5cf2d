"""Counts the images, sound and video of rows.

A processor turns each into tokens, hundreds for an image, by its size and its own settings. Where those are not known
(`render.pictures`), what is said of lengths leaves them out, and has to say so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from truetune.data.conversation import Conversation
from truetune.data.media_of_row import MEDIA_KINDS, RowMedia, find_media_of_row


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
        media = find_media_of_row(row)
        if media:
            total += count_media_of_row(media)
    return total


def count_media_of_row(media: RowMedia, *, are_images_known: bool = False) -> Media:
    """The media of one row as counts, without its images where their tokens are known."""
    images, sounds, videos = (media.count(kind) for kind in MEDIA_KINDS)
    if are_images_known:
        images = 0
    return Media(1, images, sounds, videos) if images or sounds or videos else NO_MEDIA
