"""A report on a terminal: verdict first, then findings with their places and remedies, then counts and the next
step.

The order is that of a reader who has a minute. Notes are one line each, and figures are folded while there are
findings, since they push the remedy off the screen; -v shows all. Findings are drawn as rustc draws errors:
heading, place with evidence, note, help. Lines are wrapped here and not by rich, which breaks paths and commands
that somebody copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from rich.console import Console
from rich.table import Table
from rich.text import Text

from truetune.checks.findings import SHOWN_CASES, Case, Finding
from truetune.checks.reports import AuditReport, DataReport, Report, Subject
from truetune.encoding.token_counts import Ledger
from truetune.render.rendering import Source
from truetune.report import audit_terminal
from truetune.report.draw_what_each_kind_of_report_adds import draw_details_of_report
from truetune.report.lines_on_passed_and_unjudged_checks import (
    describe_counts_of_checks_by_outcome,
    describe_unjudged_and_passed_checks,
)
from truetune.report.supervision_headline import supervision_verdict
from truetune.report.terminal_output import borderless_table, print_without_wrapping_or_escaping
from truetune.report.verdict_and_next_step import next_step_of_report
from truetune.report.visible_text import (
    clip_text,
    count_noun,
    draw_as_text,
    escape_invisible_characters,
    format_per_cent_share,
    wrap_text,
)
from truetune.settings.run_spec import Severity
from truetune.settings.training_settings import SAMPLES_ITS_ANSWERS

SEVERITY_STYLES: dict[Severity, str] = {
    "error": "bold red",
    "warning": "bold yellow",
    "info": "bold cyan",
}
# Chosen, not measured: a subject of hundreds of facts (a folder of settings) would fill the
# screen above the verdict.
MAX_SUBJECT_CHARACTERS = 2_000
"""Characters of the line on a subject"""
GUTTER = "   | "
# Of the longest bar: with both numbers beside it a line fits 80 columns.
BAR_CELLS = 30
EIGHTH_BLOCKS = " ▏▎▍▌▋▊▉"
CURVES_ARE_NOT_ANSWERS = (
    "curves do not show what the model answers, and whether it stops: truetune sample RUN --data"
    " HELD-OUT"
)
"""Said of a run of which nothing but its log was looked at"""
ANSWERS_ARE_REFERENCES = (
    "prompts are the input; the answers of the rows are given to the reward functions, and none of their tokens is"
    " trained on"
)
"""Said below the counts of rows for a training that samples its answers"""
OF_A_SERVER = (
    "the log of a server shows no prompts: truetune serve-check MODEL --endpoint URL; the scripts"
    " that serve and ask: truetune lint SCRIPTS"
)
"""Said of the log of a server, which has no curves"""


def render_report(
    report: Report,
    console: Console,
    *,
    verbose: bool = False,
    quiet: bool = False,
    cases: int = SHOWN_CASES,
) -> None:
    """Draw verdict, findings, what was not judged, the next step, and figures last.

    Args:
        report: of any kind.
        console: where it is drawn; its width and encoding are kept to.
        verbose: draw notes, figures beside findings, and the list of checks in full.
        quiet: findings alone, and a line where exit code 3 would stand alone.
        cases: so many places of each finding.
    """
    if not quiet:
        _draw_subjects_and_verdict(report, console, verbose)
    _draw_findings(report, console, verbose=verbose, cases=cases)
    if quiet:
        _draw_why_nothing_is_judged(report, console)
        return
    # Notes are in a line each, with nothing between them and what follows.
    if not verbose and any(finding.severity == "info" for finding in report.findings):
        print_without_wrapping_or_escaping(console)
    for line in describe_unjudged_and_passed_checks(report, verbose=verbose):
        print_without_wrapping_or_escaping(
            console,
            Text(
                "\n".join(wrap_text(escape_invisible_characters(line), console.width)),
                style="" if verbose else "yellow",
            ),
        )
    draw_details_of_report(report, console, verbose)
    print_without_wrapping_or_escaping(console, _wrap_first_line(closing_lines(report), console))
    # The figures are never the news while something is wrong.
    folds_figures = report.outcome == "findings" and not verbose
    if folds_figures:
        _draw_where_figures_are(report, console)
    else:
        _draw_figures(report, console, verbose)


def _draw_why_nothing_is_judged(report: Report, console: Console) -> None:
    """Draw in a line what was asked for and not judged, where that decides the exit code."""
    if report.exit_code() != 3:
        return
    missing = report.requested_not_judged() or report.not_judged[:1]
    first = str(missing[0]) if missing else "there was nothing to judge"
    more = f" (and {len(missing) - 1:,} more)" if len(missing) > 1 else ""
    print_without_wrapping_or_escaping(
        console, Text(escape_invisible_characters(f"not judged: {first}{more}"), style="yellow")
    )


def _as_data_report_with_rows(report: Report) -> DataReport | None:
    """The report, where it is one on rows that were read."""
    return report if isinstance(report, DataReport) and report.rows else None


def _draw_subjects_and_verdict(report: Report, console: Console, verbose: bool) -> None:
    """Draw what was checked, and the verdict in one sentence."""
    for subject in report.subjects:
        print_without_wrapping_or_escaping(console, _subject_text(subject, console.width, verbose))
    rows = _as_data_report_with_rows(report)
    if rows:
        print_without_wrapping_or_escaping(console, supervision_verdict(rows, console.width))
        if len(rows.templates) > 1:
            print_without_wrapping_or_escaping(console, _rows_by_template_text(rows, console.width))
        if verbose:
            print_without_wrapping_or_escaping(console, _tokenizer_facts_text(rows, console.width))
    if isinstance(report, AuditReport):
        print_without_wrapping_or_escaping(
            console, audit_terminal.audit_verdict_text(report, console.width)
        )
        for line in (
            audit_terminal.describe_label_columns(report),
            audit_terminal.describe_loss_function(report.loss),
        ):
            if line:
                print_without_wrapping_or_escaping(
                    console,
                    Text("\n".join(wrap_text(escape_invisible_characters(line), console.width))),
                )
    print_without_wrapping_or_escaping(console)


def _draw_findings(report: Report, console: Console, *, verbose: bool, cases: int) -> None:
    """Draw findings with their places; notes in a line each, or with `verbose` like findings."""
    # A note asks for nothing to be done, so that it has no place for a remedy either; -v draws
    # it whole.
    folded = () if verbose else report.folded_findings()
    shown = [finding for finding in report.findings if finding not in folded]
    in_one_line = [finding for finding in shown if finding.severity == "info" and not verbose]
    for finding in shown:
        # Findings keep their order, problems first: they are sorted by severity.
        if finding not in in_one_line:
            _print_finding(finding, console, verbose, cases)
    for finding in in_one_line:
        print_without_wrapping_or_escaping(console, _finding_heading(finding, console.width))
    if folded:
        print_without_wrapping_or_escaping(
            console,
            Text("\n".join(wrap_text(_count_line_of_off_topic_findings(folded), console.width))),
        )


def _count_line_of_off_topic_findings(folded: tuple[Finding, ...]) -> str:
    """How many findings are about something else than what was asked, and their rules."""
    names = ", ".join(dict.fromkeys(finding.rule for finding in folded))
    return f"{count_noun(len(folded), 'other finding')} in these files, shown by -v: {names}"


def _draw_where_figures_are(report: Report, console: Console) -> None:
    """Say where the figures are, beside findings that should be read first."""
    if isinstance(report, AuditReport):
        audit_terminal.render_audit_notes(report, console, verbose=False)
    if isinstance(report, AuditReport) or _as_data_report_with_rows(report):
        print_without_wrapping_or_escaping(
            console, Text("figures by source and length: -v", style="dim")
        )


def _draw_figures(report: Report, console: Console, verbose: bool) -> None:
    """Draw the figures: tokens by source and rows by length; of an audit, its own."""
    rows = _as_data_report_with_rows(report)
    if rows:
        print_without_wrapping_or_escaping(console)
        _print_ledger_lost_fields_and_lengths(rows, console)
    if isinstance(report, AuditReport):
        print_without_wrapping_or_escaping(console)
        audit_terminal.render_audit_tables(report, console, verbose)


def draw_verdict_findings_and_counts(report: DataReport, console: Console) -> None:
    """Draw the verdict, a line for each finding, and the counts."""
    print_without_wrapping_or_escaping(console, supervision_verdict(report, console.width))
    for finding in report.findings:
        print_without_wrapping_or_escaping(console, _finding_heading(finding, console.width))
    print_without_wrapping_or_escaping(console, findings_and_checks_count_line(report))


def _print_ledger_lost_fields_and_lengths(report: DataReport, console: Console) -> None:
    """Print the ledger, which fields are lost, what has no label, and the histogram of lengths."""
    samples = report.spec.training.method in SAMPLES_ITS_ANSWERS
    console.print(ledger_table(report.ledger, are_answers_sampled=samples))
    if samples:
        print_without_wrapping_or_escaping(
            console, Text("\n".join(wrap_text(ANSWERS_ARE_REFERENCES, console.width)))
        )
    lost = report.data.get("lost_fields")
    if lost and not samples:
        print_without_wrapping_or_escaping(console, line_on_fields_without_tokens(lost))
    for line in _unsupervised_and_refused_lines(report):
        print_without_wrapping_or_escaping(console, line)
    print_without_wrapping_or_escaping(console)
    for line in _length_histogram(report, console):
        print_without_wrapping_or_escaping(console, line)
    print_without_wrapping_or_escaping(console)


def _subject_text(subject: Subject, width: int, verbose: bool) -> Text:
    """What was looked at, with its facts, in lines of a terminal."""
    facts = "; ".join(f"{name} {value}" for name, value in subject.facts)
    line = escape_invisible_characters(
        f"{subject.kind} {subject.path}" + (f": {facts}" if facts else "")
    )
    text = Text(
        "\n".join(wrap_text(line if verbose else clip_text(line, MAX_SUBJECT_CHARACTERS), width))
    )
    text.stylize("bold", 0, len(subject.kind))
    return text


def findings_and_checks_count_line(report: Report) -> Text:
    """How many findings there are, and how much was examined and not judged, in one line; else the
    outcome.
    """
    counts = {s: sum(f.severity == s for f in report.findings) for s in SEVERITY_STYLES}
    parts = [
        Text(count_noun(counts[s], s), style=SEVERITY_STYLES[s])
        for s in ("error", "warning")
        if counts[s]
    ]
    has_problems = bool(parts)
    if not has_problems:
        # Green only where what was asked for was judged: else the outcome is bold, and no more.
        clean = "bold green" if report.is_verified else "bold"
        parts = [
            Text(
                report.outcome,
                style="bold yellow" if report.outcome == "not judged" else clean,
            )
        ]
    if counts["info"]:
        parts.append(Text(count_noun(counts["info"], "note")))
    parts.append(Text(describe_counts_of_checks_by_outcome(report)))
    rows = report.rows if isinstance(report, DataReport) else 0
    looked = (
        count_noun(rows, "row") if rows else count_noun(max(1, len(report.subjects)), "subject")
    )
    if isinstance(report, AuditReport):
        looked = count_noun(len(report.samples), "line")
    return Text(", ").join(parts).append(f" · {looked} in {report.seconds:.1f} s")


def closing_lines(report: Report) -> Text:
    """The last lines of a report: the counts, and how to continue (what can be fixed, what the
    baseline hides, the next command).
    """
    text = findings_and_checks_count_line(report)
    has_problems = any(finding.severity != "info" for finding in report.findings)
    for line in _next_step_lines(report, has_problems):
        text.append(f"\n{line}")
    return text


def _next_step_lines(report: Report, has_problems: bool) -> Iterator[str]:
    """Lines on how to continue, below the counts: what can be fixed, what was left out, the next
    command.
    """
    logs = [subject for subject in report.subjects if subject.kind == "run log"]
    if not has_problems and logs:
        # A run can look perfect in its log and answer nothing: the README's table has five faults of one final loss.
        are_of_servers = all("serves" in dict(subject.facts) for subject in logs)
        yield OF_A_SERVER if are_of_servers else CURVES_ARE_NOT_ANSWERS
    yield from _fix_command_lines(report)
    if report.known:
        yield f"{count_noun(len(report.known), 'finding')} of the baseline left out"
    if has_problems:
        # With a problem the next step is its remedy, which stands below the finding: said twice it would be skipped.
        on_a_row = (
            " · on a row: truetune show FILE:LINE" if _as_data_report_with_rows(report) else ""
        )
        yield f"more on a rule: truetune explain RULE{on_a_row}"
    else:
        step = next_step_of_report(report)
        if step:
            yield f"next: {step}"


def _fix_command_lines(report: Report) -> Iterator[str]:
    """A line on the findings that `truetune lint --fix` corrects, and one on those that are not safe."""
    for is_safe, option in ((True, "--fix"), (False, "--unsafe-fixes")):
        count = sum(f.fix is not None and f.fix.safe is is_safe for f in report.findings)
        if count:
            fixable = count_noun(count, "finding")
            yield f"{fixable} can be fixed: truetune lint {option} (or --diff first)"


def _wrap_first_line(text: Text, console: Console) -> Text:
    """Wrap the first line to the terminal; those below name commands, which stay in one piece."""
    counts, *commands = text.split("\n")
    # Commands are never broken: somebody selects a line and pastes it.
    lines = counts.wrap(console, console.width)
    for line in lines:
        line.rstrip()
    return Text("\n").join([*lines, *commands])


def _rows_by_template_text(report: DataReport, width: int) -> Text:
    """How many rows each of the tokenizer's chat templates rendered, in lines of a terminal."""
    counts = ", ".join(
        f"{escape_invisible_characters(name)} {rows:,}" for name, rows in report.templates.items()
    )
    return Text("\n".join(wrap_text(f"rows by chat template: {counts}", width)))


def _tokenizer_facts_text(report: DataReport, width: int) -> Text:
    """The tokenizer and what is known of it."""
    facts = [
        "tokenizer " + report.tokenizer,
        *(f"{name} {value}" for name, value in report.facts.items()),
    ]
    return Text(
        "\n".join(
            line for fact in facts for line in wrap_text(escape_invisible_characters(fact), width)
        ),
        style="dim",
    )


def _finding_heading(finding: Finding, width: int) -> Text:
    """`error[ROW003] turn-roles-unknown-to-template: message`, in lines of at most `width` cells."""
    head = f"{finding.severity}[{finding.code}]"
    text = Text(
        "\n".join(
            wrap_text(
                f"{head} {finding.rule}: {clip_text(escape_invisible_characters(finding.message))}",
                width,
            )
        )
    )
    text.stylize(SEVERITY_STYLES[finding.severity], 0, len(head))
    text.stylize("bold", len(head), len(f"{head} {finding.rule}:"))
    return text


def _print_finding(finding: Finding, console: Console, verbose: bool, cases: int) -> None:
    """Print a finding as rustc prints errors: heading, places with their evidence, facts on the
    whole, remedy.
    """
    width = console.width
    print_without_wrapping_or_escaping(console, _finding_heading(finding, width))
    for case in finding.cases[:cases]:
        text = (
            escape_invisible_characters(case.text)
            if verbose
            else clip_text(escape_invisible_characters(case.text))
        )
        print_without_wrapping_or_escaping(
            console, _case_text(_format_case_place(case), text, width)
        )
    # A finding may count more places than it lists: the report keeps the first ones.
    more = max(finding.count or 0, len(finding.cases)) - min(cases, len(finding.cases))
    if finding.cases and more > 0:
        print_without_wrapping_or_escaping(
            console,
            f"  ... and {more:,} more" + (" (--cases all)" if len(finding.cases) > cases else ""),
        )
    for line in finding.evidence:
        print_without_wrapping_or_escaping(
            console,
            _text_with_hanging_indent("   = note: ", escape_invisible_characters(line), width),
        )
    if finding.figure is not None:
        from truetune.report.figure_as_characters_or_svg import plot_on_terminal

        # A terminal of another encoding shows braille as question marks; it gets a plot in
        # ASCII.
        unicode = console.encoding.lower().startswith("utf")
        print_without_wrapping_or_escaping(
            console, plot_on_terminal(finding.figure, width=min(width, 100), unicode=unicode)
        )
    print_without_wrapping_or_escaping(
        console,
        _text_with_hanging_indent(
            "   = help: ", escape_invisible_characters(finding.remedy), width, "bold"
        ),
    )
    print_without_wrapping_or_escaping(console)


def finding_as_text(finding: Finding, columns: int) -> str:
    """A finding as a terminal of so many columns shows it, as plain text without its plot."""
    without_plot = replace(finding, figure=None)
    return draw_as_text(
        lambda console: _print_finding(without_plot, console, verbose=False, cases=SHOWN_CASES),
        columns,
    )


def _format_case_place(case: Case) -> str:
    """Where a case is: `file:line (turn 2)`; of a script `file:line:column`."""
    if case.origin is None:
        return escape_invisible_characters(
            ":".join(
                str(part) for part in (case.file or "", case.line, case.column) if part is not None
            )
        )
    # A text that begins with its turn says it itself.
    says_turn = case.turn is None or case.text.startswith(f"turn {case.turn} ")
    turn = "" if says_turn else f" (turn {case.turn})"
    return escape_invisible_characters(str(case.origin)) + turn


def _case_text(place: str, text: str, width: int) -> Text:
    """A case as text: its place on a line of its own, which is never broken; the evidence beside it
    where there is room, else below.
    """
    if not place:
        return _text_with_hanging_indent(GUTTER, text, width, rest=GUTTER)
    arrow = Text.assemble(("  --> ", "blue"), place)
    if not text:
        return arrow
    # The place stays whole: terminals and editors open FILE:LINE that is clicked.
    beside = Text.assemble(arrow, ": ", text)
    return (
        beside
        if beside.cell_len <= width
        else arrow.append("\n").append(_text_with_hanging_indent(GUTTER, text, width, rest=GUTTER))
    )


def _text_with_hanging_indent(
    head: str, text: str, width: int, style: str = "", rest: str | None = None
) -> Text:
    """Text after a head, wrapped; further lines begin with `rest`, or are indented as far as the
    head.
    """
    rest = " " * len(head) if rest is None else rest
    lines = Text()
    for i, line in enumerate(wrap_text(text, max(20, width - len(head)))):
        lines.append(f"\n{rest}" if i else head, style="blue").append(line, style=style)
    return lines


def ledger_table(ledger: Ledger, *, are_answers_sampled: bool = False) -> Table:
    """Tokens by source: learned, context, and the share of all.

    Args:
        ledger: the counts.
        are_answers_sampled: the training samples its answers, so that those of the rows are references.
    """
    table = borderless_table()
    table.add_column("tokens by source")
    learned_title, context_title = (
        ("reference", "prompt") if are_answers_sampled else ("supervised", "context")
    )
    for title in (learned_title, context_title, "share"):
        table.add_column(title, justify="right")
    total = ledger.total
    for source, supervised, context in ledger.rows():
        style = "green" if supervised else ("red" if source is Source.STOP else "")
        table.add_row(
            Text(source.label, style=style),
            f"{supervised:,}",
            f"{context:,}",
            format_per_cent_share(supervised + context, total),
        )
    learned = ledger.supervised
    table.add_row(
        "all",
        f"{learned:,}",
        f"{total - learned:,}",
        format_per_cent_share(total, total),
        style="bold",
    )
    return table


def line_on_fields_without_tokens(fields: Mapping[str, int]) -> Text:
    """A line on what the rows hold and no token comes from."""
    counts = ", ".join(
        f"{escape_invisible_characters(field)} of {count_noun(rows, 'row')}"
        for field, rows in fields.items()
    )
    return Text(f"lost: {counts} (no token comes from them)", style="red")


def _unsupervised_and_refused_lines(report: DataReport) -> list[Text]:
    """Lines on how many examples have no supervised token, and how many rows the template refuses."""
    lines = []
    if report.unsupervised and report.spec.training.method not in SAMPLES_ITS_ANSWERS:
        lines.append(
            f"{report.unsupervised:,} of {count_noun(report.examples, 'example')} without a supervised"
            " token"
        )
    if report.rejected:
        lines.append(
            f"{report.rejected:,} of {count_noun(report.rows, 'row')} on which the template raises"
        )
    return [Text(line, style="red") for line in lines]


def _length_histogram(report: DataReport, console: Console) -> list[Text]:
    """The histogram of lengths as lines: a heading, a bar for each bin, and what a cut at the limit
    would lose.
    """
    lengths = report.lengths
    bar = _block_bar if console.encoding.lower().startswith("utf") else _ascii_bar
    lines = [
        Text(
            f"length in tokens: median {lengths.median:,}, 95 % up to {lengths.p95:,}, longest"
            f" {lengths.longest:,}"
        )
    ]
    top = int(lengths.counts.max(initial=0))
    digits = len(f"{lengths.longest:,}")
    for count, low, high in zip(lengths.counts, lengths.edges[:-1], lengths.edges[1:], strict=True):
        # Red bars hold examples of which every one is cut; the bar in which the limit lies
        # holds some of both.
        past = lengths.limit is not None and low > lengths.limit
        lines.append(
            Text(f"  {low:>{digits},} to {high - 1:>{digits},} ")
            .append(bar(int(count), top), style="red" if past else "green")
            .append(f" {count:,}" if count else "0")
        )
    if lengths.media:
        lines[0].append(f"; {lengths.media.note_on_lengths}", style="yellow")
    if lengths.limit is not None:
        over = format_per_cent_share(lengths.over, report.examples)
        line = (
            f"over max_length {lengths.limit:,}: {count_noun(lengths.over, 'example')} ({over}); a cut"
            f" there would lose {count_noun(lengths.lost_tokens, 'token')}, {lengths.lost_supervised:,}"
            " of them supervised"
        )
        lines += map(Text, wrap_text(line, console.width))
    return lines


def _block_bar(count: int, top: int) -> str:
    """A bar for `count`, of which `top` is the longest, in eighths of a cell."""
    # Blocks of an eighth of a cell: 30 cells show 240 steps.
    eighths = round(BAR_CELLS * 8 * count / top) if top else 0
    # One example of a million must be seen: an empty bar reads as none.
    if count and not eighths:
        eighths = 1
    return "█" * (eighths // 8) + EIGHTH_BLOCKS[eighths % 8].strip()


def _ascii_bar(count: int, top: int) -> str:
    """A bar for `count`, of which `top` is the longest, in ASCII."""
    return "#" * -(-BAR_CELLS * count // top) if top else ""


def report_as_text(
    report: Report, *, verbose: bool = False, quiet: bool = False, cases: int = SHOWN_CASES
) -> str:
    """The report as plain text, 100 columns wide; the arguments are those of `render_report`."""
    return draw_as_text(
        lambda console: render_report(report, console, verbose=verbose, quiet=quiet, cases=cases)
    )
