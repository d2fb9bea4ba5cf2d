"""The answers of a model on a terminal: a table with verdicts, side by side where two models were asked.

The sentence at the end says first how many answers are right, where that can be told, and then how many have a good
form: an answer that stops by itself may still be wrong. Without -v a row has two lines, so that fifty answers can
be skimmed; with it each is printed whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from truetune.evaluation.compare_model_answers import ComparedFigure, SampleComparison
from truetune.evaluation.sample_report import SampleReport, Success
from truetune.generation.answer_samples import Prompt, Sample, Scores
from truetune.generation.answer_verdicts import (
    GOOD_VERDICTS,
    VERDICT_PHRASES,
    answer_faults,
    is_good_answer,
    main_verdict,
)
from truetune.report.draw_what_each_kind_of_report_adds import draw_details_by_kind
from truetune.report.terminal_output import borderless_table, print_visible, shorten_to_one_line
from truetune.report.visible_text import count_noun, escape_invisible_characters

MAX_QUESTION_CHARACTERS, OTHER_COLUMNS_CELLS, MAX_BAR_CHARACTERS = 60, 50, 40
"""Characters of a question that are shown; those of a line that the other columns take; those beside the bar"""
# Rows of two lines that fit a tall terminal together with the findings; hundreds of rows scroll the findings away. At
# half, the twenty answers that `truetune sample` asks for by default would be cut.
MAX_TABLE_ROWS = 24
UNLIKE = 0.5
"""Overlap of words below which an answer of a good form is told to be another text than its reference"""
FORM_STYLES: dict[bool | None, str] = {True: "", False: "bold red", None: "yellow"}
"""Of an answer's form; green is left to answers that were compared with a reference or read by a parser, and agree"""


@draw_details_by_kind.register
def draw_answers(report: SampleReport, console: Console, verbose: bool) -> None:
    """The sampling passes of a run, the answers, the comparison, and how many are good."""
    # One look is the answers below; several are a run that was watched, whose course is a
    # table.
    if len(report.looks) > 1:
        console.print(_sampling_pass_table(report))
        console.print()
    if verbose:
        for sample in report.samples:
            _print_whole_answer(sample, report, console)
    elif report.compared is None:
        console.print(_answer_table(report, console.width))
        left_out = len(report.samples) - MAX_TABLE_ROWS
        if left_out > 0:
            console.print(
                f"... and {left_out:,} more (-v draws each, --html FILE shows all)", style="dim"
            )
        console.print()
    if report.compared is not None:
        _print_comparison(report, report.compared, console)
    for prompt in report.unanswered:
        question = shorten_to_one_line(prompt.question, MAX_QUESTION_CHARACTERS)
        print_visible(console, f"no answer: {_row_address(prompt, report)} {question}", "yellow")
    for note in report.notes:
        print_visible(console, f"note: {note}", "dim")
    print_visible(console, describe_success(report), "bold")
    if report.too_few:
        print_visible(
            console,
            f"the interval is below the {report.min_success:.0%} of --min-success",
            "bold red",
        )


def describe_success(report: SampleReport) -> str:
    """How many answers are right where that can be told, and how many have a good form, with what the others are."""
    # Verdicts that are no fault are left out of the list of what is wrong.
    others = Counter({name: n for name, n in report.verdicts.items() if name not in GOOD_VERDICTS})
    # Answers of a file may come without a sign of how they ended: then "stop by themselves"
    # can't be said of them.
    ends_known = any(sample.scores.end_known for sample in report.samples)
    fine = _describe_good_form(report, ends_known=ends_known)
    form = "no answer could be judged"
    if report.success.of:
        form = f"{_format_success_rate(report.success)} {fine}"
    if others:
        form += ": " + ", ".join(
            f"{VERDICT_PHRASES[name]} {count}" for name, count in others.most_common()
        )
    parts = [*_describe_correctness(report), form]
    if report.stop_probability is not None:
        parts.append(f"median P(stop) after the reference {report.stop_probability:.2g}")
    return "; ".join(parts)


def _describe_good_form(report: SampleReport, *, ends_known: bool) -> str:
    """What is said of the answers whose form is good, chosen so that it is no all-clear where most
    are wrong.
    """
    # An all-clear beside an error on most answers is read first.
    if _has_error_finding_on_most_answers(report):
        return "show no other fault than the error above"
    # "Without a fault" over answers of which most are wrong reads as an all-clear.
    if _are_most_judged_answers_wrong(report) or _most_neither_equal_nor_give_reference(report):
        unknown = "" if ends_known else " (how they ended is not known)"
        return f"have a sound form{unknown}, which says nothing of whether they are right"
    if ends_known:
        return "stop by themselves without a fault"
    return "show no sign of a fault in their text (how they ended is not known)"


def _has_error_finding_on_most_answers(report: SampleReport) -> bool:
    """Is there an error on more than half of the answers?"""
    return any(
        one.severity == "error" and one.count and one.total and 2 * one.count > one.total
        for one in report.findings
    )


def _are_most_judged_answers_wrong(report: SampleReport) -> bool:
    """Are more than half of the answers wrong, of those whose correctness is known?"""
    told = [
        score.gives if score.agrees is None else score.agrees
        for score in (sample.scores for sample in report.samples)
    ]
    known = [is_right for is_right in told if is_right is not None]
    return 2 * sum(known) < len(known)


def _neither_equals_nor_gives_reference(scores: Scores) -> bool:
    """Is an answer another text than its reference, which it does not give in its own words either?"""
    return scores.exact is False and not scores.agrees and not scores.gives


def _most_neither_equal_nor_give_reference(report: SampleReport) -> bool:
    """Have most answers another text than their reference, without giving it in their own words?

    Free texts may be right all the same: that they are is not said, and no more than their form is judged.
    """
    compared = [one.scores for one in report.samples if one.scores.exact is not None]
    return 2 * sum(map(_neither_equals_nor_gives_reference, compared)) > len(compared)


def _describe_correctness(report: SampleReport) -> Iterator[str]:
    """Sentences on how many answers are right, and how many equal their reference."""
    scores = [sample.scores for sample in report.samples]
    agreements = [score.agrees for score in scores if score.agrees is not None]
    if agreements:
        right, count = sum(agreements), len(agreements)
        yield f"{right} of {count} ({right / count:.0%}) are right, as the parser reads them"
    compared = [score for score in scores if score.overlap is not None]
    if not compared:
        return
    exact = sum(score.exact is True for score in compared)
    overlap = sum(score.overlap or 0.0 for score in compared) / len(compared)
    giving = "" if agreements else _describe_reference_in_own_words(scores, exact)
    yield (
        f"{giving}{exact} of {len(compared)} are the reference, word for word,"
        f" overlap {overlap:.2f}"
    )


def _describe_reference_in_own_words(scores: Sequence[Scores], exact: int) -> str:
    """How many answers give their reference in their own words; empty where that is not known, or is
    as many as are the reference word for word.
    """
    gives = [score.gives for score in scores if score.gives is not None]
    if not gives or sum(gives) == exact:
        return ""
    return f"{sum(gives)} of {len(gives)} give their reference, "


def _answer_table(report: SampleReport, width: int) -> Table:
    """A table of the answers: row, verdict, question and answer, and P(stop) where it was measured."""
    table = _new_table("row", "verdict", "question", "answer")
    if report.stop_probability is not None:
        table.add_column("P(stop)", justify="right", no_wrap=True)
    # 50 cells at least: in a narrower terminal rich folds the columns, which is still better
    # than two words a line.
    room = max(50, width - OTHER_COLUMNS_CELLS)
    codes = _first_finding_code_by_line(report)
    for sample in report.samples[:MAX_TABLE_ROWS]:
        probability = sample.answer.stop_probability
        texts = [
            shorten_to_one_line(sample.prompt.question, room // 2),
            shorten_to_one_line(sample.answer.text, room * 2 // 3),
        ]
        if report.stop_probability is not None:
            texts.append("" if probability is None else f"{probability:.2g}")
        table.add_row(
            _row_address(sample.prompt, report),
            _verdict_or_citing_code(sample, report, codes),
            *texts,
        )
    return table


def _print_comparison(report: SampleReport, comparison: SampleComparison, console: Console) -> None:
    """Print the answers of two models side by side, pair by pair, then the table of figures."""
    names = [
        _short_model_name(name, other)
        for name, other in ((report.name, comparison.name), (comparison.name, report.name))
    ]
    for pair in comparison.pairs:
        prompt = pair.mine.prompt
        print_visible(
            console,
            Text.assemble(
                (_row_address(prompt, report), "bold"),
                f" {shorten_to_one_line(prompt.question, console.width - 20)}",
            ),
        )
        table = Table(
            box=None, pad_edge=False, padding=(0, 2, 0, 2), show_header=False, expand=True
        )
        for _ in names:
            table.add_column(ratio=1, overflow="fold")
        sides = (pair.mine, pair.other)
        table.add_row(
            *(
                Text.assemble((f"{name}: ", "dim"), _coloured_verdict(side, report.limit))
                for name, side in zip(names, sides, strict=True)
            )
        )
        table.add_row(*(shorten_to_one_line(side.answer.text, console.width) for side in sides))
        console.print(table)
        console.print(
            Padding(
                Text(escape_invisible_characters("; ".join(pair.words)), style="cyan"), (0, 0, 0, 2)
            )
        )
    console.print()
    console.print(_comparison_table(comparison, names))
    for row in comparison.figures:
        if row.only is not None and any(row.only):
            print_visible(
                console,
                f"{row.name}: {row.only[0]} only now, {row.only[1]} only before (McNemar's exact"
                " test)",
            )
    print_visible(
        console,
        f"{comparison.equal_answer_count} of {count_noun(len(comparison.pairs), 'answer')} the same, token by token",
    )
    for note in comparison.notes:
        print_visible(console, f"note: {note}", "dim")
    console.print()


def _comparison_table(comparison: SampleComparison, names: Sequence[str]) -> Table:
    """A table with a line for each figure: both models, the change with its interval, and p."""
    table = _new_table("")
    for name in (*names, "change", "95 %", "p"):
        table.add_column(name, justify="right", overflow="fold")
    for row in comparison.figures:
        if row.mine is None or row.other is None:
            table.add_row(row.name, "-", "-", "", "", "")
            continue
        change, low, high = (
            _format_compared_figure(row, value, "+")
            for value in (row.mine - row.other, row.low, row.high)
        )
        between = f"{low} to {high}" if row.low is not None and row.high is not None else ""
        p = "" if row.p is None else f"{row.p:.2g}"
        table.add_row(
            row.name,
            _format_compared_figure(row, row.mine),
            _format_compared_figure(row, row.other),
            change,
            between,
            p,
        )
    return table


def _short_model_name(name: str, other_name: str) -> str:
    """The last part of a model's path; the whole path where the other model's ends alike."""
    # Two checkpoints of one run have the same last part; then the paths are printed whole.
    short = [PurePath(path).name for path in (name, other_name)]
    return escape_invisible_characters(name if short[0] == short[1] else short[0])


def _sampling_pass_table(report: SampleReport) -> Table:
    """A table with a line for each step at which the run was sampled."""
    table = _new_table("step")
    for name in ("well-formed", "95 %", "stop", "overlap"):
        table.add_column(name, justify="right")
    for look in report.looks:
        success = Success.of_pass(look, report.limit)
        known_ends = [sample.scores.stopped for sample in look.samples if sample.scores.end_known]
        stopped = f"{sum(known_ends)} of {len(known_ends)}" if known_ends else ""
        known = [s.scores.overlap for s in look.samples if s.scores.overlap is not None]
        table.add_row(
            f"{look.step:,}",
            f"{success.good} of {success.of}",
            _format_success_interval(success),
            stopped,
            f"{sum(known) / len(known):.2f}" if known else "",
        )
    return table


def _print_whole_answer(sample: Sample, report: SampleReport, console: Console) -> None:
    """Print one answer in full: its verdict, the question, the answer and the reference."""
    named_faults = answer_faults(sample, report.limit)
    more = (
        f" ({', '.join(VERDICT_PHRASES[fault] for fault in named_faults[1:])} too)"
        if len(named_faults) > 1
        else ""
    )
    print_visible(
        console,
        Text.assemble(
            (_row_address(sample.prompt, report), "bold"),
            " ",
            _coloured_verdict(sample, report.limit),
            more,
        ),
    )
    for name, text in (
        ("asked", sample.prompt.question),
        ("says", sample.answer.text),
        ("reference", sample.prompt.reference),
    ):
        lines = [escape_invisible_characters(line) for line in text.split("\n")] or [""]
        print_visible(
            console, Text.assemble((f"{name:>9} | ", "blue"), f"\n{'':>9} | ".join(lines))
        )
    console.print()


def _new_table(*names: str) -> Table:
    """An empty table whose cells fold instead of being cut."""
    table = borderless_table()
    for name in names:
        table.add_column(name, overflow="fold")
    return table


def _first_finding_code_by_line(report: SampleReport) -> dict[tuple[str | None, int], str]:
    """(file, line) of an answer -> code of the first finding, a warning at least, that cites it."""
    codes: dict[tuple[str | None, int], str] = {}
    for finding in report.findings:
        if finding.severity == "info":
            continue
        for case in finding.cases:
            if case.line is not None:
                codes.setdefault((case.file, case.line), finding.code)
    return codes


def _verdict_or_citing_code(
    sample: Sample, report: SampleReport, codes: dict[tuple[str | None, int], str]
) -> Text:
    """The verdict of an answer for the table; `see CODE` where its form is sound but a finding
    cites it.
    """
    code = codes.get((sample.prompt.file, sample.prompt.line))
    if code is not None and main_verdict(sample, report.limit) == "sound":
        return Text(f"see {code}", style="yellow")
    return _coloured_verdict(sample, report.limit)


def _coloured_verdict(sample: Sample, limit: int) -> Text:
    """The verdict of an answer in its colour: green for right, red for a fault, yellow for not judged."""
    is_good = is_good_answer(sample, limit)
    # Green is given to what was compared and agrees; a good form alone is no praise.
    scores = sample.scores
    gives = scores.agrees is None and scores.gives is True
    right = is_good and (scores.exact is True or scores.agrees is True or gives)
    overlap = sample.scores.overlap
    if is_good and not right and overlap is not None and overlap < UNLIKE:
        return Text("unlike reference", style="yellow")
    verdict = main_verdict(sample, limit)
    # "No fault" beside a reference that says something else reads as "right".
    said = (
        "sound form"
        if verdict == "sound" and _neither_equals_nor_gives_reference(scores)
        else VERDICT_PHRASES[verdict]
    )
    return Text(
        said,
        style="green" if right else FORM_STYLES[is_good],
    )


def _format_compared_figure(row: ComparedFigure, value: float | None, sign: str = "") -> str:
    """A figure in the format of its kind: a share in per cent, a count of tokens, or a number;
    `sign` is "+" of changes.
    """
    if value is None:
        return ""
    # Losses and likelihoods go down to 1e-5, where two decimals would show nothing but zeros.
    shape = {"share": ".0%", "tokens": ",.0f"}.get(
        row.shape, ".2f" if abs(value) >= 0.01 or not value else ".1e"
    )
    return format(value, sign + shape)


def _format_success_rate(success: Success) -> str:
    """How many are good, with the confidence interval: `4 of 6 (95 %: 30 to 90 %)`"""
    return f"{success.good} of {success.of} (95 %: {_format_success_interval(success)})"


def _format_success_interval(success: Success) -> str:
    """The confidence interval of a success rate in per cent: `30 to 90 %`"""
    return f"{100 * success.low:.0f} to {100 * success.high:.0f} %"


def _row_address(prompt: Prompt, report: SampleReport) -> str:
    """Where a prompt's row is: file:line; where all rows are on one line, the number of the row."""
    # In a JSON list on one line all rows are "line 1": their numbers tell them apart.
    alike = sum(
        (sample.prompt.file, sample.prompt.line) == (prompt.file, prompt.line)
        for sample in report.samples
    )
    place = f" row {prompt.row}" if alike > 1 and prompt.row >= 0 else f":{prompt.line}"
    return escape_invisible_characters(PurePath(prompt.file).name + place)
