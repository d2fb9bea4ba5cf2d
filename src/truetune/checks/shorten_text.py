"""Shortens texts of users to one line of a finding."""

from __future__ import annotations

# Chosen to read: three texts of it (question, reference, answer) fit two lines of a wide terminal.
SHOWN_CHARS = 90


def quote_shortened(text: str) -> str:
    """A text on one line, in quotes; of a long one the beginning and the end, for loops show at the end."""
    text = " ".join(text.split())
    if len(text) <= SHOWN_CHARS:
        return repr(text)
    return repr(text[: SHOWN_CHARS // 2] + " ... " + text[-SHOWN_CHARS // 2 :])
