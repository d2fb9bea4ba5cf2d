"""What programs that train models print when something is wrong: one typed table, in files by subject.

A message is data: how it reads, what causes it, what to do next, and where that is known from. `MESSAGES` holds all.
"""

from truetune.logs.console.messages.known_message import KnownMessage, Shown
from truetune.logs.console.messages.message_table import (
    MESSAGES,
    known_message_of_exception,
    known_message_of_line,
    message_by_name,
)

__all__ = [
    "MESSAGES",
    "KnownMessage",
    "Shown",
    "known_message_of_exception",
    "known_message_of_line",
    "message_by_name",
]
