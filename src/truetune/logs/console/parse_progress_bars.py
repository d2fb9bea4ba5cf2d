"""Parses progress bars of tqdm in console output, and the numbers after them.

A bar tells three things that records may not: the step at which one was printed, how many there will be, and how long a
step takes. Loops of one's own write their loss before it or behind it. Only tqdm's form is read; it is that of
transformers, datasets, Lightning and most scripts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from truetune.logs.console.strip_line_prefixes import PROCESS_PREFIX

BAR_PATTERN = re.compile(
    r"(?P<percent>\d{1,3})%\|[^|\r\n]{0,200}\| *(?P<done>\d{1,9})/(?P<total>\d{1,9})"
    r" \[(?P<gone>[\d:?]{4,12})<[^\],]{1,20}"
    r"(?:, (?P<speed>[^\],]{1,24}))?(?P<more>(?:, [^\]]{1,400})?)\]?"
)
"""`12%|█▏  | 60/500 [01:00<07:20,  1.00s/it, loss=2.3]`"""
BAR_SPEED = re.compile(r"^\s*(?P<figure>\d{1,9}(?:\.\d{1,9})?)\s?(?P<unit>s/|[a-zA-Z]{1,12}/s)")
BAR_DESCRIPTION = re.compile(r"^\s*(?P<unit>[^\s\d].{0,60}?):?\s*\d{1,3}%\|")
EPOCH_NUMBER = re.compile(r"\bepoch[\s:\[]{0,3}(?P<epoch>\d{1,6})", re.IGNORECASE)
MAX_DESCRIPTION = 300
"""Characters before a bar that are kept. Chosen: a line of a terminal is shorter"""
NUMBER = r"[-+]?(?:\d{1,20}\.?\d{0,20}(?:e[-+]?\d{1,4})?|(?:nan|inf)(?:\.0)?)"
"""tqdm pads what it takes for a whole number: Lightning's bar shows NaN as `nan.0`"""
NAMED_VALUE = re.compile(
    rf"(?P<name>[A-Za-z_][\w/.]{{0,60}})\s?=\s?(?P<value>{NUMBER})(?![\w.])", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class ProgressBar:
    """One drawing of a progress bar."""

    done: int
    total: int
    values: tuple[tuple[str, str], ...] = ()
    """What stands behind it: loss=2.3"""
    is_described: bool = False
    """A text stands before it (`Map`, `Loading checkpoint shards`): transformers' bar of the training has none"""
    epoch: int | None = None
    """Of a bar that counts the batches of one epoch"""
    seconds: float | None = None
    """What one step takes, as the bar says"""
    gone: float | None = None
    """Seconds since the bar began"""
    text_before: str = ""
    """What `set_description` put before it: `Epoch 1, Step 3, Loss: 1.39`"""
    text_behind: str = ""
    """What stands behind its speed: `, loss: 1.39`"""


def parse_progress_bar(text: str) -> ProgressBar | None:
    """The progress bar that a line draws; None if it draws none."""
    # nearly all lines draw no bar: two characters say so at a fraction of the pattern's cost
    if "%|" not in text:
        return None
    match = BAR_PATTERN.search(text)
    if match is None:
        return None
    launched = PROCESS_PREFIX.match(text)
    described = BAR_DESCRIPTION.match(text[launched.end() :] if launched is not None else text)
    epoch = EPOCH_NUMBER.search(described["unit"]) if described else None
    return ProgressBar(
        done=int(match["done"]),
        total=int(match["total"]),
        values=tuple(NAMED_VALUE.findall(match["more"])),
        is_described=described is not None,
        epoch=int(epoch["epoch"]) if epoch else None,
        seconds=_seconds_per_step(match["speed"] or ""),
        gone=_parse_elapsed_seconds(match["gone"]),
        text_before=text[max(0, match.start() - MAX_DESCRIPTION) : match.start()],
        text_behind=match["more"],
    )


def _seconds_per_step(speed: str) -> float | None:
    """Seconds per step of a speed, `41.57s/it` or `2.10it/s`; None if there is none."""
    match = BAR_SPEED.match(speed)
    if match is None or float(match["figure"]) == 0:
        return None
    figure = float(match["figure"])
    return figure if match["unit"] == "s/" else 1 / figure


def _parse_elapsed_seconds(text: str) -> float | None:
    """The seconds of an elapsed time, `06:36` or `1:02:40`; None if a bar shows no time yet."""
    parts = text.split(":")
    if not all(part.isdecimal() for part in parts):
        return None
    seconds = 0.0
    for part in parts:
        seconds = 60 * seconds + int(part)
    return seconds
