"""Scores completions with thoughts over two lines beside the same ones on one line.

Models think over many lines. A pattern whose `.` does not match line ends finds nothing in such a completion, though
it finds the form on one line. The two completions of a pair have the same words, so that length and words can't tell
them apart.

The trade-off: a function that is paid for no form with a line of thoughts in it is not judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from truetune.generation.reward_trial import is_above
from truetune.rewards.answer_forms import THOUGHT, AnswerForm
from truetune.rewards.outcomes_of_spellings import (
    SpellingOutcome,
    is_nearer_to_right,
    sum_up_outcomes,
)
from truetune.rewards.rows_for_rewards import RewardRow
from truetune.rewards.score_completions import RowCompletion
from truetune.rewards.trial_in_progress import STAND_IN_ANSWER, TrialInProgress

SECOND_THOUGHT = "So each part is checked once more."
"""As the first one: no number, no letter of a choice, no word of an answer"""
MAX_ROWS = 3
"""Rows that are tried. Chosen: a pattern does not change from row to row"""
MAX_FORMS = 8
"""Forms that are tried, the best first; each costs three completions a row"""


class _Pair(NamedTuple):
    """One completion in two spellings, and one without what is paid."""

    row: RewardRow
    form: AnswerForm
    on_one_line: str
    over_two_lines: str
    without_form: str


def try_thoughts_over_lines(trial: TrialInProgress, forms: Sequence[AnswerForm]) -> None:
    """Score completions of the forms that are paid, with thoughts on one line and on two."""
    pairs = list(_pairs_of_trial(trial, forms))
    texts = [
        RowCompletion(pair.row, text)
        for pair in pairs
        for text in (pair.on_one_line, pair.over_two_lines, pair.without_form)
    ]
    scores = trial.score(texts)
    outcomes: list[tuple[str, SpellingOutcome]] = []
    for place, pair in enumerate(pairs):
        on_one, over_two, without = scores[3 * place : 3 * place + 3]
        if is_above(on_one, without):
            is_paid = is_nearer_to_right(over_two, on_one, without)
            outcome = SpellingOutcome(pair.row.number, pair.over_two_lines, is_paid)
            outcomes.append((pair.form.name, outcome))
    if outcomes:
        # The form is that of the example, which is one that is refused where there is one.
        name, _ = min(outcomes, key=lambda named: named[1].is_paid)
        trial.thoughts_over_lines = sum_up_outcomes(name, [outcome for _, outcome in outcomes])


def _pairs_of_trial(trial: TrialInProgress, forms: Sequence[AnswerForm]) -> Iterable[_Pair]:
    """The pairs that are tried: of right answers, or of a text where the function takes none."""
    rows = trial.answered_rows[:MAX_ROWS] if trial.answers else list(trial.rows[:1])
    for form in _forms_with_thoughts(trial, forms):
        for row in rows:
            answer = STAND_IN_ANSWER
            without = f"{THOUGHT} {SECOND_THOUGHT} {answer}"
            if trial.answers:
                answer = trial.answers[row.number].text
                without = _with_second_thought(form, " ").fill(trial.wrong_of(row).first)
            on_one = _with_second_thought(form, " ").fill(answer)
            over_two = _with_second_thought(form, "\n").fill(answer)
            yield _Pair(row, form, on_one, over_two, without)


def _forms_with_thoughts(
    trial: TrialInProgress, forms: Sequence[AnswerForm]
) -> Sequence[AnswerForm]:
    """The forms of the trial that are paid and have thoughts, and the best one behind a line of thoughts."""
    right_scores = _right_scores_of_paid_forms(trial)
    paid = [form for form in forms if form.name in right_scores]
    paid.sort(key=lambda form: -right_scores[form.name])
    best = [
        AnswerForm(f"... {form.name}", f"{THOUGHT} {form.before}", form.after)
        for form in trial.paid_forms[:1]
        if THOUGHT not in form.before
    ]
    return [form for form in [*best, *paid] if THOUGHT in form.before][:MAX_FORMS]


def _right_scores_of_paid_forms(trial: TrialInProgress) -> dict[str, float]:
    """What the right answer gets in each form that is paid, by the form's name; 0 where that is not known.

    Without right answers a form is paid where it gets more than the worst one.
    """
    lowest = min((one.right for one in trial.forms if one.right is not None), default=None)
    return {
        one.name: one.right or 0.0
        for one in trial.forms
        if (one.paid > 0 if trial.answers else is_above(one.right, lowest))
    }


def _with_second_thought(form: AnswerForm, between: str) -> AnswerForm:
    """The form with one thought more in it, behind a space or a line end."""
    thoughts = f"{THOUGHT}{between}{SECOND_THOUGHT}"
    return AnswerForm(form.name, form.before.replace(THOUGHT, thoughts, 1), form.after)
