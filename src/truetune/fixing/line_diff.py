"""Makes a unified diff of the fixed file, without context, as `patch -p1` and `git apply
--unidiff-zero` take it.

Lines are compared while the file is read. Where several rows share a line, what belongs together is held until both
texts come to a line end.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable

from truetune.errors import UsageError
from truetune.parsing.input_limits import ROW

# Not splitlines: it cuts at U+2028 and form feeds too, which are characters of a row.
_LINE = re.compile(rb"[^\n]*\n|[^\n]+")


class LineDiff:
    """Compares two files while their bytes come piece by piece, and gives the hunks of a unified
    diff.
    """

    def __init__(self, name: str, fixed: str, say: Callable[[str], None]) -> None:
        self._say = say
        self._head = f"--- a/{name}\n+++ b/{fixed}\n"
        self._old, self._new = b"", b""
        self._old_line, self._new_line = 1, 1
        self._forgotten = False
        """Is the beginning of this line no longer held?"""

    def add(self, old: bytes, new: bytes) -> None:
        """Take the next bytes of both files. Raises UsageError where a line is too long to be
        shown.
        """
        # Nearly all rows: nothing is held, and only lines are counted.
        if not self._old and not self._new and old == new and old.endswith(b"\n"):
            lines = old.count(b"\n")
            self._old_line, self._new_line = self._old_line + lines, self._new_line + lines
            return
        self._old, self._new = self._old + old, self._new + new
        # Both at a line's end, or a row that went with its line: from here on the texts are apart
        # no more.
        if self._old.endswith(b"\n") and (self._new.endswith(b"\n") or not self._new):
            self.end()
        # Equal so far and too long to hold: only a change in the rest of this line would need its
        # beginning.
        elif len(self._old) > ROW.max_bytes and self._old == self._new:
            self._old = self._new = b""
            self._forgotten = True
        elif len(self._old) > ROW.max_bytes:
            raise _line_too_long_error()

    def end(self) -> None:
        """Give the hunks of what is still held when both files have ended."""
        if self._old != self._new:
            if self._forgotten:
                raise _line_too_long_error()
            self._emit_hunks(_split_lines(self._old), _split_lines(self._new))
        self._old_line += self._old.count(b"\n")
        self._new_line += self._new.count(b"\n")
        self._old = self._new = b""
        self._forgotten = False

    def _emit_hunks(self, old: list[str], new: list[str]) -> None:
        """Hand on the hunks of some lines that differ."""
        # autojunk takes lines that stand often for noise, and would show them as changed.
        matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
        for tag, i1, i2, j1, j2 in matcher.get_opcodes():
            if tag == "equal":
                continue
            head = (
                f"@@ -{_hunk_range(self._old_line + i1, i2 - i1)} +{_hunk_range(self._new_line + j1, j2 - j1)}"
                " @@\n"
            )
            lines = [*("-" + line for line in old[i1:i2]), *("+" + line for line in new[j1:j2])]
            ends = (
                line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
                for line in lines
            )
            self._say(self._head + head + "".join(ends))
            # The names of the files stand before the first hunk alone.
            self._head = ""


def _line_too_long_error() -> UsageError:
    """The error for a change in a line that can't be held."""
    return UsageError(
        "--diff shows lines, and this file has all rows in one; write it with -o, and see the"
        " record of changes"
    )


def _split_lines(text: bytes) -> list[str]:
    """Split a text at line feeds alone: JSON may hold other line ends of Unicode as they are."""
    return [line.decode("utf-8", "surrogateescape") for line in _LINE.findall(text)]


def _hunk_range(start: int, count: int) -> str:
    """A range of lines in a hunk's head, as diff writes it: an empty one names the line before."""
    if count == 1:
        return str(start)
    # `patch` reads a range of no lines as standing behind the line that is named.
    return f"{start if count else start - 1},{count}"
