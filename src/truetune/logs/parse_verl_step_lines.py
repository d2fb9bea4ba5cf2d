"""Parses the lines in which verl prints the figures of a step: `step:34 - actor/entropy:0.22 - critic/score/mean:0.4`.

verl prints one such line a step, behind Ray's `(TaskRunner pid=7)`, with up to a hundred figures: too long and too
unlike a loop's line for the patterns of `parse_printed_records`. Figures are separated by ` - `, and a name may hold
colons and blanks (`val-core/my data/acc/mean@1`), so a name ends at the last colon of its part. With numpy 2 a value
is printed as `np.float64(0.22)`.
"""

from __future__ import annotations

import re

from truetune.logs.run_log_builder import parse_logged_number

STEP_OF_LINE = re.compile(r"(?:^|[\s)m])step:\s?(\d{1,9}) - (?=\S)")
"""`m` ends a terminal code (`\\x1b[0m`), which Ray prints around the process"""
SEPARATOR = " - "
NUMPY_NUMBER = re.compile(r"^(?:np|numpy)\.\w{1,20}\((?P<number>[^()]{1,60})\)$")
MIN_FIGURES = 2
"""One figure alone may stand in prose"""


def parse_verl_step_line(text: str) -> dict[str, float | str] | None:
    """The record in a line of verl's; None for any other line.

    Args:
        text: the line, with or without what Ray and a logger print before it.
    """
    head = STEP_OF_LINE.search(text)
    if head is None:
        return None
    record: dict[str, float | str] = {}
    for part in text[head.end() :].split(SEPARATOR):
        name, colon, printed = part.rpartition(":")
        number = _printed_number(printed)
        if colon and name and number is not None:
            record[name.strip()] = number
    return {"step": head[1], **record} if len(record) >= MIN_FIGURES else None


def _printed_number(printed: str) -> float | None:
    """A value as it is printed, as a number; None if it is none."""
    printed = printed.strip()
    wrapped = NUMPY_NUMBER.match(printed)
    return parse_logged_number(wrapped["number"] if wrapped is not None else printed)
