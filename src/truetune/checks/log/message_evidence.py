"""What rules on console output say of a known message."""

from __future__ import annotations

from collections.abc import Iterator

from truetune.logs.console.messages import Message


def describe_message(known: Message, *, cause: bool = True) -> Iterator[str]:
    """Why a known message is printed (`cause`: or is that proved already?), and where its page is."""
    if cause:
        yield f"cause: {known.cause}"
    yield f"known as {known.name} (truetune explain {known.name})"
