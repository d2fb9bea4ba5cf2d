"""Counts the bytes of text in each row of some files, an upper bound for its tokens.

The trade-off: all texts of a row count, whichever of them are trained.
"""

from __future__ import annotations

from collections.abc import Iterable

from truetune.data.find_data_files import DataFile, open_raw
from truetune.data.read_file_records import read_records
from truetune.errors import DataError
from truetune.parsing.decompress_within_limits import UNREADABLE

# Measured with 30 published tokenizers: 4.3 to 4.8 for English prose, about 3 for documents with code. At 5 a row of
# long words could be called too long that is not; at 10 rows of twice the limit would pass.
MOST_CHARACTERS_PER_TOKEN = 6
"""Characters that no tokenizer packs into a token on average"""
# Chosen, not measured: five thousand rows are read in a tenth of a second, and of more the longest is not looked for.
MAX_ROWS = 5_000
# A row's turns and their parts lie three levels deep; what lies deeper is no text that is trained.
MAX_DEPTH = 8


def text_bytes_of_rows(sources: Iterable[DataFile]) -> list[int] | None:
    """The number of bytes of the texts in each row; None if a file can't be read whole, or the rows
    are too many.

    Args:
        sources: The files; one that is not on this machine makes the whole unknown, so leave none out.
    """
    sizes: list[int] = []
    try:
        for source in sources:
            with open_raw(source.path) as raw:
                for record in read_records(source, raw):
                    if len(sizes) == MAX_ROWS:
                        return None
                    sizes.append(_text_bytes_in_value(record.row))
    except (DataError, *UNREADABLE):
        return None
    return sizes


def text_bytes_of_first_rows_and_if_all(sources: Iterable[DataFile]) -> tuple[list[int], bool]:
    """The number of bytes of the texts in each of the first rows, and whether these are all rows.

    Args:
        sources: The files; one that can't be read ends the list.
    """
    sizes: list[int] = []
    try:
        for source in sources:
            with open_raw(source.path) as raw:
                for record in read_records(source, raw):
                    if len(sizes) == MAX_ROWS:
                        return sizes, False
                    sizes.append(_text_bytes_in_value(record.row))
    except (DataError, *UNREADABLE):
        return sizes, False
    return sizes, True


def _text_bytes_in_value(value: object, depth: int = 0) -> int:
    """The bytes of all texts in a value, without the names of its fields."""
    if isinstance(value, str):
        return len(value.encode("utf-8", "replace"))
    if depth > MAX_DEPTH:
        return 0
    if isinstance(value, dict):
        return sum(_text_bytes_in_value(one, depth + 1) for one in value.values())
    if isinstance(value, list):
        return sum(_text_bytes_in_value(one, depth + 1) for one in value)
    return 0
