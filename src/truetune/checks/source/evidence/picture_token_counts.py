"""Finds image processors that keep pictures at their full size, and computes how many tokens the
pictures of a script's rows are.

Most image processors give all pictures one size. Those of Qwen's models keep the size of the
picture, up to 16,384 tokens: a token is a square of 28 x 28 pixels (32 x 32 in Qwen3-VL). So a
photo of a phone is 15,000 tokens, unless the processor, the message or the script limits it.

The trade-off: any word of a limit in the script, or in a module beside it that it imports, silences
the rule.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from truetune.checks.source.evidence.file_rows_behind_values import (
    SUFFIXES,
    find_data_file,
    read_first_rows_of_file,
)
from truetune.data.media_of_row import MEDIA_COLUMNS
from truetune.logs.console.picture_tokens_by_printed_shapes import TOKEN_SIDES
from truetune.parsing.read_picture_header import read_picture_size
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

PROCESSORS = (
    "transformers.AutoProcessor.from_pretrained",
    "transformers.AutoImageProcessor.from_pretrained",
    "transformers.Qwen*Processor*.from_pretrained",
)
SIDE_OF_QWEN2, SIDE_OF_QWEN3 = TOKEN_SIDES
SIDES = (
    (re.compile(r"qwen[-_]?3(?:\.5)?[-_]?(?:vl|omni)", re.IGNORECASE), SIDE_OF_QWEN3),
    (
        re.compile(
            r"qwen[-_]?2(?:[._]5)?[-_]?(?:vl|omni)|\bqvq\b|ui-tars|olmocr|mimo-vl|nanonets-ocr",
            re.IGNORECASE,
        ),
        SIDE_OF_QWEN2,
    ),
)
"""Names of models whose processor keeps the size of pictures, and the side of the square that is a token"""
MAX_TOKENS = 16_384
"""Tokens of a picture at which these processors limit it themselves"""
LIMIT = re.compile(
    r"pixels|resized_|longest_edge|shortest_edge|resiz|thumbnail|Resiz|RESIZ|PIXELS|max_size|shrink|downscale|downsample"
    r"|image_size|max_side|max_edge|crop\("
)
"""What a script says where it limits pictures"""
SIZE_COLUMNS = (
    ("width", "height"),
    ("image_width", "image_height"),
    ("img_width", "img_height"),
    ("w", "h"),
)
MAX_FILES, MAX_PICTURES, MAX_MODULE_BYTES = 8, 40, 1 << 20
"""Data files and pictures that are looked at, and the largest module that is"""
MIN_ROWS = 2
"""Rows from which a list is one of pictures. Chosen by hand: a single entry is no data set"""


class UnlimitedProcessor(NamedTuple):
    """A processor that keeps the size of pictures."""

    call: Call
    model: str
    side: int
    """Pixels of a token's side"""


class PictureSizes(NamedTuple):
    """How large the pictures of a file are."""

    source: str
    rows: int
    """Rows whose picture's size is known"""
    width: int
    height: int
    """Of a picture in the middle, by its tokens"""
    tokens: int
    """Of that picture"""


def processors_without_size_limit(module: Module) -> Iterator[UnlimitedProcessor]:
    """The processors of a script that keep the size of pictures; none where anything limits them."""
    calls = list(module.calls(*PROCESSORS))
    if not calls or LIMIT.search(module.text) or _imported_module_limits_pictures(module):
        return
    for call in calls:
        model = module.flow.value(call.argument(0, "pretrained_model_name_or_path"))
        # What `**settings` hold may be a limit, and a folder's own settings too.
        if call.open or not isinstance(model, str) or _is_local_folder(module, model):
            continue
        side = next((side for name, side in SIDES if name.search(model)), 0)
        if side:
            yield UnlimitedProcessor(call, model, side)


def find_picture_sizes(module: Module, side: int) -> PictureSizes | None:
    """The sizes of the pictures that a script's rows name; None where they are not known."""
    for source, folder, rows in _names_folders_and_rows_of_data(module):
        sizes = list(_picture_sizes_of_rows(rows, (folder, Path(module.path).resolve().parent)))
        if len(sizes) >= MIN_ROWS:
            by_tokens = sorted(sizes, key=lambda size: tokens_of_picture(size[0], size[1], side))
            width, height = by_tokens[len(by_tokens) // 2]
            tokens = int(median(tokens_of_picture(wide, high, side) for wide, high in sizes))
            return PictureSizes(source, len(sizes), width, height, tokens)
    return None


def tokens_of_picture(width: int, height: int, side: int) -> int:
    """The tokens of a picture: both sides are rounded to whole squares."""
    return min(MAX_TOKENS, max(1, round(width / side)) * max(1, round(height / side)))


def _names_folders_and_rows_of_data(
    module: Module,
) -> Iterator[tuple[str, Path, tuple[Mapping[str, Any], ...]]]:
    """(name, folder, rows) of the data files that a script names, and of lists of rows in it."""
    home = Path(module.path).resolve().parent
    names = (
        node.value
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    files = dict.fromkeys(name for name in names if name.lower().endswith(SUFFIXES))
    for name in islice(files, MAX_FILES):
        path = find_data_file(module, name)
        if path is not None:
            yield path.name, path.parent, read_first_rows_of_file(path)
    yield from (("the rows in this file", home, rows) for rows in _rows_in_script(module) if rows)


def _rows_in_script(module: Module) -> Iterator[tuple[Mapping[str, Any], ...]]:
    """The lists of rows that stand in a script."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.List) and len(node.elts) >= MIN_ROWS:
            rows = module.flow.value(node)
            yield (
                tuple(one for one in rows if isinstance(one, dict))
                if isinstance(rows, list)
                else ()
            )


def _picture_sizes_of_rows(
    rows: tuple[Mapping[str, Any], ...], folders: tuple[Path, ...]
) -> Iterator[tuple[int, int]]:
    """(width, height) of rows, by their columns or by the heads of the files that they name."""
    read = 0
    for row in rows:
        size = _picture_size_in_columns(row)
        if size is None and read < MAX_PICTURES:
            names = list(_picture_names(row))
            read += len(names)
            size = next(
                (found for name in names if (found := _size_of_picture_file(name, folders))), None
            )
        if size is not None:
            yield size


def _picture_size_in_columns(row: Mapping[str, Any]) -> tuple[int, int] | None:
    """The size that a row's columns say; None where they say none. Without a picture they speak of
    something else.
    """
    if not any(name.lower() in MEDIA_COLUMNS for name in map(str, row)):
        return None
    inside = row.get("image")
    for place in (row, inside if isinstance(inside, dict) else {}):
        for names in SIZE_COLUMNS:
            width, height = (place.get(name) for name in names)
            if type(width) is int and type(height) is int and width > 0 and height > 0:
                return width, height
    return None


def _picture_names(row: Mapping[str, Any]) -> Iterator[str]:
    """The files of pictures that a row names in its columns."""
    for name, value in row.items():
        if MEDIA_COLUMNS.get(str(name).lower()) != "image":
            continue
        for one in value if isinstance(value, list) else [value]:
            path = one.get("path") if isinstance(one, dict) else one
            if isinstance(path, str) and path:
                yield path.removeprefix("file://")


def _size_of_picture_file(name: str, folders: tuple[Path, ...]) -> tuple[int, int] | None:
    """The size of a picture that a row names, from one of these folders."""
    sizes = (read_picture_size(folder / name) for folder in dict.fromkeys(folders))
    return next((size for size in sizes if size is not None), None)


def _is_local_folder(module: Module, model: str) -> bool:
    """Is a model a folder of this machine, whose own settings may have a limit?"""
    try:
        return (Path(module.path).resolve().parent / model).exists()
    except (OSError, ValueError):
        return False


def _imported_module_limits_pictures(module: Module) -> bool:
    """Does a module beside the script, which it imports, limit pictures?"""
    folder = Path(module.path).resolve().parent
    for node in ast.walk(module.tree):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [one.name for one in node.names] if isinstance(node, ast.Import) else []
        for name in names:
            path = folder.joinpath(*name.split(".")).with_suffix(".py")
            if name and _module_text(path) and LIMIT.search(_module_text(path)):
                return True
    return False


def _module_text(path: Path) -> str:
    """The text of a module; empty where it is not there, or far too large."""
    try:
        if not path.is_file() or path.stat().st_size > MAX_MODULE_BYTES:
            return ""
        return path.read_text("utf-8", "replace")
    except (OSError, ValueError):
        return ""
