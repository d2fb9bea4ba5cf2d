"""Makes text from data safe and visible, and lays it out in the cells of a terminal.

Data holds control characters, text that runs from right to left, and characters that draw nothing. Printed as they are
they can rewrite the terminal, hide a token, or make two texts look alike. So everything that comes from users passes
`escape_invisible_characters`. The trade-off: emoji that are joined, and some scripts, are spelled out as escapes in
the middle of a word.
"""

from __future__ import annotations

import io
import re
import unicodedata
from collections.abc import Callable

from rich.cells import cell_len, chop_cells
from rich.console import Console

UNSEEN_CATEGORIES = {"Cc", "Cf", "Co", "Cs", "Zl", "Zp", "Zs"}
"""Categories whose characters a reader can't see, or can't tell from a space."""
BLANK_CHARACTERS = {
    *"\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0",
    *map(chr, range(0xFE00, 0xFE10)),
}
"""Letters and marks that draw nothing: fillers, joiners, variation selectors."""
BYTE_FRAGMENT = re.compile("[\udc80-\udcff]+")
"""Bytes that are no character, as `surrogateescape` spells them."""


def escape_invisible_characters(text: str) -> str:
    """The text with each control, format and other unseen character shown as an escape; line ends
    and tabs too.
    """
    # Nearly all text ends here: of 450 ASCII characters in 2 µs, where the loop below takes 200.
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        _escape_character(c)
        if c in BLANK_CHARACTERS or (c != " " and unicodedata.category(c) in UNSEEN_CATEGORIES)
        else c
        for c in text
    )


def _escape_character(character: str) -> str:
    """`\\u200b`, as Python writes it."""
    return character.encode("unicode_escape").decode("ascii")


def token_text_with_visible_symbols(piece: str) -> str:
    """A token's text in one line: `↵` a line end, `→` a tab, `⟨E6 97⟩` bytes of a split character,
    `⟨⟩` nothing at all.
    """
    piece = BYTE_FRAGMENT.sub(
        lambda fragment: f"⟨{fragment[0].encode(errors='surrogateescape').hex(' ').upper()}⟩", piece
    )
    # Signs that are read as what they are, instead of \n and \t, which a text may hold as two
    # characters.
    return escape_invisible_characters(piece.replace("\n", "↵").replace("\t", "→")) or "⟨⟩"


def clip_text(text: str, length: int = 400) -> str:
    """The beginning of a long text, with a note of how long it is."""
    return text if len(text) <= length else f"{text[:length]}... ({len(text):,} characters)"


def wrap_text(text: str, width: int) -> list[str]:
    """The text in lines of at most `width` cells, broken at spaces, but not before a per cent sign;
    a longer word is cut.
    """
    lines, line = [], ""
    # "12.3 %" stays together: a line that begins with "%" is misread.
    for word in re.split(" (?!%)", text):
        longer = f"{line} {word}" if line else word
        if cell_len(longer) <= width:
            line = longer
            continue
        if line:
            lines.append(line)
        # By cells and not by characters: an ideograph takes two cells, and a line one too long
        # breaks the layout.
        # A text that ends in a space has an empty last word, of which nothing is left to chop.
        *cut, line = chop_cells(word, width) or [""]
        lines += cut
    return [*lines, line]


def format_per_cent_share(part: int, whole: int) -> str:
    """A part of a whole in per cent: `12.3 %`"""
    return f"{100 * part / whole if whole else 0:.1f} %"


def draw_as_text(render: Callable[[Console], None], columns: int = 100) -> str:
    """What a function draws on a terminal of so many columns, as plain text."""
    buffer = io.StringIO()
    # In a notebook rich would show each line as an output of its own, and leave the text empty.
    render(Console(file=buffer, width=columns, color_system=None, force_jupyter=False))
    return buffer.getvalue()


def count_noun(count: int, noun: str) -> str:
    """A count with its noun in the right number: `1 row`, `2 rows`"""
    return f"{count:,} {noun}{'s' * (count != 1)}"
