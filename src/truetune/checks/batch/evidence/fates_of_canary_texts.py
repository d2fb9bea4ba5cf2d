"""Tells what became of each text of the canary: a copied row with a string of its own in each text,
sent through the trainer.

The probe sends it through the trainer's preparation and collator, and looks in which tokens each string comes out. So
it is known of each column and turn whether it is learned, only read, cut off or lost, whatever code made the batch.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from truetune.auditing.audit import Audit

# Columns that formats without turns call their answer.
ANSWER_COLUMNS = frozenset(("output", "response", "answer", "completion", "chosen"))
LEARNED, CONTEXT, LOST = "supervised", "context", "lost"


class CanaryText(NamedTuple):
    """One text of the canary."""

    path: str
    """`messages[1].content`"""
    role: str
    seen: str
    """supervised, context, cut or lost"""
    formatted: bool
    """Does the formatting function write it?"""

    @property
    def column(self) -> str:
        """The column that it stands in: `messages` of `messages[1].content`."""
        return re.split(r"[.\[]", self.path, maxsplit=1)[0]

    @property
    def place_role_and_fate(self) -> str:
        """The text's place, role and fate in one line: `messages[1].content (assistant):
        supervised`.
        """
        return f"{self.path}{f' ({self.role})' if self.role else ''}: {self.seen}"


def texts_of_canary(audit: Audit) -> list[CanaryText]:
    """The texts of the first process's canary; none if no canary was sent."""
    canary = audit.facts.get("canary") or {}
    formatted = set(canary.get("formatted") or ())
    return [
        CanaryText(f["path"], f["role"], f["seen"], f["path"] in formatted)
        for f in canary.get("fields") or ()
    ]


def answers_of_canary(every: list[CanaryText]) -> list[CanaryText]:
    """The contents of assistant turns; where there are no turns, the columns that are called so."""
    turns = [
        text for text in every if text.role in ("assistant", "gpt") and text.column != "prompt"
    ]
    turns = [text for text in turns if re.search(r"\]\.(content|value)", text.path)]
    return turns or [
        text for text in every if text.column.lower() in ANSWER_COLUMNS and text.path == text.column
    ]
