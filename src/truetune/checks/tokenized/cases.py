"""Cases of findings on tokenized rows."""

from __future__ import annotations

from truetune.checks.findings import Case
from truetune.tokenized.tokenized_summary import RowPlaces


def cases_of(places: RowPlaces) -> list[Case]:
    """The first rows of a kind, each once."""
    return [Case(text, origin) for origin, text in dict(places.first).items()]
