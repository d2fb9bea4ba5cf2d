"""What the miniature answered, as its rules see it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from truetune.auditing.audit import Audit
from truetune.checks.findings import Case
from truetune.checks.judgement import Unmet

UNLEARNED = 0.5
"""A mean cross-entropy of the labels, in nats, above which they were not learned"""
SHOWN = 90
"""Characters of a text that are shown"""


def recitation(subject: Audit) -> dict[str, Any]:
    """What was recorded; {} where nothing was recited."""
    return dict(subject.facts.get("recitation", {}))


def answers(subject: Audit) -> list[dict[str, Any]]:
    """The rows whose answer is told apart from its prompt, where they were learned: the loss fell, and so did that of
    the labels, which is another one with a loss of the user's own."""
    found = recitation(subject)
    of_labels = found.get("label_loss")
    if not found.get("fell") or (of_labels is not None and of_labels > UNLEARNED):
        return []
    return [row for row in found["rows"] if row["kind"] not in ("text", "inside")]


def no_answers(subject: Audit) -> Unmet | None:
    """Why nothing that the miniature said is judged; None where there are answers of learned rows."""
    found = recitation(subject)
    if answers(subject):
        return None
    if found.get("pairs"):
        return Unmet("it is about rows with one answer, and pairs were trained")
    if all(row["kind"] in ("text", "inside") for row in found.get("rows", ())):
        return Unmet("it is about prompts with answers, and the rows are plain text")
    return Unmet("the miniature did not learn its rows, so that it can't be asked for them")


def in_any_way(row: dict[str, Any]) -> bool:
    """Recited from the served prompt, or from the trained one?"""
    return bool(row["recited"] or (row["trained"] or {}).get("recited"))


def ended(row: dict[str, Any] | None) -> bool:
    """Did a stop follow the reference, and nothing else?"""
    return bool(row and row["exact"] and row["stopped"])


def case(row: dict[str, Any], why: str = "") -> Case:
    """Question, reference and answer of a row."""
    where = f"row {row['number']}: " if row["number"] is not None else ""
    return Case(
        f"{where}{short(row['question'])} should give {short(row['reference'])}, gives"
        f" {short(row['said'])}{why}"
    )


def cases(rows: Iterable[dict[str, Any]]) -> list[Case]:
    """Of each row."""
    return [case(row) for row in rows]


def short(text: str) -> str:
    """A text in quotes, cut in its middle."""
    text = " ".join(text.split())
    return repr(text if len(text) <= SHOWN else text[: SHOWN // 2] + " ... " + text[-SHOWN // 2 :])
