"""Tokens of pictures that the processor cuts into tiles of one size, with a small copy of the whole beside them.

LLaVA-NeXT, Idefics 3 and SmolVLM, InternVL, and Llama 4 choose the number of tiles by the picture's size or shape; each
tile has the same number of tokens, and marks stand between them. The arithmetic is that of transformers 5, in the same
floating-point steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property

import numpy as np

from truetune.render.pictures.picture_expansion import PictureExpansion, PictureRefusedError, Piece
from truetune.render.pictures.processor_settings import ProcessorSettingError, ProcessorSettings

MAX_IDEFICS_SIDE = 4096
"""Pixels of a side above which Idefics 3 shrinks pictures, whatever the settings say"""


class LlavaNextTiles:
    """LLaVA-NeXT: the resolution of a list that keeps most of the picture, without the rows that are padding."""

    def __init__(self, settings: ProcessorSettings) -> None:
        """Read the settings. Raises ProcessorSettingError."""
        crop, size = settings.sides("crop_size"), settings.sides("size")
        self.tile = crop.get("height") or size.get("height") or size.get("shortest_edge", 0)
        if not self.tile:
            raise ProcessorSettingError("neither crop_size nor size is set")
        self.patch = settings.number("patch_size", 14)
        self.more = settings.number("num_additional_image_tokens", 0)
        self.less = settings.of_processor.get("vision_feature_select_strategy") == "default"
        pinpoints = settings.of_images.get("image_grid_pinpoints")
        self.resolutions = [tuple(map(int, pair)) for pair in pinpoints or () if len(pair) == 2]
        if not self.resolutions:
            raise ProcessorSettingError("image_grid_pinpoints is not set")
        self.token = settings.token("image_token", "<image>")

    def placeholder(self) -> str:
        """What stands for a picture in a rendered text."""
        return self.token

    def expand(self, width: int, height: int) -> PictureExpansion:
        """What a picture becomes."""
        best_height, best_width = self._best_resolution(width, height)
        squares = self.tile // self.patch
        # Squares of the tiles in both directions, of which rows or columns of padding are taken off.
        high, wide = squares * (best_height // self.tile), squares * (best_width // self.tile)
        if width / height > wide / high:
            content = int(round(height * (wide / width), 7))
            high -= (high - content) // 2 * 2
        else:
            content = int(round(width * (high / height), 7))
            wide -= (wide - content) // 2 * 2
        # A token ends each row of squares; the small copy of the whole picture has its own.
        tokens = high * wide + high + squares * squares + self.more - self.less
        return PictureExpansion.of([Piece(self.token, tokens)])

    def _best_resolution(self, width: int, height: int) -> tuple[int, int]:
        """(height, width) of the resolution that keeps most pixels, and of several the one that wastes fewest."""
        best = self.resolutions[0]
        most, fewest_wasted = 0, math.inf
        for high, wide in self.resolutions:
            scale = min(wide / width, high / height)
            kept = min(int(width * scale) * int(height * scale), width * height)
            wasted = high * wide - kept
            if kept > most or (kept == most and wasted < fewest_wasted):
                best, most, fewest_wasted = (high, wide), kept, wasted
        return best[0], best[1]


class IdeficsTiles:
    """Idefics 3 and SmolVLM: rows and columns of tiles with their numbers, then the whole picture."""

    def __init__(self, settings: ProcessorSettings) -> None:
        """Read the settings. Raises ProcessorSettingError."""
        self.longest = settings.sides("size").get("longest_edge", 0)
        self.tile = settings.sides("max_image_size").get("longest_edge", 0)
        if not self.longest or not self.tile:
            raise ProcessorSettingError("size or max_image_size has no longest_edge")
        self.is_split = settings.image_flag("do_image_splitting", True)
        self.is_resized = settings.image_flag("do_resize", True)
        self.tokens = settings.number("image_seq_len", 169)
        self.token = settings.token("image_token", "<image>")
        self.around = settings.token("fake_image_token", "<fake_token_around_image>")
        self.whole = settings.token("global_image_token", "<global-img>")

    def placeholder(self) -> str:
        """What stands for a picture in a rendered text."""
        return self.token

    def expand(self, width: int, height: int) -> PictureExpansion:
        """What a picture becomes."""
        rows, columns = self._rows_and_columns(width, height) if self.is_split else (0, 0)
        return PictureExpansion.of(self._pieces(rows, columns))

    def _pieces(self, rows: int, columns: int) -> Iterator[Piece]:
        """The tiles with their marks, then the small copy of the whole."""
        picture = Piece(self.token, self.tokens)
        for row in range(1, rows + 1):
            for column in range(1, columns + 1):
                yield Piece(f"{self.around}<row_{row}_col_{column}>")
                yield picture
            # The last row is parted from the whole picture by an empty line.
            yield Piece("\n\n" if row == rows else "\n")
        yield Piece(f"{self.around}{self.whole}")
        yield picture
        yield Piece(self.around)

    def _rows_and_columns(self, width: int, height: int) -> tuple[int, int]:
        """How many rows and columns of tiles a picture is cut into; (0, 0) where one tile holds it."""
        if self.is_resized:
            width, height = self._resize(width, height)
        ratio = width / height
        tile = self.tile
        if width >= height:
            width = math.ceil(width / tile) * tile
            height = math.ceil(int(width / ratio) / tile) * tile
        else:
            height = math.ceil(height / tile) * tile
            width = math.ceil(int(height * ratio) / tile) * tile
        if not width or not height:
            raise PictureRefusedError(
                "it is so narrow that nothing is left of it once it is shrunk"
            )
        if height <= tile and width <= tile:
            return 0, 0
        return height // tile, width // tile

    def _resize(self, width: int, height: int) -> tuple[int, int]:
        """The size whose longest side is that of the settings, the other side even, and none above 4,096."""
        ratio = width / height
        if width >= height:
            width, height = self.longest, int(self.longest / ratio)
            height += height % 2
        else:
            width, height = int(self.longest * ratio), self.longest
            width += width % 2
        width, height = max(width, 1), max(height, 1)
        ratio = width / height
        if width >= height and width > MAX_IDEFICS_SIDE:
            width, height = MAX_IDEFICS_SIDE, int(MAX_IDEFICS_SIDE / ratio)
        elif height > width and height > MAX_IDEFICS_SIDE:
            width, height = int(MAX_IDEFICS_SIDE * ratio), MAX_IDEFICS_SIDE
        return max(width, 1), max(height, 1)


class InternTiles:
    """InternVL: the grid of tiles whose shape is nearest to the picture's, and the whole where it has several."""

    def __init__(self, settings: ProcessorSettings) -> None:
        """Read the settings. Raises ProcessorSettingError."""
        size = settings.sides("size")
        self.tile_height, self.tile_width = size.get("height", 0), size.get("width", 0)
        if not self.tile_height or not self.tile_width:
            raise ProcessorSettingError("size has no height and width")
        self.fewest = settings.image_number("min_patches", 1)
        self.most = settings.image_number("max_patches", 12)
        self.tokens = settings.number("image_seq_length", 256)
        self.token = settings.token("context_image_token", "<IMG_CONTEXT>")
        self.start = settings.token("start_image_token", "<img>")
        self.end = settings.token("end_image_token", "</img>")

    def placeholder(self) -> str:
        """What stands for a picture in a rendered text."""
        return self.token

    def expand(self, width: int, height: int) -> PictureExpansion:
        """What a picture becomes."""
        tiles = self._tiles(width, height)
        tiles += tiles > 1
        return PictureExpansion.of(
            [Piece(self.start), Piece(self.token, self.tokens * tiles), Piece(self.end)]
        )

    @cached_property
    def _grids(self) -> list[tuple[int, int]]:
        """(columns, rows) of all grids with as many tiles as are allowed, those with few tiles first."""
        sides = range(1, self.most + 1)
        grids = [(wide, high) for wide in sides for high in sides]
        return sorted(
            (grid for grid in grids if self.fewest <= grid[0] * grid[1] <= self.most),
            key=lambda grid: grid[0] * grid[1],
        )

    def _tiles(self, width: int, height: int) -> int:
        """The number of tiles of the grid that fits best."""
        if self.most <= 1:
            return 1
        ratio, best, least = width / height, (1, 1), math.inf
        tile_area = self.tile_height * self.tile_width
        for grid in self._grids:
            difference = abs(ratio - grid[0] / grid[1])
            # Of two grids of one shape the larger one is taken if the picture fills more than half of it.
            is_filled = width * height > 0.5 * tile_area * grid[0] * grid[1]
            if difference < least or (difference == least and is_filled):
                best, least = grid, difference
        return best[0] * best[1]


class Llama4Tiles:
    """Llama 4: the canvas of up to `max_patches` tiles that shrinks the picture least, and the whole picture."""

    def __init__(self, settings: ProcessorSettings) -> None:
        """Read the settings. Raises ProcessorSettingError."""
        size = settings.sides("size")
        self.tile = size.get("height", 336)
        if self.tile != size.get("width", 336) or not self.tile:
            raise ProcessorSettingError("size is no square")
        self.most = settings.image_number("max_patches", 16)
        self.is_largest = settings.image_flag("resize_to_max_canvas", False)
        ratio = settings.of_processor.get("pixel_shuffle_ratio", 0.5)
        if not isinstance(ratio, int | float) or not ratio:
            raise ProcessorSettingError(f"pixel_shuffle_ratio is {ratio!r}")
        squares = (self.tile // settings.number("patch_size", 14)) ** 2
        self.tokens = squares // round(1 / ratio**2)
        self.token = settings.token("fake_image_token", "<|image|>")

    def placeholder(self) -> str:
        """What stands for a picture in a rendered text."""
        return self.token

    def expand(self, width: int, height: int) -> PictureExpansion:
        """What a picture becomes."""
        rows, columns = self._canvas(width, height)
        return PictureExpansion.of(self._pieces(rows, columns))

    def _pieces(self, rows: int, columns: int) -> Iterator[Piece]:
        """The tiles with what parts them, then the whole picture."""
        tile = Piece("<|patch|>", self.tokens)
        yield Piece("<|image_start|>")
        for _ in range(rows if rows * columns > 1 else 0):
            for column in range(columns):
                yield tile
                if column < columns - 1:
                    yield Piece("<|tile_x_separator|>")
            yield Piece("<|tile_y_separator|>")
        yield Piece("<|image|>")
        yield tile
        yield Piece("<|image_end|>")

    @cached_property
    def _canvases(self) -> np.ndarray:
        """(canvases, 2) rows and columns of tiles, by their shape, in the order in which shapes are met."""
        by_shape: dict[float, list[tuple[int, int]]] = {}
        for tiles in range(self.most, 0, -1):
            for rows in range(1, tiles + 1):
                if tiles % rows == 0:
                    by_shape.setdefault(rows / (tiles // rows), []).append((rows, tiles // rows))
        return np.array([canvas for canvases in by_shape.values() for canvas in canvases])

    def _canvas(self, width: int, height: int) -> tuple[int, int]:
        """(rows, columns) of the canvas for a picture of this size."""
        # In 32 bits, as torch divides: two canvases are equally good where these numbers are equal.
        pixels = (self._canvases * self.tile).astype(np.float32)
        scales = np.minimum(pixels[:, 0] / np.float32(height), pixels[:, 1] / np.float32(width))
        growing = scales[scales >= 1]
        # A small picture is enlarged as little as possible, a large one is shrunk as little as possible.
        is_least = len(growing) > 0 and not self.is_largest
        chosen = growing.min() if is_least else scales.max()
        fitting = self._canvases[scales == chosen]
        rows, columns = fitting[np.argmin(fitting[:, 0] * fitting[:, 1])]
        return int(rows), int(columns)
