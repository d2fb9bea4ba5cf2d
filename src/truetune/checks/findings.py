"""Finding: a fact about a fine-tune, with its evidence and its remedy."""

from __future__ import annotations

from dataclasses import dataclass

from truetune.data.conversation import Origin
from truetune.spec.run import Severity

RANK: dict[Severity, int] = {"info": 0, "warning": 1, "error": 2}


@dataclass(frozen=True, slots=True)
class Case:
    """One place where it happens."""

    text: str
    """The evidence at this place, one line: the tokens, the fields, the counts."""
    origin: Origin | None = None
    turn: int | None = None
    """Index of the message."""
    file: str | None = None
    """Where it is not in a row: the file it is in (`tokenizer_config.json`)."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, once per run and not once per row."""

    rule: str
    """kebab-case name"""
    code: str
    severity: Severity
    message: str
    """One line: what is wrong, and how many (`3 of 200 rows ...`)."""
    remedy: str
    """The one change that mends it."""
    evidence: tuple[str, ...] = ()
    """Facts that prove it, one line each, about the whole."""
    cases: tuple[Case, ...] = ()
    """At most 3 places."""
    count: int | None = None
    total: int | None = None
