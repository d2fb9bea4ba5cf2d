"""Finds the images, sound and video of a row: in its columns, in the parts of its messages, and as marks in texts.

Stacks keep them in different places. LLaVA has a column `image` and `<image>` in the turns; LLaMA-Factory and ms-swift
a list `images` and as many `<image>`; TRL a list `images`, and parts `{"type": "image"}` in the contents, or plain
contents before which it puts the parts itself; OpenAI's form has the source inside the part.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from truetune.data.conversation import Conversation

MediaKind = Literal["image", "sound", "video"]
MEDIA_KINDS: tuple[MediaKind, ...] = ("image", "sound", "video")
IMAGE_COLUMNS = ("image", "images", "image_path", "image_paths", "image_url", "img")
SOUND_COLUMNS = ("audio", "audios", "sound", "speech")
VIDEO_COLUMNS = ("video", "videos", "video_path")
MEDIA_COLUMNS: Mapping[str, MediaKind] = {
    **dict.fromkeys(IMAGE_COLUMNS, "image"),
    **dict.fromkeys(SOUND_COLUMNS, "sound"),
    **dict.fromkeys(VIDEO_COLUMNS, "video"),
}
"""Columns in which data sets keep them: paths, URLs, or the bytes"""
MEDIA_PARTS: Mapping[str, MediaKind] = {
    **dict.fromkeys(("image", "image_url", "input_image"), "image"),
    **dict.fromkeys(("audio", "audio_url", "input_audio"), "sound"),
    **dict.fromkeys(("video", "video_url", "input_video"), "video"),
}
"""Types of content parts"""
SOURCE_KEYS = (
    "image", "image_url", "video", "video_url", "audio", "audio_url", "input_audio",
    "url", "path", "base64", "data", "source",
)  # fmt: skip
"""Keys of a content part that hold what is meant; a part without one is a placeholder"""
PLACEHOLDERS: Mapping[MediaKind, re.Pattern[str]] = {
    # LLaVA, LLaMA-Factory and ms-swift write `<image>`; the others are tokens of Qwen, Pixtral, Gemma 3, Llama 4 and
    # 3.2, Phi 3 and InternVL. A run of equal pad tokens is one picture whose tokens stand there already.
    "image": re.compile(
        r"<image>|(?:<\|image_pad\|>)+|\[IMG\](?:\[IMG\]|\[IMG_BREAK\])*|<start_of_image>|<\|image\|>|<\|image_\d{1,3}\|>"
        r"|(?:<IMG_CONTEXT>)+|<ImageHere>"
    ),
    "sound": re.compile(r"<audio>|<\|AUDIO\|>|<\|audio\|>|<\|audio_\d{1,3}\|>"),
    "video": re.compile(r"<video>|(?:<\|video_pad\|>)+"),
}
"""What stands in a text for a picture, sound or video"""
PLACEHOLDER_SIGNS = ("<", "[IMG]")
"""A text without these has no placeholder"""


class MediaReference(NamedTuple):
    """One picture, sound or video that a row names or holds."""

    kind: MediaKind
    place: str
    """`images[0]`, `messages[0].content[1]`"""
    value: Any
    """A path, an address, bytes, or a record of them; None: a placeholder for one that stands elsewhere"""


@dataclass(frozen=True, slots=True)
class RowMedia:
    """The images, sound and video of a row."""

    in_columns: tuple[MediaReference, ...] = ()
    in_parts: tuple[MediaReference, ...] = ()
    """In the order of the messages"""

    def __bool__(self) -> bool:
        """Are there any?"""
        return bool(self.in_columns or self.in_parts)

    def held(self, kind: MediaKind) -> list[MediaReference]:
        """Those of the columns."""
        return [reference for reference in self.in_columns if reference.kind == kind]

    def parts(self, kind: MediaKind) -> list[MediaReference]:
        """Those of the messages' parts."""
        return [reference for reference in self.in_parts if reference.kind == kind]

    def in_order(self, kind: MediaKind) -> list[MediaReference]:
        """Those that the model gets, in order: a part without a source takes the next of the column."""
        held, parts = self.held(kind), self.parts(kind)
        if not parts:
            return held
        following = iter(held)
        found = (part if part.value is not None else next(following, part) for part in parts)
        return [reference for reference in found if reference.value is not None]

    def count(self, kind: MediaKind) -> int:
        """How many there are. A column's item and a part mean the same picture, so the greater number counts."""
        return max(len(self.held(kind)), len(self.parts(kind)))


NO_ROW_MEDIA = RowMedia()


def find_media_of_row(row: Conversation) -> RowMedia:
    """The images, sound and video in the columns of a row and in the parts of its messages."""
    columns = MEDIA_COLUMNS.keys() & row.raw.keys() if row.raw else ()
    # Content parts are lists; texts, which nearly all rows hold, are passed over without a look.
    has_parts = any(type(message.get("content")) is list for message in row.messages)
    if not columns and not has_parts:
        return NO_ROW_MEDIA
    held = [reference for column in sorted(columns) for reference in _in_column(row, column)]
    return RowMedia(tuple(held), tuple(_in_parts(row)) if has_parts else ())


def count_placeholders(texts: Iterable[str], kind: MediaKind) -> int:
    """How many placeholders of a kind stand in texts."""
    pattern = PLACEHOLDERS[kind]
    return sum(
        sum(1 for _ in pattern.finditer(text))
        for text in texts
        if any(sign in text for sign in PLACEHOLDER_SIGNS)
    )


def texts_of_row(row: Conversation) -> Iterator[str]:
    """The texts of a row that a placeholder may stand in: its messages, or its prompt, completion and text."""
    for text in (row.prompt, row.completion, row.text):
        if text:
            yield text
    for message in row.messages:
        content = message.get("content")
        if isinstance(content, str):
            yield content
        elif isinstance(content, list):
            yield from (part["text"] for part in content if _is_text_part(part))


def _is_text_part(part: Any) -> bool:
    """Is a part of a message a text?"""
    return isinstance(part, dict) and isinstance(part.get("text"), str)


def _in_column(row: Conversation, column: str) -> Iterator[MediaReference]:
    """The references that a column of media holds."""
    value = (row.raw or {})[column]
    kind = MEDIA_COLUMNS[column]
    values = value if isinstance(value, list) else [value]
    for number, item in enumerate(values):
        place = f"{column}[{number}]" if isinstance(value, list) else column
        # A list of lists: the frames of several videos, or the images of several turns.
        for inner in item if isinstance(item, list) else [item]:
            if _holds_something(inner):
                yield MediaReference(kind, place, inner)


def _holds_something(value: Any) -> bool:
    """Is it no empty cell? `datasets` keeps an image as an object of bytes and path; one with neither is empty."""
    if isinstance(value, dict):
        return any(part is not None for part in value.values())
    return bool(value)


def _in_parts(row: Conversation) -> Iterator[MediaReference]:
    """The references of the messages' parts, in order."""
    for index, message in enumerate(row.messages):
        content = message.get("content")
        if not isinstance(content, list):
            continue
        for number, part in enumerate(content):
            kind = MEDIA_PARTS.get(str(part.get("type"))) if isinstance(part, dict) else None
            if kind is not None:
                place = f"messages[{index}].content[{number}]"
                yield MediaReference(kind, place, _source_of_part(part))


def _source_of_part(part: Mapping[str, Any]) -> Any:
    """What a part says that it is: a path, an address, bytes; None where it says nothing."""
    for key in SOURCE_KEYS:
        value = part.get(key)
        if isinstance(value, dict):
            # OpenAI's {"url": ...}, Anthropic's {"type": "base64", "data": ...}, the record of `datasets`.
            inner = (value.get(name) for name in ("url", "data", "bytes", "path"))
            value = next((found for found in inner if found), None)
        if value:
            return value
    return None
