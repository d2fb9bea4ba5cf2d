"""Prints lines and tables on the terminal for all drawings: as they are, in columns without
borders.

Text of users (file names, answers, messages of other programs) reaches the terminal through here. It is never read
as rich's markup, and what can't be seen in it is spelled out. The trade-off: whoever wants colour inside a line
builds a `Text` and says so, instead of writing `[bold]` into a string.
"""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from truetune.report.visible_text import escape_invisible_characters


def print_visible(console: Console, text: str | Text, style: str = "") -> None:
    """Print one line without cutting it; of a `str` unseen characters become escapes, a `Text` is printed as it is."""
    # soft_wrap leaves breaking to the terminal: a line that is copied from there, or read through a pipe, is whole.
    # A Text instead of a str keeps rich from reading "[red]" in somebody's data as a colour (test_terminal, HOSTILE).
    line = text if isinstance(text, Text) else Text(escape_invisible_characters(text), style=style)
    console.print(line, soft_wrap=True)


def print_without_wrapping_or_escaping(console: Console, text: Text | str = "") -> None:
    """Print lines that are already as long as they should be, and already safe."""
    console.print(text, soft_wrap=True, markup=False, highlight=False, emoji=False)


def borderless_table(*, header: bool = True) -> Table:
    """A table of columns two cells apart, without lines between them: it can be copied, and read in a log."""
    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=header)


def shorten_to_one_line(text: str, length: int) -> str:
    """A text of several lines as one visible line of at most `length` characters."""
    text = escape_invisible_characters(" ".join(text.split()))
    return text if len(text) <= length else text[: length - 3] + "..."
