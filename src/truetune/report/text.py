"""Text from data, made safe and visible."""

from __future__ import annotations

import unicodedata

INVISIBLE = {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}


def visible(text: str) -> str:
    """The text with control, format and other invisible characters as escapes; line ends and tabs too."""
    if text.isprintable():
        return text
    return "".join(_escape(c) if unicodedata.category(c) in INVISIBLE else c for c in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def share(part: int, whole: int) -> str:
    """`12.3 %`"""
    return f"{100 * part / whole:.1f} %" if whole else "0.0 %"
