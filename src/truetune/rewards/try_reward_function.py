"""Tries a reward function: which forms of the right answer it pays, what else it pays, whether scores stay the same.

1. Each form of an answer is filled with right and with wrong answers of a few rows. A form is paid where the right one
   scores above the wrong one. Without a paid form the scores depend on the text alone, or on nothing.
2. In the form that is paid best, completions that should score low are scored beside the right one of each row.
3. The same completions are scored again, in another order, alone, and in a new process.
4. Texts as of models that fail are scored, and texts as of models that do not stop.
5. Verifiers of mathematics that are installed judge the completions of 1 and 2 as well.

The trade-off: what no form is paid for can't be attacked. A function for code, or for an equation, is judged on its
robustness alone, unless the rows have completions that it pays for (`golden`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

from truetune.errors import UsageError, format_name_list
from truetune.generation.reward_trial import (
    NO_ANSWER,
    Access,
    Dependence,
    FormScores,
    RaisedError,
    RepetitionScores,
    RewardTrial,
    TriedCompletion,
    UnpaidReference,
    is_above,
    is_at_least,
)
from truetune.generation.verifier_comparison import ComparedCompletion, VerifierComparison
from truetune.rewards.answer_forms import (
    AnswerForm,
    answer_forms,
    forms_of_named_keys,
    spellings_of_references,
)
from truetune.rewards.attack_completions import (
    ODD_TEXTS,
    REPEATS,
    SENTENCES,
    Attack,
    attacks_on_answer,
    long_texts,
    program_that_ends_early,
)
from truetune.rewards.compare_calls import compare_calls, compare_with_new_process
from truetune.rewards.compare_with_verifiers import compare_with_verifiers
from truetune.rewards.reward_process import LoadedFunction, RewardProcess, RewardTarget
from truetune.rewards.rows_for_rewards import (
    GIVEN_BY_TRL,
    ColumnChoice,
    RewardRow,
    RightAnswer,
    choose_reference_column,
    right_answer_of,
    several_right_answers,
    with_labels,
)
from truetune.rewards.score_completions import CompletionScorer, RowCompletion, TooManyFailures
from truetune.rewards.score_completions_after_opened_marks import (
    try_completions_after_opened_mark,
)
from truetune.rewards.score_other_spellings import (
    try_answers_after_others,
    try_answers_after_wrong_ones,
    try_answers_before_a_comma,
    try_parts_of_numbers,
    try_spellings,
)
from truetune.rewards.score_thoughts_over_lines import try_thoughts_over_lines
from truetune.rewards.trial_in_progress import (
    EMPTY,
    PLAIN,
    STAND_IN_ANSWER,
    TrialInProgress,
    TrialOptions,
)

# Chosen, not measured: a form that is paid for none of five rows is not the function's.
FORM_ROWS = 5
"""Rows whose answers are tried in all forms"""
LONG_TEXTS_PER_CALL = 8
# JSON, Python and YAML; XML; TOML.
DOCUMENTS = ('{"answer": "42"}', "<answer>42</answer>", 'answer = "42"')
"""Completions that parsers of documents read"""
PARSE_ERRORS = (
    "JSONDecodeError", "ParseError", "ExpatError", "SyntaxError", "TOMLDecodeError", "YAMLError",
    "ScannerError", "ParserError", "ValidationError",
)  # fmt: skip
"""Names of what such parsers raise: of json, xml, ast, tomllib, yaml, pydantic"""
MARKS_FOR_MACHINES = ("\\boxed", "<", "####")
"""In front of answers in forms that only programs read"""
USUAL_MARKS = ("\\boxed", "<answer>")
"""Those that most functions search: a form with one is attacked beside a best form of prose that is paid as much"""
TEXT_KINDS = ("empty", "prompt", "repeated")
"""Completions that no function should pay, whatever the right answer is"""
MANY_WORDS = " ".join(f"word{number}" for number in range(20_000))
"""Longer than any limit that functions of length have"""
TEXTS_OF_EACH_LENGTH = (EMPTY, "A short text.", "A text of some more words. " * 20, MANY_WORDS)
TURN_WORDS = {
    "turn", "turns", "message", "messages", "tool", "tools", "step", "steps", "round", "rounds", "call", "calls",
    "environment", "environments", "env", "agent",
}  # fmt: skip
"""In names of functions and arguments: completions may be of several messages there, which are counted"""


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
            raise UsageError(_message_for_no_completions(target, loaded))
        reference = options.reference
        if loaded.is_of_openrlhf:
            rows = with_labels(rows, reference)
            reference = "labels" if any("labels" in row.columns for row in rows) else reference
        choice = choose_reference_column(loaded, rows, reference)
        columns = list(dict.fromkeys(name for row in rows for name in row.columns))
        is_of_texts = loaded.is_of_verl or loaded.is_of_openrlhf
        form = "text" if is_of_texts else _form_of_completions(rows, options)
        scorer = CompletionScorer(process, form, columns, options.max_seconds)
        trial = TrialInProgress(scorer, rows, _answers_of_rows(rows, choice, options))
        trial.notes += loaded.notes
        trial.reads_columns = bool(choice.reference or choice.others)
        # Rules judge what was seen until then; `scorer` knows why it ended.
        with suppress(TooManyFailures):
            _choose_form_of_completions(trial, options)
            _try_all(trial, loaded, choice, options)
            trial.changed += compare_with_new_process(trial, target, options)
        accesses = process.note_accesses()
        comparisons = compare_with_verifiers(trial, options)
        return _result(target, trial, loaded, choice, accesses, comparisons, options)


def _message_for_no_completions(target: RewardTarget, loaded: LoadedFunction) -> str:
    """Why a function that takes no completions can't be tried, and what can be named instead."""
    takes = f"{target}: it takes {format_name_list(loaded.parameters)} and no completions"
    if loaded.makes_functions:
        return f"{takes}; a function that makes reward functions is no reward function: name the one that it gives"
    return (
        f"{takes}; functions are called as TRL calls them, with lists: name one that takes `completions` and the"
        " columns of the rows, and gives a list of scores, one of verl's that takes `solution_str`, or one of"
        " OpenRLHF's that takes `queries`"
    )


def _answers_of_rows(
    rows: Sequence[RewardRow], choice: ColumnChoice, options: TrialOptions
) -> dict[int, RightAnswer]:
    """The right answer of each row that has one."""
    if options.golden is not None:
        return _golden_completions_of_rows(rows, options.golden)
    if not choice.reference:
        return {}
    answers: dict[int, RightAnswer] = {}
    for row in rows:
        answer = right_answer_of(row.columns.get(choice.reference))
        if answer is not None:
            answers[row.number] = answer
    if not answers and options.reference is not None:
        raise UsageError(f"--reference {choice.reference}: no row has a text or number in it")
    return answers


def _golden_completions_of_rows(rows: Sequence[RewardRow], column: str) -> dict[int, RightAnswer]:
    """The whole completion that is to be paid, of each row that has one. Raises UsageError where none has."""
    golden: dict[int, RightAnswer] = {}
    for row in rows:
        text = row.columns.get(column)
        if isinstance(text, str) and text.strip():
            golden[row.number] = RightAnswer(text, text, None, text)
    if not golden:
        raise UsageError(f"--golden {column}: no row has a text in this column")
    return golden


def _form_of_completions(
    rows: Sequence[RewardRow], options: TrialOptions
) -> Literal["text", "messages"]:
    """The form of completions that the rows ask for: that of their prompts."""
    if options.completions_as != "auto":
        return options.completions_as
    return "messages" if any(row.messages is not None for row in rows) else "text"


def _choose_form_of_completions(trial: TrialInProgress, options: TrialOptions) -> None:
    """Change to the other form of completions where the function raises on that of the rows, and not on the other."""
    scorer, row = trial.scorer, trial.rows[0]
    answer = trial.answers.get(row.number)
    text = answer.text if answer is not None else STAND_IN_ANSWER
    completions = [RowCompletion(row, f"The answer is {text}.")]
    if options.completions_as != "auto" or scorer.score_together(completions) is not None:
        return
    first = scorer.completions_as
    scorer.completions_as = "messages" if first == "text" else "text"
    if scorer.score_together(completions) is None:
        scorer.completions_as = first
        return
    if first == "messages" or any("prompt" in row.columns for row in trial.rows):
        trial.notes.append(
            f"the prompts of the rows make completions of TRL {first}, on which the function fails: it was given"
            f" {scorer.completions_as}"
        )


def _try_all(
    trial: TrialInProgress, loaded: LoadedFunction, choice: ColumnChoice, options: TrialOptions
) -> None:
    """All stages, one after the other. Raises TooManyFailures where one ends the trial."""
    forms = [PLAIN]
    if options.golden is None:
        forms = answer_forms(loaded.texts, options.own_forms, _prompts_of_rows(trial.rows))
    if trial.answers:
        forms = _try_forms_until_paid(trial, forms, loaded)
    else:
        _try_forms_without_answers(trial, forms)
    if trial.paid_forms:
        for row in trial.answered_rows:
            _attack_row(trial, row)
        try_spellings(trial)
        try_answers_after_others(trial)
        try_answers_before_a_comma(trial)
        if options.golden is None:
            # Nobody writes a whole completion behind another one.
            try_answers_after_wrong_ones(trial)
    compare_calls(trial, forms)
    if trial.paid_forms:
        try_parts_of_numbers(trial)
    try_thoughts_over_lines(trial, forms)
    try_completions_after_opened_mark(trial, forms)
    _try_odd_and_long_texts(trial)
    if _may_take_messages_for_texts(trial, loaded):
        _score_as_texts(trial)


def _prompts_of_rows(rows: Sequence[RewardRow]) -> list[str]:
    """The texts of the first rows' prompts, system messages included."""
    texts: list[str] = []
    for row in rows[:FORM_ROWS]:
        texts += [str(one.get("content") or "") for one in row.messages or ()] or [row.prompt]
    return texts


def _try_forms_until_paid(
    trial: TrialInProgress, forms: Sequence[AnswerForm], loaded: LoadedFunction
) -> list[AnswerForm]:
    """Try the forms; where none is paid and completions are parsed as JSON, objects with the keys that are named too.

    Returns:
        All forms that were tried.
    """
    _try_forms(trial, forms)
    if trial.paid_forms:
        return list(forms)
    _find_swallowed_errors(trial, forms)
    if not trial.parses_completions:
        return list(forms)
    names = {form.name for form in forms}
    objects = [form for form in forms_of_named_keys(loaded.texts) if form.name not in names]
    if objects:
        _try_forms(trial, objects)
    return [*forms, *objects]


def _try_forms(trial: TrialInProgress, forms: Sequence[AnswerForm]) -> None:
    """Fill each form with the right and a wrong answer of the first rows, and choose the form that is paid best."""
    rows = trial.answered_rows[:FORM_ROWS]
    scores_by_form = {form.name: _RowScores([], [], []) for form in forms}
    for row in rows:
        answers = (trial.answers[row.number].text, trial.wrong_of(row).first, NO_ANSWER)
        completions = [form.fill(text) for form in forms for text in answers]
        scores = trial.score([RowCompletion(row, text) for text in completions])
        for place, form in enumerate(forms):
            right, wrong, no_answer = scores[3 * place : 3 * place + 3]
            of_form = scores_by_form[form.name]
            of_form.right.append(right)
            of_form.wrong.append(wrong)
            of_form.lowest_wrong.append(_lower(wrong, no_answer))
    first = trial.answers[rows[0].number].text
    for form in forms:
        of_form = scores_by_form[form.name]
        trial.forms.append(_sum_up_form(form, form.fill(first), of_form))
        if trial.forms[-1].paid:
            for row, right, wrong in zip(rows, of_form.right, of_form.lowest_wrong, strict=True):
                _note_right_one(trial, row, form, right, wrong)
    trial.paid_forms = _choose_paid_forms(trial.forms[-len(forms) :], forms)


class _RowScores(NamedTuple):
    """What is scored in one form, a score for each row."""

    right: list[float | None]
    """Of the right answer"""
    wrong: list[float | None]
    """Of a wrong answer"""
    lowest_wrong: list[float | None]
    """Of a wrong answer, or of a text that is no answer, where that gets less"""


def _sum_up_form(form: AnswerForm, example: str, scores: _RowScores) -> FormScores:
    """The scores of all rows in one form."""
    pairs = zip(scores.right, scores.lowest_wrong, strict=True)
    return FormScores(
        form.name,
        example,
        len(scores.right),
        sum(is_above(right, wrong) for right, wrong in pairs),
        _mean(scores.right),
        _mean(scores.lowest_wrong),
        _mean(scores.wrong),
        sum(right is None for right in scores.right),
    )


def _note_right_one(
    trial: TrialInProgress,
    row: RewardRow,
    form: AnswerForm,
    right: float | None,
    wrong: float | None,
) -> None:
    """Keep what the right answer of a row gets in a form, beside a wrong one, for the comparison with verifiers."""
    text = trial.answers[row.number].text
    trial.right_ones.append(
        ComparedCompletion(
            "right", form.name, row.number, text, form.fill(text), right, is_above(right, wrong)
        )
    )


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
    if _holds_any(forms[best].before, MARKS_FOR_MACHINES):
        return [forms[best]]
    marked = [place for place in paid if _holds_any(forms[place].before, USUAL_MARKS)]
    equal = [place for place in marked if is_at_least(scores[place].right, scores[best].right)]
    return [forms[best], *(forms[place] for place in equal[:1])]


def _holds_any(text: str, marks: Iterable[str]) -> bool:
    """Is one of these marks in a text?"""
    return any(mark in text for mark in marks)


def _try_forms_without_answers(trial: TrialInProgress, forms: Sequence[AnswerForm]) -> None:
    """For a function that takes no reference: score each form, filled and hollow."""
    row = trial.rows[0]
    texts = [text for form in forms for text in (form.fill(STAND_IN_ANSWER), form.fill(""))]
    scores = trial.score([RowCompletion(row, text) for text in texts])
    for place, form in enumerate(forms):
        filled, hollow = scores[2 * place], scores[2 * place + 1]
        trial.forms.append(
            FormScores(
                form.name,
                texts[2 * place],
                rows=1,
                paid=0,
                right=filled,
                wrong=None,
                hollow=hollow,
                empty=texts[2 * place + 1],
            )
        )
    # Scores of length differ for texts of other lengths alone.
    trial.score([RowCompletion(row, text) for text in TEXTS_OF_EACH_LENGTH])
    best = max(trial.forms, key=lambda one: -1e300 if one.right is None else one.right)
    repeated = "\n".join([best.example] * REPEATS)
    once, often = trial.score([RowCompletion(row, best.example), RowCompletion(row, repeated)])
    trial.tried.append(
        TriedCompletion(
            "repeated", f"{best.name} {REPEATS} times", row.number, "", repeated, often, once
        )
    )
    half = "\n".join([best.example] * (REPEATS // 2))
    texts = [half, " ".join(SENTENCES), *(" ".join([one] * len(SENTENCES)) for one in SENTENCES)]
    of_half, different, *same = trial.score([RowCompletion(row, text) for text in texts])
    trial.repetition = RepetitionScores(once, of_half, often, different, tuple(same))


def _attack_row(trial: TrialInProgress, row: RewardRow) -> None:
    """Score what should score low beside the right answer of a row, in one call for each paid form."""
    for place, form in enumerate(trial.paid_forms):
        _attack_row_in_form(trial, row, form, is_best_form=place == 0)


class ScoresOfForm(NamedTuple):
    """What the answers of a row get in one form."""

    right: float | None
    wrong: float | None
    """The higher of two"""
    attacks: list[tuple[Attack, float | None]]


def _note_unpaid_reference(
    trial: TrialInProgress, row: RewardRow, form: AnswerForm, scores: ScoresOfForm
) -> None:
    """Note a row whose right answer gets no more than a wrong one."""
    answer = trial.answers[row.number]
    empty = _highest(score for attack, score in scores.attacks if attack.kind == "empty")
    trial.unpaid.append(
        UnpaidReference(
            row.number,
            answer.reference,
            form.fill(answer.text),
            scores.right,
            scores.wrong,
            empty,
            is_one_of_several_paid=_is_one_of_several_paid(trial, row, form, scores.wrong),
        )
    )


def _scored_program_that_ends_early(
    trial: TrialInProgress, row: RewardRow, form: AnswerForm
) -> list[tuple[Attack, float | None]]:
    """The program that ends before its tests, with what it gets; empty for answers that are no program."""
    early = program_that_ends_early(form, trial.answers[row.number])
    if early is None:
        return []
    # In a call of its own: where the program runs in the function's process, it ends the call.
    (of_early,) = trial.score([RowCompletion(row, early.completion)])
    return [(early, of_early)]


def _attack_row_in_form(
    trial: TrialInProgress, row: RewardRow, form: AnswerForm, *, is_best_form: bool
) -> None:
    """Score the right answer of a row, wrong ones and all attacks in one form, and note what they get."""
    answer, wrong = trial.answers[row.number], trial.wrong_of(row)
    attacks = list(attacks_on_answer(form, answer, wrong, row.prompt))
    if not trial.reads_columns:
        attacks = _attacks_on_text_alone(attacks)
    right_text = form.fill(answer.text)
    texts = [right_text, form.fill(wrong.first), form.fill(NO_ANSWER)]
    texts += [attack.completion for attack in attacks]
    right, first_wrong, no_answer, *attack_scores = trial.score(
        [RowCompletion(row, text) for text in texts]
    )
    of_wrong = _lower(first_wrong, no_answer)
    scored_attacks = list(zip(attacks, attack_scores, strict=True))
    if is_best_form:
        trial.right_rows += 1
        trial.skipped += right is None
        _note_right_one(trial, row, form, right, of_wrong)
    if not is_above(right, of_wrong):
        if is_best_form:
            scores = ScoresOfForm(right, of_wrong, scored_attacks)
            _note_unpaid_reference(trial, row, form, scores)
        # A row whose right answer is not paid says nothing about what else is.
        return
    trial.usual_wrong = _highest((trial.usual_wrong, of_wrong))
    # A function of the text alone pays a block of Python, whatever it does.
    if is_best_form and trial.reads_columns:
        scored_attacks += _scored_program_that_ends_early(trial, row, form)
    # Some attacks are the right answer itself: "not" of an answer that begins with it, a list of one.
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
        for attack, score in scored_attacks
        if attack.completion != right_text
    ]


def _is_one_of_several_paid(
    trial: TrialInProgress, row: RewardRow, form: AnswerForm, of_wrong: float | None
) -> bool:
    """Does a reference name several right answers (`Vienna|Wien`), of which one alone is paid?"""
    names = several_right_answers(trial.answers[row.number].text)
    if not names:
        return False
    scores = trial.score([RowCompletion(row, form.fill(name)) for name in names])
    return any(is_above(score, of_wrong) for score in scores)


def _attacks_on_text_alone(attacks: Iterable[Attack]) -> list[Attack]:
    """The attacks that no function should pay: one of the text alone can't know which answer is right."""
    return [attack for attack in attacks if attack.kind in TEXT_KINDS]


def _find_swallowed_errors(trial: TrialInProgress, forms: Sequence[AnswerForm]) -> None:
    """Where nothing is paid: note the exceptions that the function catches itself on a right answer.

    It parses completions where its parser fails on a text that is not of the parser's language, and on none that is.
    """
    row = trial.answered_rows[0]
    scorer = trial.scorer
    of_texts: list[set[str]] = []
    for text in (NO_ANSWER, *DOCUMENTS):
        scorer.swallowed.clear()
        scorer.score([RowCompletion(row, text)], traced=True)
        of_texts.append(set(scorer.swallowed))
    prose, documents = of_texts[0], of_texts[1:]
    trial.parses_completions = any(
        error.startswith(PARSE_ERRORS) and any(not _fails_alike(error, one) for one in documents)
        for error in prose
    )
    answer = trial.answers[row.number].text
    scorer.swallowed.clear()
    scorer.score([RowCompletion(row, form.fill(answer)) for form in forms], traced=True)


def _fails_alike(error: str, others: Iterable[str]) -> bool:
    """Is an exception of the same kind and line among others?"""
    kind, line = error.partition(":")[0], error.rpartition(" (")[2]
    return any(one.startswith(kind) and one.endswith(line) for one in others)


def _try_odd_and_long_texts(trial: TrialInProgress) -> None:
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


def _may_take_messages_for_texts(trial: TrialInProgress, loaded: LoadedFunction) -> bool:
    """Does it give one score for all messages, where the number of messages can't be what it counts?

    The length of a list of messages is a number of turns: a function of trainings with tools may mean that.
    """
    if trial.scorer.completions_as != "messages" or len(trial.seen_scores) != 1:
        return False
    names = (trial.scorer.process.target.function, *loaded.parameters)
    words = {word for name in names for word in re.split(r"[\W_]+", name.lower())}
    return not words & TURN_WORDS and "tools" not in trial.scorer.columns


def _score_as_texts(trial: TrialInProgress) -> None:
    """Score completions as texts that were scored as messages: one that takes a list for a text tells them apart.

    One that reads `completion[0]["content"]` raises on a text, and one that takes both gives what it gave.
    """
    scorer, row = trial.scorer, trial.rows[0]
    texts = [*(form.example for form in trial.forms), *ODD_TEXTS, *TEXTS_OF_EACH_LENGTH]
    completions = [RowCompletion(row, text) for text in dict.fromkeys(texts)]
    scorer.completions_as = "text"
    before = scorer.process.completions
    try:
        scores = scorer.score_together(completions)
    finally:
        scorer.completions_as = "messages"
        trial.scored_as_texts = scorer.process.completions - before
    trial.scores_as_texts.update(scores or ())


def _lower(one: float | None, other: float | None) -> float | None:
    """The lower of two scores; None where one is None."""
    return None if one is None or other is None else min(one, other)


def _highest(scores: Iterable[float | None]) -> float | None:
    """The highest of the scores that there are; None of none."""
    return max((score for score in scores if score is not None), default=None)


def _mean(scores: Sequence[float | None]) -> float | None:
    """The mean of the scores that there are; None of none."""
    known = [score for score in scores if score is not None]
    return sum(known) / len(known) if known else None


def _dependence(trial: TrialInProgress) -> Dependence:
    """What the scores depend on."""
    if not trial.scorer.succeeded:
        return "unknown"
    if trial.paid_forms:
        return "answer"
    return "form" if len(trial.seen_scores) > 1 else "nothing"


def _own_errors(trial: TrialInProgress, accesses: Sequence[Access]) -> tuple[RaisedError, ...]:
    """The exceptions that are the function's own, and not of what was kept from it here."""
    if any(access.kind == "network" for access in accesses):
        return ()
    refused = ("PermissionError", "OSError: [Errno 30]")
    return tuple(one for one in trial.scorer.raised if not one.error.startswith(refused))


def _is_column_unread(loaded: LoadedFunction, column: str) -> bool:
    """Does the code of the function never read a column, by its name or within `**kwargs`?"""
    return column in loaded.unused or (
        "**" in loaded.unused and bool(column) and column not in loaded.parameters
    )


def _result(
    target: RewardTarget,
    trial: TrialInProgress,
    loaded: LoadedFunction,
    choice: ColumnChoice,
    accesses: tuple[Access, ...],
    comparisons: tuple[VerifierComparison, ...],
    options: TrialOptions,
) -> RewardTrial:
    """All that was found, as the rules read it."""
    scorer, process = trial.scorer, trial.scorer.process
    depends_on = _dependence(trial)
    constant = next(iter(trial.seen_scores)) if len(trial.seen_scores) == 1 else None
    uses_network = any(access.kind == "network" for access in accesses)
    # verl hands over four arguments by name, and no further columns.
    by_trl = not loaded.is_of_verl and not loaded.is_of_openrlhf
    arguments = {*GIVEN_BY_TRL, *scorer.columns} - {"environments"} if by_trl else set()
    return RewardTrial(
        name=str(target),
        rows=len(trial.rows),
        calls=process.calls,
        completions=process.completions - trial.scored_as_texts,
        depends_on=depends_on,
        reference_column=options.golden or choice.reference,
        is_reference_unread=_is_column_unread(loaded, choice.reference),
        has_golden_completions=options.golden is not None,
        parses_completions=trial.parses_completions,
        reference_problem=choice.problem if not trial.answers else "",
        has_short_answers=all(one.is_short for one in trial.answers.values()),
        other_columns=choice.others,
        completions_as=scorer.completions_as,
        given_arguments=len(arguments),
        missing_arguments=(
            () if loaded.takes_any else tuple(sorted(arguments - set(loaded.parameters)))
        ),
        forms=tuple(trial.forms),
        best_form=trial.paid_forms[0].name if trial.paid_forms else "",
        spellings=tuple(trial.spellings),
        after_others=trial.after_others,
        after_wrong_ones=trial.after_wrong_ones,
        thoughts_over_lines=trial.thoughts_over_lines,
        after_opened_mark=trial.after_opened_mark,
        numbers_read_in_part=trial.numbers_read_in_part,
        mixed_spellings=tuple(sorted(spellings_of_references(trial.answers.values()))),
        repetition=trial.repetition,
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
        highest=_highest(trial.seen_scores),
        constant=constant,
        different_scores_as_texts=len(trial.scores_as_texts),
        compared=trial.compared,
        changed=tuple(trial.changed),
        accesses=accesses,
        comparisons=comparisons,
        notes=tuple(trial.notes),
    )
