"""Evidence that several rules on tokenized rows share: cases, rows that end without a stop token,
and reasons why labels or turns can't be judged.

The summary of the rows is counted once while they are read; this only asks it. So a rule may call these as often as it
likes.
"""

from __future__ import annotations

from typing import NamedTuple

from truetune.checks.findings import Case
from truetune.checks.judgement import Unmet
from truetune.tokenized.tokenized_data import TokenizedData
from truetune.tokenized.tokenized_summary import RowPlaces, TokenizedSummary

# The longest row alone proves no limit: some row is always the longest. With 1, each set of rows
# that never end would have its longest one called cut; with 4, small caches with two or three cut
# rows would not be told.
MIN_ROWS_AT_LIMIT = 2
"""Rows of the greatest length, without an end, that say that there was a limit"""


def cases_of_row_places(places: RowPlaces) -> list[Case]:
    """The first rows of a kind, each once."""
    return [Case(text, origin) for origin, text in dict(places.first).items()]


class OpenRows(NamedTuple):
    """Rows that end without a stop token."""

    limit: int
    """The length at which they are cut"""
    at_limit: int
    elsewhere: int


def find_rows_without_stop_token(summary: TokenizedSummary) -> OpenRows:
    """Rows that a limit cut, and rows that never had an end.

    A limit cuts rows at one length, the greatest; rows of other lengths without an end never had one.
    """
    limit = len(summary.lengths) - 1
    at_limit = int(summary.open_lengths[limit]) if len(summary.open_lengths) > limit else 0
    # The longest of rows that never end would be taken for a cut one: of a limit there are several,
    # or all are cut.
    elsewhere = summary.open_rows.count - at_limit
    is_chance = at_limit < MIN_ROWS_AT_LIMIT and elsewhere > 0
    rows_elsewhere = summary.rows - int(summary.lengths[limit])
    # Where rows of every length have no end, those of the greatest length have none for the same reason.
    have_none_anywhere = rows_elsewhere > 0 and 2 * elsewhere >= rows_elsewhere
    if is_chance or have_none_anywhere:
        at_limit = 0
    return OpenRows(limit, at_limit, summary.open_rows.count - at_limit)


def explain_missing_row_labels(data: TokenizedData) -> Unmet | None:
    """Why labels can't be judged; None if they can."""
    if data.summary.do_rows_say_which_tokens_are_learned:
        return None
    return Unmet("the rows have neither labels nor a mask, which token-rows-without-labels reports")


MAX_OTHER_LABELS = 0.5
"""Share of labels that are not the ids of their places, from which a place says nothing of what is learned"""


def explain_shifted_labels(data: TokenizedData) -> Unmet | None:
    """Why the place of a label does not say which text it is of (labels that were shifted are one
    place off); None if it does.
    """
    summary = data.summary
    if 2 * summary.labels_shifted >= summary.labels_differ:
        return None
    if summary.labels_differ <= MAX_OTHER_LABELS * summary.labels_compared:
        return None
    return Unmet(
        "the labels are those of other positions, which labels-are-of-other-tokens reports"
    )


def explain_missing_turns(data: TokenizedData) -> Unmet | None:
    """Why turns can't be judged; None if they can."""
    if data.summary.chats:
        return None
    return Unmet(
        "no turn of this template was found in the rows",
        "give the template that made them with --template",
    )
