"""Places that the law on targets tells, as lines of evidence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def mostly_other_tokens(evidence: dict[str, Any]) -> bool:
    """Are most targets of the loss other tokens than the labels'? Then a shift explains the rest."""
    return bool(2 * sum(evidence["other targets"].values()) > evidence["looked at"])


def describe_positions(places: list[dict[str, Any]]) -> Iterator[str]:
    """`batch 0, line 1, position 5: after 'a', 'b' follows`"""
    for place in places:
        tokens = [repr(token) for token in place["tokens"]]
        follows = f", {tokens[1]} follows" if len(tokens) > 1 else ", the last"
        at = f"batch {place['batch']}, line {place['line']}, position {place['position']}"
        yield f"{at}: after {tokens[0]}{follows}" + (
            f", then {tokens[2]}" if len(tokens) > 2 else ""
        )
