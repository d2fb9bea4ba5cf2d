"""What became of the canary: a copied row with a string of its own in each text."""

from __future__ import annotations

import re
from typing import NamedTuple

from truetune.auditing.audit import Audit

ANSWERS = frozenset(("output", "response", "answer", "completion", "chosen"))
LEARNED, READ, LOST = "supervised", "context", "lost"


class Text(NamedTuple):
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
        return re.split(r"[.\[]", self.path, maxsplit=1)[0]

    @property
    def shown(self) -> str:
        return f"{self.path}{f' ({self.role})' if self.role else ''}: {self.seen}"


def texts(audit: Audit) -> list[Text]:
    """Those of the first process; none where no canary was sent."""
    found = audit.facts.get("canary") or {}
    formatted = set(found.get("formatted") or ())
    return [
        Text(f["path"], f["role"], f["seen"], f["path"] in formatted)
        for f in found.get("fields") or ()
    ]


def answers(every: list[Text]) -> list[Text]:
    """The contents of assistant turns; where there are no turns, the columns that are called so."""
    turns = [
        text for text in every if text.role in ("assistant", "gpt") and text.column != "prompt"
    ]
    turns = [text for text in turns if re.search(r"\]\.(content|value)", text.path)]
    return turns or [
        text for text in every if text.column.lower() in ANSWERS and text.path == text.column
    ]
