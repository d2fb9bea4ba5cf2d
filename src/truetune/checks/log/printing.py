"""What rules on console output say of a known message."""

from __future__ import annotations

from collections.abc import Iterator

from truetune.logs.console.messages import Message


def described(known: Message) -> Iterator[str]:
    """Why a known message is printed, and where its page is."""
    yield f"cause: {known.cause}"
    yield f"known as {known.name} (truetune explain {known.name})"
