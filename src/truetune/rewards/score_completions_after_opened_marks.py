"""Scores completions as a policy writes them after a prompt that ends in `<think>`, beside the same ones with the mark.

Templates of reasoning models open the thoughts in the prompt. What the policy writes then begins within them, and a
function that wants `<think>` in the completion never sees it. The two completions of a pair differ by the mark alone.

The trade-off: prompts that are messages are judged only if their last turn is the assistant's, since what a template
adds after them is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from truetune.generation.reward_trial import is_above
from truetune.rewards.answer_forms import THOUGHT, AnswerForm
from truetune.rewards.outcomes_of_spellings import SpellingOutcome, sum_up_outcomes
from truetune.rewards.rows_for_rewards import RewardRow
from truetune.rewards.score_completions import RowCompletion
from truetune.rewards.trial_in_progress import STAND_IN_ANSWER, TrialInProgress

# A mark in the middle of a sentence (`Reason within <think>`) is spoken of, and opens nothing.
OPENED_MARK = re.compile(r"(?:^|\n|[>:\]]\s?)(?P<mark><[A-Za-z][\w-]{0,30}>)\s*$")
MAX_ROWS = 3
"""Rows that are tried. Chosen: a pattern does not change from row to row"""
MAX_FORMS = 6
"""Forms that are tried; each costs three completions a row"""


class _Pair(NamedTuple):
    """A completion with the mark and as the policy writes it, and one without what is paid."""

    row: RewardRow
    form: AnswerForm
    with_mark: str
    as_written: str
    without_form: str


def try_completions_after_opened_mark(trial: TrialInProgress, forms: Sequence[AnswerForm]) -> None:
    """Score completions without the mark that every prompt ends with, where the ones with it are paid."""
    mark = mark_that_prompts_end_with(trial.rows)
    if mark is None:
        return
    pairs = list(_pairs_of_trial(trial, forms, mark))
    scores = trial.score(
        [
            RowCompletion(pair.row, text)
            for pair in pairs
            for text in (pair.with_mark, pair.as_written, pair.without_form)
        ]
    )
    outcomes: list[SpellingOutcome] = []
    for place, pair in enumerate(pairs):
        with_mark, as_written, without = scores[3 * place : 3 * place + 3]
        if is_above(with_mark, without):
            is_paid = is_above(as_written, without)
            outcomes.append(SpellingOutcome(pair.row.number, pair.as_written, is_paid))
    trial.after_opened_mark = sum_up_outcomes(mark, outcomes)


def mark_that_prompts_end_with(rows: Sequence[RewardRow]) -> str | None:
    """The mark with which the prompts of all rows end; None where one ends otherwise."""
    marks = {_mark_at_end(row) for row in rows}
    return marks.pop() if len(marks) == 1 else None


def _mark_at_end(row: RewardRow) -> str | None:
    """The mark with which one prompt ends."""
    text = row.prompt
    if row.messages:
        last = row.messages[-1]
        text = str(last.get("content") or "") if last.get("role") == "assistant" else ""
    match = OPENED_MARK.search(text)
    return match["mark"] if match is not None else None


def _pairs_of_trial(
    trial: TrialInProgress, forms: Sequence[AnswerForm], mark: str
) -> Iterator[_Pair]:
    """The pairs that are tried: of right answers, or of a text where the function takes none."""
    rows = trial.answered_rows[:MAX_ROWS] if trial.answers else list(trial.rows[:1])
    opening = [form for form in forms if form.before.startswith(mark)]
    for form in opening[:MAX_FORMS]:
        for row in rows:
            answer = trial.answers[row.number].text if trial.answers else STAND_IN_ANSWER
            whole = form.fill(answer)
            as_written = whole.removeprefix(mark).lstrip("\n")
            yield _Pair(row, form, whole, as_written, f"{THOUGHT} {THOUGHT}")
