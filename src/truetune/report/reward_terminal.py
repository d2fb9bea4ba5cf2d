"""What `truetune reward` tried, on a terminal: which forms of an answer are paid, and what else is.

Two tables, for a reader asks two things: what does the function accept, and what can be had for nothing. Forms that get
the same are one line, since most functions pay one form and refuse thirty. Where a verifier of mathematics is
installed, a third one shows where it and the function differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from truetune.checks.reward.cases_of_scored_completions import format_reward, quote_completion
from truetune.generation.reward_trial import AttackKind, FormScores, RewardTrial
from truetune.generation.verifier_comparison import (
    ComparedCompletion,
    ComparedKind,
    VerifierComparison,
)
from truetune.report.draw_what_each_kind_of_report_adds import draw_details_by_kind
from truetune.report.terminal_output import borderless_table
from truetune.report.visible_text import count_noun, escape_invisible_characters
from truetune.rewards.reward_report import RewardReport

SHOWN_FORMS = 12
"""Forms that are paid, one a line, without -v"""
SHOWN_NAMES = 4
"""Names of forms that are not paid, in one line"""
KINDS: dict[AttackKind, str] = {
    "empty": "nothing",
    "wrong": "wrong answers",
    "part": "parts of the answer, and what holds it",
    "near miss": "another sign, spaces between digits",
    "candidates": "all answers at once",
    "prompt": "the prompt",
    "thoughts": "a wrong answer after the right one in thoughts",
    "taken back": "the right answer, taken back",
    "thoughts alone": "the right answer in thoughts alone",
    "repeated": "the right answer 20 times",
    "early exit": "a program that ends before its tests",
    "reversed words": "its words in reverse order",
    "bag of words": "its words among 20 others, by the alphabet",
}
"""What was tried, for a reader"""
COMPARED_KINDS: dict[ComparedKind, str] = {
    "right": "right answers, in forms that it pays",
    "spelling": "right answers in other spellings",
    "empty": KINDS["empty"],
    "wrong": KINDS["wrong"],
    "part": KINDS["part"],
    "near miss": KINDS["near miss"],
    "candidates": KINDS["candidates"],
    "prompt": KINDS["prompt"],
    "thoughts": KINDS["thoughts"],
    "taken back": KINDS["taken back"],
}
"""What was compared with a verifier, for a reader"""
DEPENDENCE = {
    "answer": "scores depend on the right answer",
    "form": "scores depend on the text alone",
    "nothing": "all completions get the same",
    "unknown": "no completion got a score",
}


@draw_details_by_kind.register
def _draw_reward(report: RewardReport, console: Console, verbose: bool) -> None:
    """Draw what was tried, the forms that are paid, and what else is."""
    trial = report.trial
    console.print(Text(f"{trial.name}: {summary_of_trial(trial)}"), soft_wrap=True)
    console.print()
    _draw_forms(trial, console, verbose)
    _draw_attacks(trial, console)
    for comparison in trial.comparisons:
        _draw_comparison(comparison, console)
    for note in trial.notes:
        console.print(
            Text(escape_invisible_characters(f"note: {note}"), style="dim"), soft_wrap=True
        )
    console.print()


def summary_of_trial(trial: RewardTrial) -> str:
    """What was tried, and what the scores depend on."""
    return (
        f"{count_noun(trial.completions, 'completion')} of {count_noun(trial.rows, 'row')} in"
        f" {count_noun(trial.calls, 'call')}, as {trial.completions_as}; {DEPENDENCE[trial.depends_on]}"
    )


def _draw_forms(trial: RewardTrial, console: Console, verbose: bool) -> None:
    """Draw the forms of a right answer and what they get."""
    if not trial.forms:
        return
    headings = ["form of the right answer", "gets"]
    if trial.reference_column:
        headings += ["a wrong one", "paid in"]
    table = _table(*headings)
    paid = [
        form for form in trial.forms if form.paid or (not trial.reference_column and form.right)
    ]
    shown = trial.forms if verbose else paid[:SHOWN_FORMS]
    for form in shown:
        _add_forms(table, escape_invisible_characters(form.name), [form], trial)
    rest = [form for form in trial.forms if form not in shown]
    if rest:
        _add_forms(table, _names_of_rest(rest), rest, trial)
    console.print(table)
    console.print()


def _add_forms(table: Table, name: str, forms: Sequence[FormScores], trial: RewardTrial) -> None:
    """Add a line on one form, or on several that are not paid."""
    cells: list[Text | str] = [Text(name), _range_of_scores([form.right for form in forms])]
    if trial.reference_column:
        # A text that can't be read may get less than another answer: both are wrong ones.
        wrongs = [score for form in forms for score in (form.wrong, form.other)]
        cells += [_range_of_scores(wrongs), _rows_paid(forms)]
    table.add_row(*cells)


def _rows_paid(forms: Sequence[FormScores]) -> str:
    """How many right answers are paid, and how many get None: those rows are left to other functions."""
    paid, rows = sum(form.paid for form in forms), sum(form.rows for form in forms)
    skipped = sum(form.skipped for form in forms)
    none = f", {skipped} get{'s' if skipped == 1 else ''} None" if skipped else ""
    return f"{paid} of {rows} rows{none}"


def _table(*headings: str) -> Table:
    """A table with these headings."""
    table = borderless_table()
    for heading in headings:
        table.add_column(heading)
    return table


def _names_of_rest(forms: Sequence[FormScores]) -> str:
    """The names of the first forms, and how many there are more."""
    names = ", ".join(escape_invisible_characters(form.name) for form in forms[:SHOWN_NAMES])
    more = len(forms) - SHOWN_NAMES
    return names if more <= 0 else f"{names} and {more} more"


def _range_of_scores(scores: Sequence[float | None]) -> str:
    """The lowest and the highest of some scores."""
    known = [score for score in scores if score is not None]
    if not known:
        return format_reward(None)
    low, high = format_reward(min(known)), format_reward(max(known))
    return low if low == high else f"{low} to {high}"


def _draw_attacks(trial: RewardTrial, console: Console) -> None:
    """Draw how many of the completions of each kind are paid as the right answer."""
    lines = list(attack_lines(trial))
    if not lines:
        return
    table = _table("instead of the right answer", "paid as it")
    for name, paid, of in lines:
        style = "bold red" if paid else ""
        table.add_row(name, Text(f"{paid:,} of {of:,}", style=style))
    console.print(table)


def attack_lines(trial: RewardTrial) -> Iterator[tuple[str, int, int]]:
    """(what, how many are paid, of how many) of each kind of completion that was tried beside right answers."""
    if trial.depends_on != "answer":
        return
    for kind, name in KINDS.items():
        tried_completions = trial.tried_of_kinds(kind)
        # A right answer may well be paid where it is said twice: only more than once is a fault.
        if tried_completions and kind != "repeated":
            yield name, sum(one.is_paid for one in tried_completions), len(tried_completions)


def agreement_with_verifier(comparison: VerifierComparison) -> str:
    """`agrees with math-verify on 1,120 of 1,153 completions`, or why that is not known."""
    name = f"{comparison.verifier} {comparison.version}".strip()
    if not comparison.compared:
        return f"not compared with {name}: {comparison.problem}"
    text = f"agrees with {name} on {comparison.agreed:,} of {count_noun(comparison.compared, 'completion')}"
    if comparison.without_verdict:
        text += f"; it gives no verdict on {comparison.without_verdict:,} more"
    if comparison.not_compared:
        text += f"; {comparison.not_compared:,} more were not compared: {comparison.problem}"
    return text


def _draw_comparison(comparison: VerifierComparison, console: Console) -> None:
    """Draw where the function and a verifier differ, by kind of completion, and who is right."""
    console.print()
    console.print(Text(escape_invisible_characters(agreement_with_verifier(comparison))))
    if not comparison.differences:
        return
    verifier = comparison.verifier
    table = _table("what was tried", "paid by the function alone", f"by {verifier} alone")
    by_kind = {one.kind: one for one in comparison.kinds}
    for kind, name in COMPARED_KINDS.items():
        counts = by_kind.get(kind)
        if counts is not None and counts.function_alone + counts.verifier_alone:
            table.add_row(
                name,
                f"{counts.function_alone:,} of {counts.compared:,}",
                f"{counts.verifier_alone:,} of {counts.compared:,}",
            )
    console.print(table)
    for line in _lines_on_differences(comparison):
        console.print(Text(escape_invisible_characters(line)))


def _lines_on_differences(comparison: VerifierComparison) -> Iterator[str]:
    """Who is right where both differ, by how the completions were made, and the shortest example of each direction."""
    verifier = comparison.verifier
    right, of = comparison.function_is_right, len(comparison.differences)
    yield (
        f"of {count_noun(of, 'difference')} the function is right in {right:,} and {verifier} in {of - right:,}, by how"
        " the completions were made"
    )
    for payer, example in (
        ("the function", comparison.first_of_function_alone),
        (verifier, comparison.first_of_verifier_alone),
    ):
        if example is not None:
            yield f"{payer} alone pays: {_describe_difference(example, verifier)}"


def _describe_difference(one: ComparedCompletion, verifier: str) -> str:
    """A completion that one of both pays, and who is right."""
    made = "made to be right" if one.is_right else "made to be wrong"
    who = "the function" if one.is_judged_right_by_function else verifier
    return (
        f"row {one.row}, {one.what}: {quote_completion(one.completion)} gets {format_reward(one.score)}, where"
        f" {quote_completion(one.reference)} is right; {made}, so {who} is right"
    )
