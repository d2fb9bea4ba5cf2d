"""Shows completions with their scores, as cases of a finding: the shortest first, for it says most.

The rules on rewards show them in one form: the row, what was tried, the completion, its score, and that of the right
answer of the same row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from truetune.checks.findings import Case
from truetune.checks.shorten_text import SHOWN_CHARS
from truetune.generation.reward_trial import ChangedScore, TriedCompletion


def quote_completion(text: str) -> str:
    """A text on one line, in quotes, as it is written: `\\boxed{12}` has one backslash. Of a long one both ends."""
    if not text.strip():
        return repr(text)
    line = " ".join(text.split())
    if len(line) > SHOWN_CHARS:
        line = f"{line[: SHOWN_CHARS // 2]} ... {line[-SHOWN_CHARS // 2 :]}"
    return f"'{line}'"


def format_reward(score: float | None) -> str:
    """A score for a reader."""
    return "None" if score is None else f"{score:.4g}"


def shortest_first(tried: Iterable[TriedCompletion]) -> list[TriedCompletion]:
    """Completions by their length; of each way of trying one first, since a terminal shows three."""
    ordered = sorted(tried, key=lambda one: (len(one.completion), one.row))
    firsts = {one.what: one for one in reversed(ordered)}
    first = [one for one in ordered if firsts[one.what] is one]
    return [*first, *(one for one in ordered if firsts[one.what] is not one)]


def cases_of_tried(tried: Iterable[TriedCompletion]) -> list[Case]:
    """A case for each completion, the shortest first."""
    # The same completion may be tried in two forms: of an empty text there is one case.
    return list(dict.fromkeys(_case_of_tried(one) for one in shortest_first(tried)))


def _case_of_tried(one: TriedCompletion) -> Case:
    """The completion, what it scores, and what the right answer of its row does."""
    right = ""
    if one.reference:
        right = (
            f"; the right answer {quote_completion(one.reference)} gets {format_reward(one.right)}"
        )
    elif one.right is not None:
        right = f"; once it gets {format_reward(one.right)}"
    return Case(
        f"row {one.row}, {one.what}: {quote_completion(one.completion)} gets"
        f" {format_reward(one.score)}{right}"
    )


def rows_of(tried: Iterable[TriedCompletion]) -> int:
    """The number of rows that some completions are of."""
    return len({one.row for one in tried})


def paid_of(tried: Sequence[TriedCompletion]) -> list[TriedCompletion]:
    """Those that are paid as the right answer is."""
    return [one for one in tried if one.is_paid]


def cases_of_changes(changed: Iterable[ChangedScore]) -> list[Case]:
    """A case for each completion with another score, the shortest first."""
    ordered = sorted(changed, key=lambda one: (len(one.completion), one.row))
    cases = (
        Case(
            f"row {one.row}, {quote_completion(one.completion)} gets {format_reward(one.first)}, and"
            f" {format_reward(one.second)} {one.how}"
        )
        for one in ordered
    )
    return list(dict.fromkeys(cases))
