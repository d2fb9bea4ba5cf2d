"""Describes which tokens the loss teaches, by the counts of the law `loss-targets`.

The law finds the target of a position by its gradient: the logit that the loss pushes up is the token it teaches. Three
rules read its counts, of other targets, of targets without a label, and of labels without a target.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def are_targets_mostly_other_tokens(evidence: dict[str, Any]) -> bool:
    """Are most targets of the loss other tokens than the labels'? Then a shift explains the rest.

    Chosen, not measured: a shift makes nearly all of them others, a mask that is wrong makes none.
    """
    return bool(2 * sum(evidence["other targets"].values()) > evidence["looked at"])


def describe_positions(places: list[dict[str, Any]]) -> Iterator[str]:
    """One line for each place: `batch 0, line 1, position 5: after 'a', 'b' follows`.

    Each of `places` has batch, line, position, and up to three tokens: the one at the position, the
    next, and the one after that.
    """
    for place in places:
        tokens = [repr(token) for token in place["tokens"]]
        follows = f", {tokens[1]} follows" if len(tokens) > 1 else ", the last"
        at = f"batch {place['batch']}, line {place['line']}, position {place['position']}"
        yield f"{at}: after {tokens[0]}{follows}" + (
            f", then {tokens[2]}" if len(tokens) > 2 else ""
        )
