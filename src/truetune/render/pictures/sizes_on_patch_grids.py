"""Tokens of pictures whose processor keeps their shape: one token for each square of a grid over the resized picture.

Qwen2-VL, Qwen2.5-VL, Qwen3-VL and what is built on them round both sides to whole squares, and shrink or enlarge the
picture until its area is within bounds. Pixtral and Mistral 3 shrink it to a longest side and cover it with squares.
The arithmetic is that of transformers 5, in the same floating-point steps, since a rounding decides over a whole row of
squares.
"""

from __future__ import annotations

import math

from truetune.render.pictures.picture_expansion import PictureExpansion, PictureRefusedError, Piece
from truetune.render.pictures.processor_settings import ProcessorSettingError, ProcessorSettings

MAX_ASPECT_RATIO = 200
"""Above it Qwen's processors raise an error (transformers, smart_resize)"""
DEFAULT_MIN_PIXELS, DEFAULT_MAX_PIXELS = 56 * 56, 28 * 28 * 1280
"""Bounds of Qwen's processors where the settings have none"""


class QwenGrid:
    """Qwen's grid: `max_pixels` and `min_pixels` bound the area."""

    def __init__(self, settings: ProcessorSettings) -> None:
        """Read the settings. Raises ProcessorSettingError."""
        size = settings.sides("size")
        self.patch = settings.image_number("patch_size", 14)
        self.merge = settings.image_number("merge_size", 2)
        shortest = size.get("shortest_edge", DEFAULT_MIN_PIXELS)
        longest = size.get("longest_edge", DEFAULT_MAX_PIXELS)
        # As transformers reads old settings: `min_pixels` wins over `size.shortest_edge`.
        self.min_pixels = settings.image_number("min_pixels", shortest)
        self.max_pixels = settings.image_number("max_pixels", longest)
        self.is_resized = settings.image_flag("do_resize", True)
        self.token = settings.token("image_token", "<|image_pad|>")

    def placeholder(self) -> str:
        """What stands for a picture in a rendered text."""
        return self.token

    def expand(self, width: int, height: int) -> PictureExpansion:
        """What a picture becomes. Raises PictureRefusedError."""
        if self.is_resized:
            width, height = self._resize(width, height)
        squares = (height // self.patch) * (width // self.patch) // self.merge**2
        return PictureExpansion.of([Piece(self.token, squares)])

    def _resize(self, width: int, height: int) -> tuple[int, int]:
        """Both sides as multiples of a token's square, the area within the bounds. Raises PictureRefusedError."""
        ratio = max(height, width) / min(height, width)
        if ratio > MAX_ASPECT_RATIO:
            raise PictureRefusedError(
                f"its sides are {ratio:.0f} : 1, and the processor takes {MAX_ASPECT_RATIO} : 1"
            )
        side = self.patch * self.merge
        high, wide = round(height / side) * side, round(width / side) * side
        if high * wide > self.max_pixels:
            shrink = math.sqrt((height * width) / self.max_pixels)
            high = max(side, math.floor(height / shrink / side) * side)
            wide = max(side, math.floor(width / shrink / side) * side)
        elif high * wide < self.min_pixels:
            grow = math.sqrt(self.min_pixels / (height * width))
            high = math.ceil(height * grow / side) * side
            wide = math.ceil(width * grow / side) * side
        return wide, high


class PixtralGrid:
    """Pixtral's grid: a token for each square, and one at the end of each row of squares."""

    def __init__(self, settings: ProcessorSettings) -> None:
        """Read the settings. Raises ProcessorSettingError."""
        size = settings.sides("size")
        longest = size.get("longest_edge", 0)
        self.max_height = longest or size.get("height", 0)
        self.max_width = longest or size.get("width", 0)
        if not self.max_height or not self.max_width:
            raise ProcessorSettingError("size has no longest_edge")
        self.square = settings.number("patch_size", 16) * settings.number("spatial_merge_size", 1)
        self.token = settings.token("image_token", "[IMG]")
        self.row_end = settings.token("image_break_token", "[IMG_BREAK]")
        self.end = settings.token("image_end_token", "[IMG_END]")

    def placeholder(self) -> str:
        """What stands for a picture in a rendered text."""
        return self.token

    def expand(self, width: int, height: int) -> PictureExpansion:
        """What a picture becomes. Raises PictureRefusedError."""
        ratio = max(height / self.max_height, width / self.max_width)
        if ratio > 1:
            height, width = math.floor(height / ratio), math.floor(width / ratio)
        rows, columns = (height - 1) // self.square + 1, (width - 1) // self.square + 1
        if not rows or not columns:
            raise PictureRefusedError(
                "it is so narrow that nothing is left of it once it is shrunk"
            )
        row = [Piece(self.token, columns), Piece(self.row_end)]
        return PictureExpansion.of([*row * (rows - 1), Piece(self.token, columns), Piece(self.end)])
