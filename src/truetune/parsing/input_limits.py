"""The limits on everything that is read, in one table, and the error for input that exceeds them.

The bounds are far above what real files have, and low enough that a file made to hurt costs less than 1 GB of memory.
Each comment says where the figure comes from.
"""

from __future__ import annotations

from typing import NamedTuple

MEBIBYTE = 1 << 20
MAX_NESTING = 64
"""Objects and lists inside one another. Published data sets and JSON schemas stay below 20. Code that walks a value
takes up to ten Python frames for a level, and Python allows 1,000 frames."""
MAX_SETTING_BITS = 64
"""Bits of a whole number in settings: libraries hold them as int64, seeds as uint64."""
MAX_EXACT_DIGITS = 18
"""Digits of a whole number in files of models and logs that stays a whole number; longer ones become floats."""
MAX_ALIAS_CHARACTERS = 8 * MEBIBYTE
"""Characters of all scalars in settings, each counted as often as an alias repeats it."""
MAX_SYNTAX_DEPTH = 150
"""Levels of a Python syntax tree. Scripts stay below 40, a chain of 60 `elif` included. The rules walk a tree with up
to four Python frames for a level."""
MAX_LITERAL_CHARACTERS = 20_000
"""Characters of one Python literal in a printed log. A record of a trainer has some hundred."""
MAX_DECOMPRESSED_RATIO = 200
"""How many times its size a compressed file may unpack to. Texts reach 3 to 20, one row repeated about 1,000."""
MIN_DECOMPRESSED_BYTES = 256 * MEBIBYTE
"""The ratio counts from here on, so that a small file of repeated rows can be read."""
MAX_DECOMPRESSOR_MEMORY = 256 * MEBIBYTE
"""Bytes that the window of an xz file may ask for: `xz -9` takes 65 MiB."""
MAX_PACKED_TABLE_BYTES = 256 * MEBIBYTE
"""Bytes of a Parquet or Arrow file inside a compressed one: it is read from its end, so it is held in memory."""
MAX_BATCH_BYTES = 256 * MEBIBYTE
"""Bytes of the rows of a table that are held at once."""
MAX_TABLE_NESTING = MAX_NESTING
MAX_TABLE_COLUMNS = 20_000
"""Fields of a table, those inside of other fields included; of a CSV file, the fields of a record."""
MAX_BLANK_LINES = 100_000
"""Blank lines of a file, besides BLANK_LINES_PER_LINE. They cost time and hold nothing: 300 MB of newlines take a
minute, and as few as 250 bytes unpack to them."""
BLANK_LINES_PER_LINE = 10
"""Blank lines more for each line that holds something, so that rows set far apart can be read."""


# A caller chooses the kind of document, never a number: so one table bounds everything, and docs/limits.md shows it.
class Limits(NamedTuple):
    """What one kind of document may have."""

    name: str
    """As messages call it"""
    max_bytes: int
    max_values: int
    """Values in it, the containers included"""
    max_nesting: int = MAX_NESTING


ROW = Limits("a row", 16 * MEBIBYTE, 1_000_000)
"""One line of JSONL, one element of a JSON array, one record of a CSV file. 16 MiB are 4 million tokens."""
SETTINGS = Limits("a settings file", MEBIBYTE, 50_000)
"""YAML, JSON and TOML."""
LOCK = Limits("a lock file", 16 * MEBIBYTE, 1_000_000)
"""uv.lock and the like, which are searched and not parsed."""
FLAG = Limits("a value on the command line", MEBIBYTE // 8, 10_000)
"""128 KiB is the longest single argument that Linux takes."""
MODEL_FILE = Limits("a JSON file of a model", 64 * MEBIBYTE, 5_000_000)
"""config.json to tokenizer.json; the largest published tokenizer.json has 35 MB and 2 million values."""
TENSOR_HEADER = Limits("the header of a safetensors file", 32 * MEBIBYTE, 5_000_000)
"""The format allows 100 MB; the longest headers of published models have some MB."""
LOG = Limits("a JSON log", 128 * MEBIBYTE, 5_000_000)
"""A trainer_state.json of 100,000 records has 25 MB and a million values."""
LOG_RECORD = Limits("a record of a log", MEBIBYTE, 50_000)
BINARY_LOG = Limits("a TensorBoard or W&B log", 512 * MEBIBYTE, 5_000_000)
"""max_values counts its records."""
NOTEBOOK = Limits("a notebook", 4 * MEBIBYTE, 500_000)
SOURCE = Limits("Python source", 4 * MEBIBYTE, 500_000, MAX_SYNTAX_DEPTH)
REPLY = Limits("a reply", 16 * MEBIBYTE, 1_000_000)
"""What a server or a model answers, and JSON that stands as text inside a message."""
RESULT = Limits("a result of truetune", 512 * MEBIBYTE, 20_000_000)
"""What truetune itself wrote: results, records, manifests."""


class InputLimitError(ValueError):
    """The input goes past a bound; `lineno` is the line, from 1, or None where there are no lines."""

    def __init__(self, msg: str, lineno: int | None = None) -> None:
        # The message has no path: the reader behind the guard does not know it, and its caller adds
        # it.
        super().__init__(msg if lineno is None else f"{msg}: line {lineno}")
        self.msg = msg
        self.lineno = lineno


def size_in_binary_units(size: int) -> str:
    """A number of bytes as text with a binary unit: `16 MiB`."""
    return f"{size // MEBIBYTE} MiB" if size % MEBIBYTE == 0 else f"{size // 1024} KiB"


def refuse_too_large(size: int, limits: Limits) -> None:
    """Raises InputLimitError where there are more bytes (or characters) than the limits allow."""
    if size > limits.max_bytes:
        raise InputLimitError(
            f"larger than {size_in_binary_units(limits.max_bytes)}, the limit for {limits.name}"
        )
