"""The answers of a model on a terminal: a table with verdicts, side by side where two models were asked."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePath

from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from truetune.evaluation.compare import Compared, Row
from truetune.evaluation.report import SampleReport, Success
from truetune.generation.answer_samples import Prompt, Sample
from truetune.generation.answer_verdicts import (
    GOOD_VERDICTS,
    VERDICT_PHRASES,
    answer_faults,
    good,
    main_verdict,
)
from truetune.report.draw_by_kind import draw_more
from truetune.report.text import many, visible

QUESTION, TAKEN, SHOWN = 60, 50, 40
"""Characters of a question that are shown; those of a line that the other columns take; those beside the bar"""
STYLES: dict[bool | None, str] = {True: "", False: "bold red", None: "yellow"}
"""Of an answer's form; green is left to answers that were compared with a reference or read by a parser, and agree"""


@draw_more.register
def draw(report: SampleReport, console: Console, verbose: bool) -> None:
    """The looks of a run, the answers, the comparison, and how many are good."""
    if len(report.looks) > 1:
        console.print(_looks(report))
        console.print()
    if verbose:
        for sample in report.samples:
            _whole(sample, report, console)
    elif report.compared is None:
        console.print(_answers(report, console.width))
        console.print()
    if report.compared is not None:
        _beside(report, report.compared, console)
    for prompt in report.unanswered:
        _say(
            console,
            f"no answer: {_place(prompt, report)} {_short(prompt.question, QUESTION)}",
            "yellow",
        )
    for note in report.notes:
        _say(console, f"note: {note}", "dim")
    _say(console, success(report), "bold")
    if report.too_few:
        _say(
            console,
            f"that is surely below the {report.min_success:.0%} that were asked for",
            "bold red",
        )


def success(report: SampleReport) -> str:
    """How many answers are right where that can be told, and how many have a good form, with what the others are."""
    found, others = (
        report.success,
        Counter({name: n for name, n in report.verdicts.items() if name not in GOOD_VERDICTS}),
    )
    ends_known = any(sample.scores.end_known for sample in report.samples)
    fine = "stop by themselves without a fault" if ends_known else "are without a fault"
    form = f"{_share(found)} {fine}" if found.of else "no answer could be judged"
    if others:
        form += ": " + ", ".join(
            f"{VERDICT_PHRASES[name]} {count}" for name, count in others.most_common()
        )
    parts = [*_agreements(report), form]
    if report.stop_probability is not None:
        parts.append(f"P(stop) behind the references {report.stop_probability:.2g} (the median)")
    return "; ".join(parts)


def _agreements(report: SampleReport) -> Iterator[str]:
    """How many answers are what they should be; it comes first, since a sound form says nothing of that."""
    scores = [sample.scores for sample in report.samples]
    if judged := [score.agrees for score in scores if score.agrees is not None]:
        share = sum(judged) / len(judged)
        yield f"{sum(judged)} of {len(judged)} ({share:.0%}) are right, as the parser reads them"
    if known := [score for score in scores if score.overlap is not None]:
        exact = sum(score.exact is True for score in known)
        overlap = sum(score.overlap or 0.0 for score in known) / len(known)
        yield (f"{exact} of {len(known)} are the reference, word for word, overlap {overlap:.2f}")


@contextmanager
def asking(*, off: bool) -> Iterator[Callable[[str, int, int], None] | None]:
    """A bar on stderr, on a terminal alone."""
    if off or not sys.stderr.isatty():
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task, what = bar.add_task("loading", total=None), ""

        def tell(now: str, done: int, total: int) -> None:
            nonlocal what
            if now != what:
                bar.reset(task)
                what = now
            bar.update(task, description=visible(now[-SHOWN:]), completed=done, total=total)

        yield tell


def _answers(report: SampleReport, width: int) -> Table:
    """Two lines a row."""
    table = _table("row", "verdict", "question", "answer")
    if report.stop_probability is not None:
        table.add_column("P(stop)", justify="right", no_wrap=True)
    room = max(50, width - TAKEN)
    for sample in report.samples:
        probability = sample.answer.stop_probability
        shown = [
            _short(sample.prompt.question, room // 2),
            _short(sample.answer.text, room * 2 // 3),
        ]
        if report.stop_probability is not None:
            shown.append("" if probability is None else f"{probability:.2g}")
        table.add_row(_place(sample.prompt, report), _verdict(sample, report.limit), *shown)
    return table


def _beside(report: SampleReport, beside: Compared, console: Console) -> None:
    """Pair by pair, then the figures."""
    names = [
        _named(name, other)
        for name, other in ((report.name, beside.name), (beside.name, report.name))
    ]
    for pair in beside.pairs:
        prompt = pair.mine.prompt
        _say(
            console,
            Text.assemble(
                (_place(prompt, report), "bold"), f" {_short(prompt.question, console.width - 20)}"
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
                Text.assemble((f"{name}: ", "dim"), _verdict(side, report.limit))
                for name, side in zip(names, sides, strict=True)
            )
        )
        table.add_row(*(_short(side.answer.text, console.width) for side in sides))
        console.print(table)
        console.print(Padding(Text(visible("; ".join(pair.words)), style="cyan"), (0, 0, 0, 2)))
    console.print()
    console.print(_figures(beside, names))
    for row in beside.rows:
        if row.only is not None and any(row.only):
            _say(
                console,
                f"{row.name}: {row.only[0]} only now, {row.only[1]} only before (McNemar's exact"
                " test)",
            )
    _say(console, f"{beside.same} of {many(len(beside.pairs), 'answer')} the same, token by token")
    for note in beside.notes:
        _say(console, f"note: {note}", "dim")
    console.print()


def _figures(beside: Compared, names: Sequence[str]) -> Table:
    table = _table("")
    for name in (*names, "change", "95 %", "p"):
        table.add_column(name, justify="right", overflow="fold")
    for row in beside.rows:
        if row.mine is None or row.other is None:
            table.add_row(row.name, "-", "-", "", "", "")
            continue
        change, low, high = (
            _figure(row, value, "+") for value in (row.mine - row.other, row.low, row.high)
        )
        between = f"{low} to {high}" if row.low is not None and row.high is not None else ""
        p = "" if row.p is None else f"{row.p:.2g}"
        table.add_row(row.name, _figure(row, row.mine), _figure(row, row.other), change, between, p)
    return table


def _named(name: str, other: str) -> str:
    """The last part of a path, where that tells the two apart."""
    short = [PurePath(path).name for path in (name, other)]
    return visible(name if short[0] == short[1] else short[0])


def _looks(report: SampleReport) -> Table:
    table = _table("step")
    for name in ("well-formed", "95 %", "stop", "overlap"):
        table.add_column(name, justify="right")
    for look in report.looks:
        found = Success.of_look(look, report.limit)
        known_ends = [sample.scores.stopped for sample in look.samples if sample.scores.end_known]
        stopped = f"{sum(known_ends)} of {len(known_ends)}" if known_ends else ""
        known = [s.scores.overlap for s in look.samples if s.scores.overlap is not None]
        table.add_row(
            f"{look.step:,}",
            f"{found.good} of {found.of}",
            _interval(found),
            stopped,
            f"{sum(known) / len(known):.2f}" if known else "",
        )
    return table


def _whole(sample: Sample, report: SampleReport, console: Console) -> None:
    """All of one answer."""
    found = answer_faults(sample, report.limit)
    more = (
        f" ({', '.join(VERDICT_PHRASES[fault] for fault in found[1:])} too)"
        if len(found) > 1
        else ""
    )
    _say(
        console,
        Text.assemble(
            (_place(sample.prompt, report), "bold"), " ", _verdict(sample, report.limit), more
        ),
    )
    for name, text in (
        ("asked", sample.prompt.question),
        ("says", sample.answer.text),
        ("reference", sample.prompt.reference),
    ):
        lines = [visible(line) for line in text.split("\n")] or [""]
        _say(console, Text.assemble((f"{name:>9} | ", "blue"), f"\n{'':>9} | ".join(lines)))
    console.print()


def _table(*names: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in names:
        table.add_column(name, overflow="fold")
    return table


def _verdict(sample: Sample, limit: int) -> Text:
    found = good(sample, limit)
    right = found and (sample.scores.exact is True or sample.scores.agrees is True)
    return Text(
        VERDICT_PHRASES[main_verdict(sample, limit)], style="green" if right else STYLES[found]
    )


def _figure(row: Row, value: float | None, sign: str = "") -> str:
    if value is None:
        return ""
    shape = {"share": ".0%", "tokens": ",.0f"}.get(
        row.shape, ".2f" if abs(value) >= 0.01 or not value else ".1e"
    )
    return format(value, sign + shape)


def _share(found: Success) -> str:
    return f"{found.good} of {found.of} (95 %: {_interval(found)})"


def _interval(found: Success) -> str:
    return f"{100 * found.low:.0f} to {100 * found.high:.0f} %"


def _place(prompt: Prompt, report: SampleReport) -> str:
    """file:line; where all rows stand on one line, the number of the row."""
    alike = sum(
        (sample.prompt.file, sample.prompt.line) == (prompt.file, prompt.line)
        for sample in report.samples
    )
    place = f" row {prompt.row}" if alike > 1 and prompt.row >= 0 else f":{prompt.line}"
    return visible(PurePath(prompt.file).name + place)


def _short(text: str, length: int) -> str:
    text = visible(" ".join(text.split()))
    return text if len(text) <= length else text[: length - 3] + "..."


def _say(console: Console, text: str | Text, style: str = "") -> None:
    console.print(
        text if isinstance(text, Text) else Text(visible(text), style=style), soft_wrap=True
    )
