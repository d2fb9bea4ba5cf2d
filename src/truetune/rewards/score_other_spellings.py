"""Scores other spellings of the right answers, and right answers behind other numbers or behind a wrong answer.

A spelling counts as refused where it scores more like a wrong answer than like the right one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from truetune.generation.reward_trial import BEFORE_A_COMMA, TriedCompletion, is_above
from truetune.generation.verifier_comparison import ComparedCompletion
from truetune.rewards.answer_forms import (
    AnswerForm,
    answer_after_other_numbers,
    other_spellings,
)
from truetune.rewards.outcomes_of_spellings import (
    SpellingOutcome,
    is_nearer_to_right,
    sum_up_outcomes,
)
from truetune.rewards.rows_for_rewards import RewardRow
from truetune.rewards.score_completions import RowCompletion
from truetune.rewards.trial_in_progress import TrialInProgress

WITH_COMMAS = "X with commas"
MAX_ROWS_OF_PARTS = 3
"""Rows whose numbers are tried in part. Chosen: a pattern does not change from row to row"""
ASKS_FOR_NO_COMMAS = re.compile(
    r"\b(?:without|no|not|never|omit|avoid|leave out)\b[^.\n]{0,40}\b(?:commas?|separators?)\b"
    r"|\bdigits only\b|\bonly digits\b",
    re.IGNORECASE,
)
"""In a prompt that wants the numbers as the function reads them"""
SENTENCE_THAT_CONTINUES = "The answer is {} apples{} in total."
"""With the answer, and with a comma or nothing after its unit"""
PROSE = "The answer is X."
"""The name of the form, and the form with X for the answer"""


def try_spellings(trial: TrialInProgress) -> None:
    """Score other spellings of the answers in the form that is paid best, beside the usual ones."""
    form = trial.paid_forms[0]
    outcomes_by_name: dict[str, list[SpellingOutcome]] = {}
    for row in _rows_with_paid_answers(trial):
        answer = trial.answers[row.number]
        spellings = [(name, form.fill(text)) for name, text in other_spellings(answer)]
        if not spellings:
            continue
        wrong = form.fill(trial.wrong_of(row).first)
        texts = [form.fill(answer.text), wrong, *(text for _, text in spellings)]
        right, of_wrong, *scores = trial.score([RowCompletion(row, text) for text in texts])
        for (name, text), score in zip(spellings, scores, strict=True):
            is_paid = is_nearer_to_right(score, right, of_wrong)
            outcome = SpellingOutcome(row.number, text, is_paid)
            outcomes_by_name.setdefault(name, []).append(outcome)
            trial.right_ones.append(
                ComparedCompletion(
                    "spelling", name.strip(), row.number, answer.text, text, score, is_paid
                )
            )
    for name, outcomes in outcomes_by_name.items():
        scores_of_spelling = sum_up_outcomes(name, outcomes)
        if scores_of_spelling is not None:
            trial.spellings.append(scores_of_spelling)


def _rows_with_paid_answers(trial: TrialInProgress) -> list[RewardRow]:
    """The rows whose right answer is paid in the best form."""
    unpaid = {one.row for one in trial.unpaid}
    return [row for row in trial.answered_rows if row.number not in unpaid]


def try_parts_of_numbers(trial: TrialInProgress) -> None:
    """Score wrong numbers with a separator, of which one part is the right answer, where right numbers with one are
    refused: a pattern without the comma takes 450 of 12,450.
    """
    if not _may_commas_be_misread(trial):
        return
    form = trial.paid_forms[0]
    outcomes: list[SpellingOutcome] = []
    for row in trial.answered_rows:
        answer = trial.answers[row.number]
        if not any(name == WITH_COMMAS for name, _ in other_spellings(answer)):
            continue
        texts = [answer.text, trial.wrong_of(row).first, f"7,{answer.text}", f"{answer.text},000"]
        right, wrong, *parts = trial.score([RowCompletion(row, form.fill(text)) for text in texts])
        for text, score in zip(texts[2:], parts, strict=True):
            is_paid = is_nearer_to_right(score, right, wrong)
            outcomes.append(SpellingOutcome(row.number, form.fill(text), is_paid))
        if len(outcomes) == 2 * MAX_ROWS_OF_PARTS:
            break
    trial.numbers_read_in_part = sum_up_outcomes(WITH_COMMAS, outcomes, is_example_paid=True)


def _may_commas_be_misread(trial: TrialInProgress) -> bool:
    """Are right numbers with commas refused, though no prompt forbids commas and no part of a text is paid?"""
    refused = any(one.name == WITH_COMMAS and one.paid < one.rows for one in trial.spellings)
    # Where any part of a text is paid, the commas are not what matters.
    pays_parts = any(one.kind == "part" and one.is_paid for one in trial.tried)
    return refused and not pays_parts and not any(map(_asks_for_no_commas, trial.answered_rows))


def _asks_for_no_commas(row: RewardRow) -> bool:
    """Does the prompt of a row want numbers without separators?"""
    texts = [str(one.get("content") or "") for one in row.messages or ()] or [row.prompt]
    return any(ASKS_FOR_NO_COMMAS.search(text) for text in texts)


def try_answers_after_others(trial: TrialInProgress) -> None:
    """Score right answers in prose with other numbers before them, where prose without such is paid."""
    if not any(form.name == PROSE and form.paid == form.rows for form in trial.forms):
        return
    outcomes: list[SpellingOutcome] = []
    for row in trial.answered_rows:
        answer = trial.answers[row.number]
        text = answer_after_other_numbers(answer)
        if text is None:
            continue
        plain = PROSE.replace("X", answer.text)
        wrong = PROSE.replace("X", trial.wrong_of(row).first)
        right, of_wrong, after = trial.score(
            [RowCompletion(row, one) for one in (plain, wrong, text)]
        )
        if is_above(right, of_wrong):
            is_paid = is_nearer_to_right(after, right, of_wrong)
            outcomes.append(SpellingOutcome(row.number, text, is_paid))
    trial.after_others = sum_up_outcomes(PROSE, outcomes)


def try_answers_before_a_comma(trial: TrialInProgress) -> None:
    """Score right numbers in a sentence that continues after a comma, where the same sentence without it is paid.

    A pattern such as `[\\d,]+` takes a bare comma for the last number of a text.
    """
    others = trial.after_others
    if others is None or others.paid < others.rows:
        return
    outcomes: list[SpellingOutcome] = []
    for row in trial.answered_rows:
        answer = trial.answers[row.number]
        if answer.kind != "number":
            continue
        plain = SENTENCE_THAT_CONTINUES.format(answer.text, "")
        wrong = SENTENCE_THAT_CONTINUES.format(trial.wrong_of(row).first, "")
        text = SENTENCE_THAT_CONTINUES.format(answer.text, ",")
        right, of_wrong, with_comma = trial.score(
            [RowCompletion(row, one) for one in (plain, wrong, text)]
        )
        if is_above(right, of_wrong):
            is_paid = is_nearer_to_right(with_comma, right, of_wrong)
            outcomes.append(SpellingOutcome(row.number, text, is_paid))
    scores_of_spelling = sum_up_outcomes(BEFORE_A_COMMA, outcomes)
    if scores_of_spelling is not None:
        trial.spellings.append(scores_of_spelling)


def try_answers_after_wrong_ones(trial: TrialInProgress) -> None:
    """Score right answers behind a wrong one, in the form in which right ones before wrong ones are paid."""
    taken_back = [one for one in trial.tried if one.kind == "taken back" and one.is_paid]
    # The marked form comes last: every text is one of the bare form.
    marked_first = reversed(trial.paid_forms)
    form = next((one for one in marked_first if _is_form_of_any(one, taken_back)), None)
    if form is None:
        return
    outcomes: list[SpellingOutcome] = []
    for row in _rows_with_paid_answers(trial):
        right_text = form.fill(trial.answers[row.number].text)
        wrong_text = form.fill(trial.wrong_of(row).first)
        text = f"{wrong_text}\n\nNo, that is wrong.\n\n{right_text}"
        right, of_wrong, after = trial.score(
            [RowCompletion(row, one) for one in (right_text, wrong_text, text)]
        )
        is_paid = is_nearer_to_right(after, right, of_wrong)
        outcomes.append(SpellingOutcome(row.number, text, is_paid))
    trial.after_wrong_ones = sum_up_outcomes(form.name, outcomes)


def _is_form_of_any(form: AnswerForm, tried_completions: Iterable[TriedCompletion]) -> bool:
    """Do some completions begin as a form does, and end as it does?"""
    texts = [one.completion for one in tried_completions]
    return any(text.startswith(form.before) and text.endswith(form.after) for text in texts)
