"""Reads whole files up to a size limit, and streams of lines up to a length limit.

Every reader asks for one byte more than it may have, and refuses where it gets it: so nothing depends on the size that
a file system names. A line that is too long is passed over and not held, for the rows behind it are good.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO

from truetune.parsing.input_limits import (
    BLANK_LINES_PER_LINE,
    MAX_BLANK_LINES,
    ROW,
    InputLimitError,
    Limits,
    size_in_binary_units,
)

# Chosen, not measured: the rest of a line that is too long is thrown away in pieces of this size.
SKIP_BYTES = 1 << 20


def read_bytes_within_limit(path: Path, limits: Limits) -> bytes:
    """The bytes of a file, of any kind. Raises OSError, and InputLimitError for a file that is
    larger than the limits allow.

    No more than the limit is read, whatever the size that the file system names: pipes and devices have none.
    """
    with path.open("rb") as file:
        content = file.read(limits.max_bytes + 1)
    if len(content) > limits.max_bytes:
        raise InputLimitError(
            f"larger than {size_in_binary_units(limits.max_bytes)}, the limit for {limits.name}"
        )
    return content


def lines_within_limit(
    file: IO[bytes], max_bytes: int = ROW.max_bytes, *, first: int = 1
) -> Iterator[tuple[bytes, int]]:
    """The lines of a stream with their ends, and how many bytes each has. A line that is longer
    than `max_bytes` is skipped: it comes as an empty line with its real size.

    One that is longer than `max_bytes` is passed over; it comes as an empty line.

    Args:
        file: the stream.
        max_bytes: of one line.
        first: the number of the line with which the stream begins.

    Raises InputLimitError, with the line, where nearly all lines are blank (`refuse_mostly_blank_lines`).
    """
    blank = others = 0
    # `partial` and not a lambda: this runs for every line of the data.
    for content in iter(partial(file.readline, max_bytes + 1), b""):
        if content.isspace():
            blank += 1
            refuse_mostly_blank_lines(blank, others, first)
        else:
            others += 1
        if len(content) <= max_bytes:
            yield content, len(content)
        else:
            # Empty, for no real line is: its end would be there. The size keeps offsets right.
            yield b"", len(content) + _skip_rest_of_line(file, content)


def refuse_mostly_blank_lines(blank: int, others: int, first: int = 1) -> None:
    """Raise InputLimitError if nearly all lines up to here are blank, so that reading them is all
    that a file costs.

    Args:
        blank: lines that hold nothing or white space, since line `first`.
        others: lines that hold something, since then.
        first: the number of the line from which they are counted.
    """
    # A bound on work, not on memory: compressed newlines unpack a thousandfold.
    if blank > MAX_BLANK_LINES + BLANK_LINES_PER_LINE * others:
        raise InputLimitError(
            f"{blank:,} of {blank + others:,} lines up to here are blank, the limit is"
            f" {MAX_BLANK_LINES:,} and {BLANK_LINES_PER_LINE} for each other line; is this the"
            " right file? If so, remove the blank lines",
            first + blank + others - 1,
        )


def message_for_too_long_line(max_bytes: int = ROW.max_bytes) -> str:
    """The message for a line that is longer than the limit: the limit, and what to do."""
    return (
        f"longer than {size_in_binary_units(max_bytes)}, the limit for one row; "
        "split it into several rows, or leave it out"
    )


def _skip_rest_of_line(file: IO[bytes], begin: bytes) -> int:
    """Read up to the end of the line that begins so, and return how many bytes were read."""
    size = 0
    while not begin.endswith(b"\n"):
        begin = file.readline(SKIP_BYTES)
        if not begin:
            break
        size += len(begin)
    return size
