"""Tries a reward function: which forms of the right answer it pays, what else it pays, whether scores stay the same.

1. Each form of an answer is filled with right and with wrong answers of a few rows. A form is paid where the right one
   scores above the wrong one. Without a paid form the scores depend on the text alone, or on nothing.
2. In the form that is paid best, completions that should score low are scored beside the right one of each row.
3. The same completions are scored again, in another order, alone, and in a new process.
4. Texts as of models that fail are scored, and texts as of models that do not stop.

The trade-off: what no form is paid for can't be attacked. A function for code, or for an equation, is judged on its
robustness alone, unless the rows have completions that it pays for (`golden`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from truetune.errors import UsageError, format_name_list
from truetune.generation.reward_trial import (
    Access,
    ChangedScore,
    Comparison,
    Dependence,
    FormScores,
    RaisedError,
    RewardTrial,
    SpellingScores,
    TriedCompletion,
    UnpaidReference,
    is_above,
    is_at_least,
)
from truetune.rewards.answer_forms import (
    AnswerForm,
    answer_after_other_numbers,
    answer_forms,
    other_spellings,
    spellings_of_references,
)
from truetune.rewards.attack_completions import (
    NO_ANSWER,
    ODD_TEXTS,
    REPEATS,
    WrongAnswers,
    attacks_on_answer,
    long_texts,
    wrong_answers,
)
from truetune.rewards.reward_process import LoadedFunction, RewardProcess, RewardTarget
from truetune.rewards.rows_for_rewards import (
    GIVEN_BY_TRL,
    ColumnChoice,
    RewardRow,
    RightAnswer,
    choose_reference_column,
    right_answer_of,
)
from truetune.rewards.score_completions import CompletionScorer, RowCompletion, TooManyFailures

CompletionsAs = Literal["auto", "text", "messages"]
# Chosen, not measured: a form that is paid for none of five rows is not the function's.
FORM_ROWS = 5
"""Rows whose answers are tried in all forms"""
# As many as a usual group of GRPO, of a few rows: 24 completions.
COMPARED_ROWS, COMPARED_PER_ROW = 3, 8
LONG_TEXTS_PER_CALL = 8
REPEATED_CALLS = 3
"""Chosen, not measured: chance may give the same scores once"""
STAND_IN_ANSWER = "42"
"""What forms are filled with for a function that takes no reference"""
MANY_WORDS = " ".join(f"word{number}" for number in range(20_000))
"""Longer than any limit that functions of length have"""
PLAIN = AnswerForm("X", "", "")
PROSE = "The answer is X."
"""The name of the form, and the form with X for the answer"""
EMPTY = ""


@dataclass(frozen=True, slots=True)
class TrialOptions:
    """How a function is tried."""

    seconds: float = 3.0
    """That one completion may take"""
    max_seconds: float = 120.0
    """After which nothing more is tried"""
    reference: str | None = None
    """The column with the right answers"""
    golden: str | None = None
    """A column of whole completions that are to be paid"""
    own_forms: tuple[str, ...] = ()
    completions_as: CompletionsAs = "auto"
    python_only: bool = False


@dataclass(slots=True)
class _Trial:
    """What is found while a function is tried."""

    scorer: CompletionScorer
    rows: Sequence[RewardRow]
    answers: dict[int, RightAnswer]
    """By the number of the row; rows without an answer are left out"""
    forms: list[FormScores] = field(default_factory=list)
    paid_forms: list[AnswerForm] = field(default_factory=list)
    """The best one, and one of another kind that is paid as well"""
    spellings: list[SpellingScores] = field(default_factory=list)
    after_others: SpellingScores | None = None
    unpaid: list[UnpaidReference] = field(default_factory=list)
    tried: list[TriedCompletion] = field(default_factory=list)
    changed: list[ChangedScore] = field(default_factory=list)
    right_rows: int = 0
    usual_wrong: float | None = None
    compared: int = 0
    skipped: int = 0
    seen_scores: set[float | None] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    def wrong_of(self, row: RewardRow) -> WrongAnswers:
        """Wrong answers for a row."""
        return wrong_answers(self.answers[row.number], list(self.answers.values()))

    @property
    def answered_rows(self) -> list[RewardRow]:
        """The rows with a right answer."""
        return [row for row in self.rows if row.number in self.answers]

    def score(self, completions: Sequence[RowCompletion]) -> list[float | None]:
        """Score completions, and remember which scores there are."""
        scores = self.scorer.score(completions)
        self.seen_scores.update(scores)
        return scores


def try_reward_function(
    target: RewardTarget, rows: Sequence[RewardRow], options: TrialOptions
) -> RewardTrial:
    """Try a reward function on rows. Never raises what the function raises.

    Args:
        target: the function.
        rows: at least one.
        options: how it is tried.

    Raises:
        UsageError: there is no such function or column.
        RewardFunctionError: its file can't be imported, or its process ends.
    """
    with RewardProcess(target, options.seconds, python_only=options.python_only) as process:
        loaded = process.load()
        if not {"completions", "completion_ids"} & set(loaded.parameters) and not loaded.takes_any:
            raise UsageError(
                f"{target}: it takes {format_name_list(loaded.parameters)} and no completions; a function that makes"
                " reward functions is no reward function: name the one that it gives"
            )
        choice = choose_reference_column(loaded, rows, options.reference)
        columns = list(dict.fromkeys(name for row in rows for name in row.columns))
        scorer = CompletionScorer(
            process, _form_of_completions(rows, options), columns, options.max_seconds
        )
        trial = _Trial(scorer, rows, _answers_of_rows(rows, choice, options))
        trial.notes += loaded.notes
        # Rules judge what was seen until then; `scorer` knows why it ended.
        with suppress(TooManyFailures):
            _choose_form_of_completions(trial, options)
            _try_all(trial, loaded, choice, options)
            trial.changed += _scores_in_new_process(trial, target, options)
        accesses = process.note_accesses()
        return _result(target, trial, loaded, choice, accesses, options)


def _answers_of_rows(
    rows: Sequence[RewardRow], choice: ColumnChoice, options: TrialOptions
) -> dict[int, RightAnswer]:
    """The right answer of each row that has one."""
    if options.golden is not None:
        golden = {row.number: row.columns.get(options.golden) for row in rows}
        if not any(isinstance(text, str) and text.strip() for text in golden.values()):
            raise UsageError(f"--golden {options.golden}: no row has a text in this column")
        return {
            number: RightAnswer(text, text, None, text)
            for number, text in golden.items()
            if isinstance(text, str) and text.strip()
        }
    if not choice.reference:
        return {}
    found = {row.number: right_answer_of(row.columns.get(choice.reference)) for row in rows}
    answers = {number: answer for number, answer in found.items() if answer is not None}
    if not answers and options.reference is not None:
        raise UsageError(f"--reference {choice.reference}: no row has a text or number in it")
    return answers


def _form_of_completions(
    rows: Sequence[RewardRow], options: TrialOptions
) -> Literal["text", "messages"]:
    """The form of completions that the rows ask for: that of their prompts."""
    if options.completions_as != "auto":
        return options.completions_as
    return "messages" if any(row.messages is not None for row in rows) else "text"


def _choose_form_of_completions(trial: _Trial, options: TrialOptions) -> None:
    """Change to the other form of completions where the function raises on that of the rows, and not on the other."""
    scorer, row = trial.scorer, trial.rows[0]
    answer = trial.answers.get(row.number)
    text = answer.text if answer is not None else STAND_IN_ANSWER
    tried = [RowCompletion(row, f"The answer is {text}.")]
    if options.completions_as != "auto" or scorer.score_together(tried) is not None:
        return
    first = scorer.completions_as
    scorer.completions_as = "messages" if first == "text" else "text"
    if scorer.score_together(tried) is None:
        scorer.completions_as = first
        return
    if first == "messages" or any("prompt" in row.columns for row in trial.rows):
        trial.notes.append(
            f"the prompts of the rows make completions of TRL {first}, on which the function fails: it was given"
            f" {scorer.completions_as}"
        )


def _try_all(
    trial: _Trial, loaded: LoadedFunction, choice: ColumnChoice, options: TrialOptions
) -> None:
    """All stages, one after the other. Raises TooManyFailures where one ends the trial."""
    forms = [PLAIN] if options.golden is not None else answer_forms(loaded.texts, options.own_forms)
    if trial.answers:
        _try_forms(trial, forms)
    else:
        _try_forms_without_answers(trial, forms)
    if trial.paid_forms:
        for row in trial.answered_rows:
            _attack_row(trial, row)
        _try_spellings(trial)
        _try_answers_after_others(trial)
    elif trial.answers:
        _find_swallowed_errors(trial, forms)
    _compare_calls(trial, forms)
    _try_odd_and_long_texts(trial)


def _try_forms(trial: _Trial, forms: Sequence[AnswerForm]) -> None:
    """Fill each form with the right and a wrong answer of the first rows, and choose the form that is paid best."""
    rows = trial.answered_rows[:FORM_ROWS]
    rights: dict[str, list[float | None]] = {form.name: [] for form in forms}
    wrongs: dict[str, list[float | None]] = {form.name: [] for form in forms}
    for row in rows:
        answers = (trial.answers[row.number].text, trial.wrong_of(row).first, NO_ANSWER)
        completions = [form.fill(text) for form in forms for text in answers]
        scores = trial.score([RowCompletion(row, text) for text in completions])
        for place, form in enumerate(forms):
            right, wrong, no_answer = scores[3 * place : 3 * place + 3]
            rights[form.name].append(right)
            wrongs[form.name].append(_lower(wrong, no_answer))
    first = trial.answers[rows[0].number].text
    for form in forms:
        right_scores, wrong_scores = rights[form.name], wrongs[form.name]
        pairs = list(zip(right_scores, wrong_scores, strict=True))
        trial.forms.append(
            FormScores(
                form.name,
                form.fill(first),
                len(rows),
                sum(is_above(right, wrong) for right, wrong in pairs),
                _mean(right_scores),
                _mean(wrong_scores),
            )
        )
    trial.paid_forms = _choose_paid_forms(trial.forms, forms)


def _choose_paid_forms(
    scores: Sequence[FormScores], forms: Sequence[AnswerForm]
) -> list[AnswerForm]:
    """The form that is paid best, and one with a mark for machines that is paid as much."""
    paid = [place for place, one in enumerate(scores) if one.paid]
    if not paid:
        return []

    def value(place: int) -> tuple[int, float]:
        return scores[place].paid, scores[place].right or 0.0

    best = max(paid, key=value)
    chosen = [forms[best]]
    if not any(mark in forms[best].before for mark in ("\\boxed", "<", "####")):
        marked = [
            place
            for place in paid
            if any(mark in forms[place].before for mark in ("\\boxed", "<answer>"))
        ]
        equal = [place for place in marked if is_at_least(scores[place].right, scores[best].right)]
        chosen += [forms[place] for place in equal[:1]]
    return chosen


def _try_forms_without_answers(trial: _Trial, forms: Sequence[AnswerForm]) -> None:
    """For a function that takes no reference: score each form, filled and hollow."""
    row = trial.rows[0]
    texts = [text for form in forms for text in (form.fill(STAND_IN_ANSWER), form.fill(""))]
    scores = trial.score([RowCompletion(row, text) for text in texts])
    for place, form in enumerate(forms):
        filled, hollow = scores[2 * place], scores[2 * place + 1]
        trial.forms.append(
            FormScores(
                form.name, texts[2 * place], 1, 0, filled, None, hollow, texts[2 * place + 1]
            )
        )
    # Scores of length differ for texts of other lengths alone.
    lengths = [EMPTY, "A short text.", "A text of some more words. " * 20, MANY_WORDS]
    trial.score([RowCompletion(row, text) for text in lengths])
    best = max(trial.forms, key=lambda one: -1e300 if one.right is None else one.right)
    repeated = "\n".join([best.example] * REPEATS)
    once, often = trial.score([RowCompletion(row, best.example), RowCompletion(row, repeated)])
    trial.tried.append(
        TriedCompletion(
            "repeated", f"{best.name} {REPEATS} times", row.number, "", repeated, often, once
        )
    )


def _attack_row(trial: _Trial, row: RewardRow) -> None:
    """Score what should score low beside the right answer of a row, in one call for each paid form."""
    answer, wrong = trial.answers[row.number], trial.wrong_of(row)
    for place, form in enumerate(trial.paid_forms):
        right_text, wrong_text = form.fill(answer.text), form.fill(wrong.first)
        attacks = list(attacks_on_answer(form, answer, wrong, row.prompt))
        texts = [right_text, wrong_text, form.fill(NO_ANSWER)]
        texts += [attack.completion for attack in attacks]
        scores = trial.score([RowCompletion(row, text) for text in texts])
        right, of_wrong = scores[0], _lower(scores[1], scores[2])
        if place == 0:
            trial.right_rows += 1
            trial.skipped += right is None
        if not is_above(right, of_wrong):
            if place == 0:
                trial.unpaid.append(
                    UnpaidReference(row.number, answer.reference, right_text, right, of_wrong)
                )
            # A row whose right answer is not paid says nothing about what else is.
            continue
        if of_wrong is not None:
            known = trial.usual_wrong
            trial.usual_wrong = of_wrong if known is None else max(known, of_wrong)
        trial.tried += [
            TriedCompletion(
                attack.kind,
                attack.what,
                row.number,
                answer.reference,
                attack.completion,
                score,
                right,
                of_wrong,
            )
            for attack, score in zip(attacks, scores[3:], strict=True)
            # Some attacks are the right answer itself: "not" of an answer that begins with it, a list of one.
            if attack.completion != right_text
        ]


def _try_spellings(trial: _Trial) -> None:
    """Score other spellings of the answers in the form that is paid best, beside the usual ones."""
    form = trial.paid_forms[0]
    unpaid = {one.row for one in trial.unpaid}
    results: dict[str, list[tuple[RewardRow, str, bool]]] = {}
    for row in trial.answered_rows:
        if row.number in unpaid:
            continue
        answer = trial.answers[row.number]
        spellings = [(name, form.fill(text)) for name, text in other_spellings(answer)]
        if not spellings:
            continue
        wrong = form.fill(trial.wrong_of(row).first)
        texts = [form.fill(answer.text), wrong, *(text for _, text in spellings)]
        right, of_wrong, *scores = trial.score([RowCompletion(row, text) for text in texts])
        for (name, text), score in zip(spellings, scores, strict=True):
            is_paid = _is_nearer_to_right(score, right, of_wrong)
            results.setdefault(name, []).append((row, text, is_paid))
    for name, outcomes in results.items():
        # The example is one that is refused, where there is one.
        row, text, _ = min(outcomes, key=lambda outcome: outcome[2])
        paid = sum(is_paid for _, _, is_paid in outcomes)
        trial.spellings.append(SpellingScores(name, row.number, text, len(outcomes), paid))


def _try_answers_after_others(trial: _Trial) -> None:
    """Score right answers in prose with other numbers before them, where prose without such is paid."""
    if not any(form.name == PROSE and form.paid == form.rows for form in trial.forms):
        return
    outcomes: list[tuple[RewardRow, str, bool]] = []
    for row in trial.answered_rows:
        answer = trial.answers[row.number]
        text = answer_after_other_numbers(answer)
        if text is None:
            continue
        plain = PROSE.replace("X", answer.text)
        wrong = PROSE.replace("X", trial.wrong_of(row).first)
        scored = trial.score([RowCompletion(row, one) for one in (plain, wrong, text)])
        right, of_wrong, after = scored
        if is_above(right, of_wrong):
            outcomes.append((row, text, _is_nearer_to_right(after, right, of_wrong)))
    if outcomes:
        row, text, _ = min(outcomes, key=lambda outcome: outcome[2])
        paid = sum(is_paid for _, _, is_paid in outcomes)
        trial.after_others = SpellingScores(PROSE, row.number, text, len(outcomes), paid)


def _is_nearer_to_right(score: float | None, right: float | None, wrong: float | None) -> bool:
    """Is a spelling scored more like the right answer than like a wrong one? Some functions pay it a little less."""
    if score is None or right is None:
        return False
    return score > (right + (right - 1 if wrong is None else wrong)) / 2


def _find_swallowed_errors(trial: _Trial, forms: Sequence[AnswerForm]) -> None:
    """Where nothing is paid: note the exceptions that the function catches itself on a right answer."""
    row = trial.answered_rows[0]
    text = trial.answers[row.number].text
    tried = [RowCompletion(row, form.fill(text)) for form in forms]
    trial.scorer.score(tried, traced=True)


def _completions_to_compare(trial: _Trial, forms: Sequence[AnswerForm]) -> list[RowCompletion]:
    """Different completions of a few rows, those of one row behind one another, as TRL has them."""
    form = trial.paid_forms[0] if trial.paid_forms else max(forms, key=lambda one: len(one.before))
    completions = []
    for row in trial.rows[:COMPARED_ROWS]:
        answer = trial.answers.get(row.number)
        right = STAND_IN_ANSWER if answer is None else answer.text
        other = "17" if answer is None else trial.wrong_of(row).first
        texts = (
            form.fill(right), form.fill(other), right, EMPTY, f"The answer is {right}.",
            form.fill(f"{other} {other}"), form.fill("") + " And some more words to make it longer.",
            f"<think>\n{other}\n</think>\n{form.fill(right)}",
        )  # fmt: skip
        completions += [RowCompletion(row, text) for text in texts[:COMPARED_PER_ROW]]
    return completions


def _compare_calls(trial: _Trial, forms: Sequence[AnswerForm]) -> None:
    """Score the same completions again, in another order, and alone."""
    completions = _completions_to_compare(trial, forms)
    first = trial.scorer.score_together(completions)
    if first is None:
        return
    trial.compared = len(completions)
    trial.seen_scores.update(first)
    for _ in range(REPEATED_CALLS):
        again = trial.scorer.score_together(completions)
        _note_changes(trial, "again", completions, first, again)
        if trial.changed:
            # Scores that change by themselves say nothing about the order.
            return
    # Each place of a row once: a function that reads the first of a batch reads another one each time.
    for steps in range(1, COMPARED_PER_ROW):
        order = _other_order(len(completions), steps)
        moved = trial.scorer.score_together([completions[place] for place in order])
        if moved is not None:
            back = [moved[order.index(place)] for place in range(len(order))]
            _note_changes(trial, "in another order", completions, first, back)
        if trial.changed:
            return
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
    trial: _Trial,
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


def _scores_in_new_process(
    trial: _Trial, target: RewardTarget, options: TrialOptions
) -> list[ChangedScore]:
    """The completions that score otherwise in a new process, whose sets of texts have another order."""
    scorer = trial.scorer
    if trial.changed or not trial.compared:
        return []
    forms = trial.paid_forms or [PLAIN]
    completions = _completions_to_compare(trial, forms)
    first = scorer.score_together(completions)
    with RewardProcess(
        target, options.seconds, python_only=options.python_only, hash_seed=1
    ) as process:
        other = CompletionScorer(
            process, scorer.completions_as, scorer.columns, options.max_seconds
        )
        second = other.score_together(completions)
    if first is None or second is None:
        return []
    before = len(trial.changed)
    _note_changes(trial, "in a new process", completions, first, second)
    changed = trial.changed[before:]
    del trial.changed[before:]
    return changed


def _try_odd_and_long_texts(trial: _Trial) -> None:
    """Score texts as of models that fail, then those as of models that do not stop."""
    row = trial.rows[0]
    forms = trial.paid_forms or [PLAIN]
    odd = [*ODD_TEXTS, *(form.before for form in forms)]
    trial.score([RowCompletion(row, text) for text in sorted(dict.fromkeys(odd), key=len)])
    answer = trial.answers.get(row.number)
    examples = [form.fill(answer.text) for form in forms] if answer is not None else []
    texts = sorted(dict.fromkeys(long_texts(examples)), key=len)
    # Few in one call: of many that hang, each waits for the limit of all.
    trial.scorer.batch = LONG_TEXTS_PER_CALL
    trial.score([RowCompletion(row, text) for text in texts])


def _lower(one: float | None, other: float | None) -> float | None:
    """The lower of two scores; None where one is None."""
    return None if one is None or other is None else min(one, other)


def _mean(scores: Sequence[float | None]) -> float | None:
    """The mean of the scores that there are; None of none."""
    known = [score for score in scores if score is not None]
    return sum(known) / len(known) if known else None


def _dependence(trial: _Trial) -> Dependence:
    """What the scores depend on."""
    if not trial.scorer.succeeded:
        return "unknown"
    if trial.paid_forms:
        return "answer"
    return "form" if len(trial.seen_scores) > 1 else "nothing"


def _own_errors(trial: _Trial, accesses: Sequence[Access]) -> tuple[RaisedError, ...]:
    """The exceptions that are the function's own, and not of what was kept from it here."""
    if any(access.kind == "network" for access in accesses):
        return ()
    refused = ("PermissionError", "OSError: [Errno 30]")
    return tuple(one for one in trial.scorer.raised if not one.error.startswith(refused))


def _result(
    target: RewardTarget,
    trial: _Trial,
    loaded: LoadedFunction,
    choice: ColumnChoice,
    accesses: tuple[Access, ...],
    options: TrialOptions,
) -> RewardTrial:
    """All that was found, as the rules read it."""
    scorer, process = trial.scorer, trial.scorer.process
    depends_on = _dependence(trial)
    constant = next(iter(trial.seen_scores)) if len(trial.seen_scores) == 1 else None
    uses_network = any(access.kind == "network" for access in accesses)
    given = {*GIVEN_BY_TRL, *scorer.columns} - {"environments"}
    return RewardTrial(
        name=str(target),
        rows=len(trial.rows),
        calls=process.calls,
        completions=process.completions,
        depends_on=depends_on,
        reference_column=options.golden or choice.reference,
        reference_problem=choice.problem if not trial.answers else "",
        has_short_answers=all(one.is_short for one in trial.answers.values()),
        other_columns=choice.others,
        completions_as=scorer.completions_as,
        given_arguments=len(given),
        missing_arguments=(
            () if loaded.takes_any else tuple(sorted(given - set(loaded.parameters)))
        ),
        forms=tuple(trial.forms),
        best_form=trial.paid_forms[0].name if trial.paid_forms else "",
        spellings=tuple(trial.spellings),
        after_others=trial.after_others,
        mixed_spellings=tuple(sorted(spellings_of_references(trial.answers.values()))),
        right_rows=trial.right_rows,
        usual_wrong=trial.usual_wrong,
        unpaid=tuple(trial.unpaid),
        tried=tuple(trial.tried),
        raised=_own_errors(trial, accesses),
        raised_always=bool(scorer.raised) and not scorer.succeeded,
        swallowed=tuple(scorer.swallowed),
        hung=None if uses_network else scorer.hung,
        returned=tuple(scorer.returned),
        not_finite=tuple(scorer.not_finite),
        skipped=trial.skipped,
        is_out_of_time=scorer.is_out_of_time,
        different_scores=len(trial.seen_scores),
        constant=constant,
        compared=trial.compared,
        changed=tuple(trial.changed),
        accesses=accesses,
        notes=tuple(trial.notes),
    )
