"""Reads the warnings that a response marker was not found, and tells whether the quoted rows show
the marker.

TRL's DataCollatorForCompletionOnlyLM looks for the marker among the tokens of a row, and quotes the row in its warning.
A row that shows the marker as text has it under other tokens: the first ones merge with what stands before them. That
is another fault than a row without a marker, and has another fix. A quoted row has many lines, so they are read one by
one, up to the end of the warning or a limit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

MARKER_WARNING = re.compile(
    r"Could not find (?:response|instruction) key `(?P<marker>(?!\[\d)[^`]{2,200})` in (?:the )?following instance:"
    r" ?(?P<row>.*)"
)
MARKER_BEGIN = re.compile(
    r"Could not find (?:response|instruction) key `(?P<begin>(?!\[\d)[^`]{0,200})$"
)
"""A warning whose marker has line breaks of its own: it ends on a later line"""
MAX_MARKER_LINES = 4
"""Lines of one marker; those of templates have two"""
WARNING_END = "This instance will be ignored"
MAX_ROW_LINES = 400
"""Lines of one quoted row. Chosen, not measured: longer rows are cut off by the maximal length"""
MIN_SHARE = 0.5
"""Of the quoted rows, showing the marker: then it is not missing from the data"""


@dataclass(slots=True)
class MissingMarkerReader:
    """Takes the lines of an output, and counts the quoted rows that show the marker which was not found."""

    rows: int = 0
    with_marker: int = 0
    _marker: str = ""
    _begun: list[str] = field(default_factory=list)
    """The lines of a warning whose marker has not ended yet"""
    _is_seen: bool = False
    _lines_left: int = field(default=0)

    @property
    def most_rows_show_marker(self) -> bool:
        """Do most of the quoted rows show the marker that was not found in them?"""
        return self.rows > 0 and self.with_marker >= MIN_SHARE * self.rows

    def add_line(self, text: str) -> None:
        """Read one line of the output: the warning, or a line of the row that it quotes."""
        text = self._with_marker_on_one_line(text)
        match = MARKER_WARNING.search(text)
        if match is not None:
            self._count_quoted_row()
            self._marker, self._lines_left = (
                match["marker"].replace("\\n", "\n").strip(),
                MAX_ROW_LINES,
            )
            text = match["row"]
        if not self._lines_left:
            return
        self._lines_left -= 1
        row, end, _ = text.partition(WARNING_END)
        # The marker may have line breaks of its own: its last line is the one that a row's line can show.
        self._is_seen = self._is_seen or self._marker.splitlines()[-1] in row
        if end:
            self._count_quoted_row()

    def _with_marker_on_one_line(self, text: str) -> str:
        """The line, or the whole warning where it ends a marker that began on an earlier line."""
        if MARKER_BEGIN.search(text) is not None:
            self._begun = [text.rstrip()]
            return text
        if not self._begun:
            return text
        self._begun.append(text)
        joined = "\\n".join(self._begun)
        if "`" in text or len(self._begun) > MAX_MARKER_LINES:
            self._begun = []
            return joined if MARKER_WARNING.search(joined) else text
        return text

    def finish(self) -> bool:
        """Do most of the quoted rows show the marker, at the end of the output?"""
        self._count_quoted_row()
        return self.most_rows_show_marker

    def _count_quoted_row(self) -> None:
        """Count the row whose warning has ended."""
        if self._marker:
            self.rows += 1
            self.with_marker += self._is_seen
        self._marker, self._is_seen, self._lines_left = "", False, 0
