"""Needs: why rules on tokenized rows can say nothing, and what several of them ask."""

from __future__ import annotations

from typing import NamedTuple

from truetune.checks.judgement import Unmet
from truetune.tokenized.tokenized_data import TokenizedData
from truetune.tokenized.tokenized_summary import TokenizedSummary

AT_LIMIT = 2
"""Rows of the greatest length, without an end, that say that there was a limit"""


class OpenRows(NamedTuple):
    """Rows that end without a stop token."""

    limit: int
    """The length at which they are cut"""
    at_limit: int
    elsewhere: int


def open_rows(found: TokenizedSummary) -> OpenRows:
    """A limit cuts rows at one length, the greatest; rows of other lengths without an end never had one."""
    limit = len(found.lengths) - 1
    at_limit = int(found.open_lengths[limit]) if len(found.open_lengths) > limit else 0
    # The longest of rows that never end would be taken for a cut one: of a limit there are several, or all are cut.
    if at_limit < AT_LIMIT and found.open_rows.count > at_limit:
        at_limit = 0
    return OpenRows(limit, at_limit, found.open_rows.count - at_limit)


def no_labels(data: TokenizedData) -> Unmet | None:
    """Why labels can't be judged."""
    if data.summary.says_what_is_learned:
        return None
    return Unmet(
        "the rows have neither labels nor a mask, which token-rows-without-labels is about"
    )


def no_turns(data: TokenizedData) -> Unmet | None:
    """Why turns can't be judged."""
    if data.summary.chats:
        return None
    return Unmet(
        "no turn of this template was found in the rows",
        "name the template that made them with --template",
    )
