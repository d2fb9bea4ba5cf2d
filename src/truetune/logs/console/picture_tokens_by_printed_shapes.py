"""Counts how many tokens of a batch are those of pictures, by the tensor shapes that a script
prints.

Qwen's processors cut pictures into patches, and the model merges four of them into a token: `pixel_values` of
(62208, 1176) are 15,552 tokens, whatever the text is. Other models give all pictures one size, and shapes of theirs
(rows x 3 x height x width) are left alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

# Bounded repeats: lines are what others wrote.
SHAPE = re.compile(
    r"\b(pixel_values|input_ids)['\"]?(?:\.shape|\.size\(\))?\s{0,3}[:=,]?\s{0,3}(?:torch\.Size\(|Size\()?[\[(]\s?"
    r"(\d{1,9}),\s?(\d{1,9}),?\s?[\])]"
)
PATCH_SIDES = (14, 16)
"""Pixels of a patch's side in Qwen2-VL and Qwen2.5-VL, and in Qwen3-VL"""
PATCH_WIDTHS = tuple(3 * 2 * side * side for side in PATCH_SIDES)
"""Numbers of a patch: 3 colours x 2 frames x its pixels"""
MERGED_PATCHES = 2
"""Patches along each side of a square that is one token"""
TOKEN_SIDES = tuple(MERGED_PATCHES * side for side in PATCH_SIDES)
"""Pixels of that square's side"""
PATCHES_A_TOKEN = MERGED_PATCHES**2
MIN_PICTURE_TOKENS = 4_096
"""Tokens of a picture that is too large. Chosen: a scanned page of text needs 1,000 to 3,000 to be read"""
USUAL_PICTURE_TOKENS = 1_280
"""Tokens of the limit that the model's own page recommends"""
MIN_SHARE = 0.5
"""Share of a batch's tokens from which pictures make its length"""


class PictureTokens(NamedTuple):
    """The tokens of pictures in one batch."""

    rows: int
    length: int
    """Tokens of a row, as the batch is padded"""
    tokens: int
    """Those of its pictures, over all rows"""
    shape: str
    """Of pixel_values"""
    line: int

    @property
    def share(self) -> float:
        """The share of the batch's tokens that are those of pictures."""
        return self.tokens / (self.rows * self.length)

    def __str__(self) -> str:
        """`rows of 15,686 tokens, 15,552 of them (99%) those of pictures`"""
        of_pictures = f"{self.tokens // self.rows:,} of them ({self.share:.0%}) those of pictures"
        return f"rows of {self.length:,} tokens, {of_pictures}"


@dataclass(slots=True)
class PictureShapeReader:
    """Collects the shapes of batches: of several the one with the most tokens of pictures holds."""

    _shapes: dict[str, tuple[int, int]] = field(default_factory=dict)
    _largest: PictureTokens | None = None

    def add_line(self, text: str, number: int) -> None:
        """Read one line without its prefixes."""
        if "pixel_values" not in text and "input_ids" not in text:
            return
        for name, first, second in SHAPE.findall(text):
            self._shapes[name] = int(first), int(second)
        if len(self._shapes) == 2:
            self._keep_batch_of_shapes(number)

    def _keep_batch_of_shapes(self, number: int) -> None:
        """Keep the batch of the two shapes that were seen last, if its pictures are the most so
        far.
        """
        (patches, width), (rows, length) = self._shapes["pixel_values"], self._shapes["input_ids"]
        self._shapes.clear()
        tokens = patches // PATCHES_A_TOKEN
        if width not in PATCH_WIDTHS or not 0 < tokens <= rows * length:
            return
        if self._largest is None or tokens > self._largest.tokens:
            shape = f"({patches:,}, {width:,})"
            self._largest = PictureTokens(rows, length, tokens, shape, number)

    def finish(self) -> PictureTokens | None:
        """The batch with the most tokens of pictures; None if no batch of pictures is printed, or
        they are little of it.
        """
        largest = self._largest
        return largest if largest is not None and largest.share >= MIN_SHARE else None
