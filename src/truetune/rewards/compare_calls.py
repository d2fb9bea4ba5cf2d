"""Scores the same completions again: a second time, in other orders, alone, in a new process, and there after another
row that has the same completion.

A score that changes by itself ends the comparison, for it says nothing about the order any more. Another score in
another order shows a function that reads the first of a batch, or returns scores in another order. One that is another
alone shows a function that scores relative to the batch, which may be meant.
"""

from __future__ import annotations

from collections.abc import Sequence

from truetune.generation.reward_trial import ChangedScore, Comparison, is_at_least
from truetune.rewards.answer_forms import AnswerForm
from truetune.rewards.reward_process import RewardProcess, RewardTarget
from truetune.rewards.score_completions import CompletionScorer, RowCompletion
from truetune.rewards.trial_in_progress import (
    EMPTY,
    PLAIN,
    STAND_IN_ANSWER,
    TrialInProgress,
    TrialOptions,
)

# As many as a usual group of GRPO, of a few rows: 24 completions.
COMPARED_ROWS, COMPARED_PER_ROW = 3, 8
OTHER_STAND_IN_ANSWER = "17"
REPEATED_CALLS = 3
"""Chosen, not measured: chance may give the same scores once"""


def _completions_to_compare(
    trial: TrialInProgress, forms: Sequence[AnswerForm]
) -> list[RowCompletion]:
    """Different completions of a few rows, those of one row behind one another, as TRL has them."""
    form = trial.paid_forms[0] if trial.paid_forms else max(forms, key=lambda one: len(one.before))
    completions = []
    for row in trial.rows[:COMPARED_ROWS]:
        answer = trial.answers.get(row.number)
        right = STAND_IN_ANSWER if answer is None else answer.text
        other = OTHER_STAND_IN_ANSWER if answer is None else trial.wrong_of(row).first
        texts = (
            form.fill(right), form.fill(other), right, EMPTY, f"The answer is {right}.",
            form.fill(f"{other} {other}"), form.fill("") + " And some more words to make it longer.",
            f"<think>\n{other}\n</think>\n{form.fill(right)}",
        )  # fmt: skip
        completions += [RowCompletion(row, text) for text in texts[:COMPARED_PER_ROW]]
    return completions


def _completions_of_two_rows(trial: TrialInProgress, form: AnswerForm) -> list[RowCompletion]:
    """The right answers of some rows, each as a completion of its own row and then of another one."""
    rows = trial.answered_rows[:COMPARED_ROWS]
    completions = []
    for row, other in zip(rows, (*rows[1:], *rows[:1]), strict=True):
        answer = trial.answers[row.number]
        if answer.value != trial.answers[other.number].value:
            text = form.fill(answer.text)
            completions += [RowCompletion(row, text), RowCompletion(other, text)]
    return completions


def _order_against_memory(
    shared: Sequence[RowCompletion], scores: Sequence[float | None]
) -> list[int]:
    """The places of the completions of two rows, those first by which a memory of scores would be filled otherwise.

    A row whose right answer scores as another row's does may have the score of what came first: now its right answer
    comes first where both got little, and the other one where both got much.

    Args:
        shared: each right answer twice, for its own row and for another one.
        scores: of the first process; empty where it gave none.
    """
    numbers = [score for score in scores if score is not None]
    most = max(numbers, default=0.0)
    by_row: dict[int, set[float | None]] = {}
    for one, score in zip(shared, scores, strict=False):
        by_row.setdefault(one.row.number, set()).add(score)

    def rank(place: int) -> tuple[int, int]:
        of_row = by_row.get(shared[place].row.number, set())
        is_own, is_suspect = place % 2 == 0, len(of_row) == 1
        comes_first = is_suspect and is_own != (most in of_row)
        return (0 if comes_first else 1), -place

    return sorted(range(len(shared)), key=rank)


def compare_calls(trial: TrialInProgress, forms: Sequence[AnswerForm]) -> None:
    """Score the same completions again, in another order, and alone."""
    completions = _completions_to_compare(trial, forms)
    first = trial.scorer.score_together(completions)
    if first is None:
        return
    trial.compared = len(completions)
    trial.seen_scores.update(first)
    _compare_repeated_calls(trial, completions, first)
    # Scores that change by themselves say nothing about the order, and those of another order nothing about one alone.
    if not trial.changed:
        _compare_other_orders(trial, completions, first)
    if not trial.changed:
        _compare_single_completions(trial, completions, first)


def _compare_repeated_calls(
    trial: TrialInProgress, completions: Sequence[RowCompletion], first: Sequence[float | None]
) -> None:
    """Score the completions again as they are, until a score changes."""
    for _ in range(REPEATED_CALLS):
        again = trial.scorer.score_together(completions)
        _note_changes(trial, "again", completions, first, again)
        if trial.changed:
            return


def _compare_other_orders(
    trial: TrialInProgress, completions: Sequence[RowCompletion], first: Sequence[float | None]
) -> None:
    """Score the completions in other orders, until a score changes."""
    # Each place of a row once: a function that reads the first of a batch reads another one each time.
    for steps in range(1, COMPARED_PER_ROW):
        order = _other_order(len(completions), steps)
        moved = trial.scorer.score_together([completions[place] for place in order])
        if moved is not None:
            back = [moved[order.index(place)] for place in range(len(order))]
            _note_changes(trial, "in another order", completions, first, back)
        if trial.changed:
            return


def _compare_single_completions(
    trial: TrialInProgress, completions: Sequence[RowCompletion], first: Sequence[float | None]
) -> None:
    """Score each completion alone; nothing is compared where one of them gets no score."""
    alone = [trial.scorer.score_together([one]) for one in completions]
    if all(alone):
        _note_changes(trial, "alone", completions, first, [one[0] for one in alone if one])


def _other_order(count: int, steps: int) -> list[int]:
    """Another order of the completions: the rows backwards, and those of a row moved on by some steps.

    Completions of one row stay together, as in TRL: a function may count on that.
    """
    groups = [
        list(range(start, min(start + COMPARED_PER_ROW, count)))
        for start in range(0, count, COMPARED_PER_ROW)
    ]
    return [place for group in reversed(groups) for place in (*group[steps:], *group[:steps])]


def _note_changes(
    trial: TrialInProgress,
    how: Comparison,
    completions: Sequence[RowCompletion],
    first: Sequence[float | None],
    second: Sequence[float | None] | None,
) -> None:
    """Note the completions whose score is another one the second time."""
    if second is None:
        return
    for one, before, after in zip(completions, first, second, strict=True):
        if before != after and not (is_at_least(before, after) and is_at_least(after, before)):
            trial.changed.append(ChangedScore(how, one.text, one.row.number, before, after))


def compare_with_new_process(
    trial: TrialInProgress, target: RewardTarget, options: TrialOptions
) -> list[ChangedScore]:
    """The completions that score otherwise in a new process, whose sets of texts have another order."""
    scorer = trial.scorer
    if trial.changed or not trial.compared:
        return []
    forms = trial.paid_forms or [PLAIN]
    completions = _completions_to_compare(trial, forms)
    shared = _completions_of_two_rows(trial, forms[0])
    first, first_shared = scorer.score_together(completions), scorer.score_together(shared)
    with RewardProcess(
        target, options.seconds, python_only=options.python_only, hash_seed=1
    ) as process:
        other = CompletionScorer(
            process, scorer.completions_as, scorer.columns, options.max_seconds
        )
        # Before anything else, so that a memory of scores is filled by other completions than in the first process.
        order = _order_against_memory(shared, first_shared or ())
        moved = other.score_together([shared[place] for place in order])
        second = other.score_together(completions)
    before = len(trial.changed)
    if first_shared is not None and moved is not None:
        back = [moved[order.index(place)] for place in range(len(order))]
        _note_changes(trial, "after another row", shared, first_shared, back)
    if first is not None and len(trial.changed) == before:
        _note_changes(trial, "in a new process", completions, first, second)
    changed = trial.changed[before:]
    del trial.changed[before:]
    return changed
