"""Collects the lines that a single process of a run prints about a step that it skips or meets an
error in.

Processes do the same, step by step. A line that only one prints under its number ("[rank 2] no labels, skipping") says
where it did something else; the time-out that follows comes minutes and many lines later. The trade-off: only lines
that say so in words are kept, for processes print losses of their own rows all the time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

ODD_WORDS = re.compile(
    r"\bskip\w*|\bempty\b|\bno (?:labels?|tokens?|rows?|samples?|data|targets?)\b|\bnan\b|\binf\b|non-?finite"
    r"|out of memory|\boom\b|\btoo long\b|\boverflow\w*|\bdropp\w+|\bignor\w+|\bexception\b|\berror\b"
    r"|\bbad (?:batch|sample|row)|\bcorrupt\w*|\bretry\w*|\bfail\w*|\binvalid\b|\bcaught\b|\bcontinu\w+",
    re.IGNORECASE,
)
"""What a script prints of a batch that it does not train as the others"""
RANK_IN_TEXT = re.compile(
    r"(?:^|[\[(|\s])(?:global_?|local_?)?(?:rank|RANK|Rank|process|gpu|worker)\s*[:=#]?\s*(?P<rank>\d{1,4})\b"
)
"""How a script names its process in a line of its own: `rank=2`, `(rank 2)`"""
DIGITS = re.compile(r"\d+(?:\.\d+)?(?:e[-+]?\d+)?", re.IGNORECASE)
LIBRARY_LINE = re.compile(
    r"Watchdog|ProcessGroupNCCL|NCCL (?:INFO|WARN)|c10::|terminate called|closing signal"
)
MAX_TEMPLATES = 500
"""Lines that differ in more than numbers, of which the ranks are kept. Chosen by hand: it bounds
the memory, and a run has some dozens of such lines. With fewer, a log that prints texts of its rows
would push out the line that counts"""
MAX_QUOTED = 200
"""Characters of a line that are compared and quoted. Chosen by hand: it bounds the memory, and what
a script says of a step is shorter. With far fewer, lines that only begin alike would be one"""
MAX_LINES_TOLD = 3
"""Lines that are shown. Chosen by hand: examples are enough to search the log for the others"""


@dataclass(frozen=True, slots=True)
class RankLine:
    """A line of one process."""

    rank: str
    text: str
    line: int
    count: int


@dataclass(slots=True)
class _Template:
    """Lines that differ in their numbers alone."""

    first: str
    line: int
    ranks: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class RankLineReader:
    """Collects such lines, those that differ in their numbers alone as one."""

    _templates: dict[str, _Template] = field(default_factory=dict)
    _is_closed: bool = False
    """A time-out was printed: what comes behind it follows from it"""

    def add_line(self, text: str, process: str, number: int) -> None:
        """Read one line without its prefixes, and the process that these name."""
        if self._is_closed:
            return
        if LIBRARY_LINE.search(text):
            self._is_closed = "Watchdog caught" in text
            return
        if ODD_WORDS.search(text) is None:
            return
        named = RANK_IN_TEXT.search(text)
        rank = process if process.isdecimal() else named["rank"] if named else ""
        if not rank:
            return
        key = DIGITS.sub("0", text.strip())[:MAX_QUOTED]
        known = self._templates.get(key)
        if known is None:
            if len(self._templates) >= MAX_TEMPLATES:
                return
            known = self._templates[key] = _Template(text.strip()[:MAX_QUOTED], number)
        known.ranks[rank] = known.ranks.get(rank, 0) + 1

    def finish(self) -> tuple[RankLine, ...]:
        """The lines that one process alone printed, in the order of the output."""
        return tuple(
            RankLine(rank, template.first, template.line, count)
            for template in self._templates.values()
            if len(template.ranks) == 1
            for rank, count in template.ranks.items()
        )[:MAX_LINES_TOLD]


def rank_line_as_evidence(one: RankLine) -> str:
    """A line of one process, as evidence says it."""
    times = f", {one.count:,} times" if one.count > 1 else ""
    return (
        f"only rank {one.rank} printed{times} (line {one.line:,}): {one.text}: it did something else there than the"
        " others, and from then on its operations do not match theirs"
    )
