"""The report on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table
from rich.text import Text

from truetune.checks.catalogue import find, page, rules, station
from truetune.checks.findings import SHOWN_CASES, Case, Finding
from truetune.checks.report import AuditReport, DataReport, Report, Subject
from truetune.checks.rule import Rule
from truetune.encoding.token_counts import Ledger
from truetune.render.rendering import Source
from truetune.report import audited, judged
from truetune.report.draw_by_kind import draw_more_of
from truetune.report.headline import then
from truetune.report.learned import verdict
from truetune.report.text import clip, drawn, many, share, visible, wrap
from truetune.spec.run import Severity

STYLES: dict[Severity, str] = {"error": "bold red", "warning": "bold yellow", "info": "bold cyan"}
LONGEST = 2_000
"""Characters of the line on a subject"""
GUTTER = "   | "
BAR = 30
EIGHTHS = " ▏▎▍▌▋▊▉"
CURVES = (
    "curves do not show what the model answers, and whether it stops: truetune sample RUN --data"
    " HELD-OUT"
)
"""Said of a run of which nothing but its log was looked at"""
OF_SERVER = (
    "the log of a server shows no prompts: truetune serve-check MODEL --endpoint URL; the scripts that serve and ask:"
    " truetune lint SCRIPTS"
)
"""Said of the log of a server"""


def render_report(
    report: Report,
    console: Console,
    *,
    verbose: bool = False,
    quiet: bool = False,
    cases: int = SHOWN_CASES,
) -> None:
    """Draw verdict, findings, what was not judged, the next step, and figures last.

    `verbose` draws notes, figures beside findings and the list of checks in full; `quiet` findings alone. Of each
    finding so many `cases` are drawn.
    """
    if not quiet:
        _draw_verdict(report, console, verbose)
    _draw_findings(report, console, verbose=verbose, cases=cases)
    if quiet:
        return
    if not verbose and any(finding.severity == "info" for finding in report.findings):
        _say(console)  # notes are in a line each, with nothing between them and what follows
    for line in judged.lines(report, verbose=verbose):
        _say(
            console,
            Text("\n".join(wrap(visible(line), console.width)), style="" if verbose else "yellow"),
        )
    draw_more_of(report, console, verbose)
    _say(console, _wrapped(summary(report), console))
    folds_figures = report.outcome == "findings" and not verbose
    if folds_figures:
        _draw_folded_figures(report, console)
    else:
        _draw_figures(report, console, verbose)


def _with_rows(report: Report) -> DataReport | None:
    """The report, where it is one on rows that were read."""
    return report if isinstance(report, DataReport) and report.rows else None


def _draw_verdict(report: Report, console: Console, verbose: bool) -> None:
    """What was checked, and in one sentence what is learned of it."""
    for subject in report.subjects:
        _say(console, _subject(subject, console.width, verbose))
    if rows := _with_rows(report):
        _say(console, verdict(rows, console.width))
        if verbose:
            _say(console, _facts(rows, console.width))
    if isinstance(report, AuditReport):
        _say(console, audited.verdict_text(report, console.width))
        if columns := audited.label_columns(report):
            _say(console, Text("\n".join(wrap(visible(columns), console.width))))
    _say(console)


def _draw_findings(report: Report, console: Console, *, verbose: bool, cases: int) -> None:
    """Findings with their places; notes follow in a line each, and are drawn like findings with `verbose`."""
    in_one_line = [
        finding for finding in report.findings if finding.severity == "info" and not verbose
    ]
    for finding in report.findings:
        if finding not in in_one_line:
            _finding(finding, console, verbose, cases)
    for finding in in_one_line:
        _say(console, _heading(finding, console.width))


def _draw_folded_figures(report: Report, console: Console) -> None:
    """Where the figures are, beside findings that should be read first."""
    if isinstance(report, AuditReport):
        audited.render_notes(report, console, verbose=False)
    if isinstance(report, AuditReport) or _with_rows(report):
        _say(console, Text("figures by source and length: -v", style="dim"))


def _draw_figures(report: Report, console: Console, verbose: bool) -> None:
    """Tokens by source and rows by length; of an audit, its own."""
    if rows := _with_rows(report):
        _say(console)
        _learned(rows, console)
    if isinstance(report, AuditReport):
        _say(console)
        audited.render_audited(report, console, verbose)


def render_brief(report: DataReport, console: Console) -> None:
    """Draw the verdict, a line for each finding, and the counts."""
    _say(console, verdict(report, console.width))
    for finding in report.findings:
        _say(console, _heading(finding, console.width))
    _say(console, counts(report))


def _learned(report: DataReport, console: Console) -> None:
    console.print(ledger_table(report.ledger))
    if lost := report.data.get("lost_fields"):
        _say(console, lost_line(lost))
    for line in _without_label(report):
        _say(console, line)
    _say(console)
    for line in _histogram(report, console):
        _say(console, line)
    _say(console)


def _subject(subject: Subject, width: int, verbose: bool) -> Text:
    """What was looked at, with its facts."""
    facts = "; ".join(f"{name} {value}" for name, value in subject.facts)
    line = visible(f"{subject.kind} {subject.path}" + (f": {facts}" if facts else ""))
    text = Text("\n".join(wrap(line if verbose else clip(line, LONGEST), width)))
    text.stylize("bold", 0, len(subject.kind))
    return text


def counts(report: Report) -> Text:
    """Of findings, and of what was examined and not judged; else what the outcome is."""
    counts = {s: sum(f.severity == s for f in report.findings) for s in STYLES}
    parts = [Text(many(counts[s], s), style=STYLES[s]) for s in ("error", "warning") if counts[s]]
    found = bool(parts)
    if not found:
        clean = "bold green" if report.is_verified else "bold"
        parts = [
            Text(
                report.outcome,
                style="bold yellow" if report.outcome == "not judged" else clean,
            )
        ]
    if counts["info"]:
        parts.append(Text(many(counts["info"], "note")))
    parts.append(Text(judged.counts(report)))
    rows = report.rows if isinstance(report, DataReport) else 0
    looked = many(rows, "row") if rows else many(max(1, len(report.subjects)), "subject")
    if isinstance(report, AuditReport):
        looked = many(len(report.samples), "line")
    return Text(", ").join(parts).append(f" · {looked} in {report.seconds:.1f} s")


def summary(report: Report) -> Text:
    """The counts, and how to continue."""
    text = counts(report)
    found = any(finding.severity != "info" for finding in report.findings)
    logs = [subject for subject in report.subjects if subject.kind == "run log"]
    if not found and logs:
        serve = all("serves" in dict(subject.facts) for subject in logs)
        text.append(f"\n{OF_SERVER if serve else CURVES}")
    for safe, option in ((True, "--fix"), (False, "--unsafe-fixes")):
        if fixes := sum(f.fix is not None and f.fix.safe is safe for f in report.findings):
            text.append(
                f"\n{many(fixes, 'finding')} can be fixed: truetune lint {option} (or --diff first)"
            )
    if report.known:
        text.append(f"\n{many(len(report.known), 'finding')} of the baseline left out")
    if not found and (step := then(report)):
        text.append(f"\nnext: {step}")
    if found:
        text.append("\nmore on a rule: truetune explain RULE")
        rows = isinstance(report, DataReport) and report.rows
        text.append(" · on a row: truetune show FILE:LINE" if rows else "")
    return text


def _wrapped(text: Text, console: Console) -> Text:
    """Its first line in lines of the terminal; those below name commands, which stay in one piece."""
    counts, *commands = text.split("\n")
    lines = counts.wrap(console, console.width)
    for line in lines:
        line.rstrip()
    return Text("\n").join([*lines, *commands])


def _say(console: Console, text: Text | str = "") -> None:
    """Print lines that are already as long as they should be."""
    console.print(text, soft_wrap=True, markup=False, highlight=False, emoji=False)


def _facts(report: DataReport, width: int) -> Text:
    facts = [
        "tokenizer " + report.tokenizer,
        *(f"{name} {value}" for name, value in report.facts.items()),
    ]
    return Text(
        "\n".join(line for fact in facts for line in wrap(visible(fact), width)), style="dim"
    )


def _heading(finding: Finding, width: int) -> Text:
    head = f"{finding.severity}[{finding.code}]"
    text = Text("\n".join(wrap(f"{head} {finding.rule}: {clip(visible(finding.message))}", width)))
    text.stylize(STYLES[finding.severity], 0, len(head))
    text.stylize("bold", len(head), len(f"{head} {finding.rule}:"))
    return text


def _finding(finding: Finding, console: Console, verbose: bool, cases: int) -> None:
    """As rustc does it: heading, places with their evidence, facts on the whole, remedy."""
    width = console.width
    _say(console, _heading(finding, width))
    for case in finding.cases[:cases]:
        text = visible(case.text) if verbose else clip(visible(case.text))
        _say(console, _case(_place(case), text, width))
    more = max(finding.count or 0, len(finding.cases)) - min(cases, len(finding.cases))
    if finding.cases and more > 0:
        _say(
            console,
            f"  ... and {more:,} more" + (" (--cases all)" if len(finding.cases) > cases else ""),
        )
    for line in finding.evidence:
        _say(console, _hanging("   = note: ", visible(line), width))
    if finding.figure is not None:
        from truetune.report.plot import terminal_plot

        unicode = console.encoding.lower().startswith("utf")
        _say(console, terminal_plot(finding.figure, width=min(width, 100), unicode=unicode))
    _say(console, _hanging("   = help: ", visible(finding.remedy), width, "bold"))
    _say(console)


def _place(case: Case) -> str:
    if case.origin is None:
        return visible(
            ":".join(
                str(part) for part in (case.file or "", case.line, case.column) if part is not None
            )
        )
    told = case.turn is None or case.text.startswith(f"turn {case.turn} ")
    turn = "" if told else f" (turn {case.turn})"
    return visible(str(case.origin)) + turn


def _case(place: str, text: str, width: int) -> Text:
    """The place on a line of its own, which is never broken; the text beside it where there is room, else below."""
    if not place:
        return _hanging(GUTTER, text, width, rest=GUTTER)
    arrow = Text.assemble(("  --> ", "blue"), place)
    if not text:
        return arrow
    beside = Text.assemble(arrow, ": ", text)
    return (
        beside
        if beside.cell_len <= width
        else arrow.append("\n").append(_hanging(GUTTER, text, width, rest=GUTTER))
    )


def _hanging(head: str, text: str, width: int, style: str = "", rest: str | None = None) -> Text:
    """Text behind a head; further lines begin with `rest`, or as far in."""
    rest = " " * len(head) if rest is None else rest
    made = Text()
    for i, line in enumerate(wrap(text, max(20, width - len(head)))):
        made.append(f"\n{rest}" if i else head, style="blue").append(line, style=style)
    return made


def ledger_table(ledger: Ledger) -> Table:
    """Tokens by source: learned, context, and the share of all."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("tokens by source")
    for title in ("supervised", "context", "share"):
        table.add_column(title, justify="right")
    total = ledger.total
    for source, supervised, context in ledger.rows():
        style = "green" if supervised else ("red" if source is Source.STOP else "")
        table.add_row(
            Text(source.label, style=style),
            f"{supervised:,}",
            f"{context:,}",
            share(supervised + context, total),
        )
    learned = ledger.supervised
    table.add_row("all", f"{learned:,}", f"{total - learned:,}", share(total, total), style="bold")
    return table


def lost_line(fields: Mapping[str, int]) -> Text:
    """Below the ledger: what the rows hold and no token comes from."""
    counts = ", ".join(f"{visible(field)} of {many(rows, 'row')}" for field, rows in fields.items())
    return Text(f"lost: {counts} (no token comes from them)", style="red")


def _without_label(report: DataReport) -> list[Text]:
    """Rows and examples that teach nothing."""
    lines = []
    if report.unsupervised:
        lines.append(
            f"{report.unsupervised:,} of {many(report.examples, 'example')} without a supervised"
            " token"
        )
    if report.rejected:
        lines.append(f"{report.rejected:,} of {many(report.rows, 'row')} that the template refuses")
    return [Text(line, style="red") for line in lines]


def _histogram(report: DataReport, console: Console) -> list[Text]:
    lengths = report.lengths
    bar = _bar if console.encoding.lower().startswith("utf") else _plain_bar
    lines = [
        Text(
            f"length in tokens: median {lengths.median:,}, 95 % up to {lengths.p95:,}, longest"
            f" {lengths.longest:,}"
        )
    ]
    top = int(lengths.counts.max(initial=0))
    digits = len(f"{lengths.longest:,}")
    for count, low, high in zip(lengths.counts, lengths.edges[:-1], lengths.edges[1:], strict=True):
        past = lengths.limit is not None and low > lengths.limit
        lines.append(
            Text(f"  {low:>{digits},} to {high - 1:>{digits},} ")
            .append(bar(int(count), top), style="red" if past else "green")
            .append(f" {count:,}" if count else "0")
        )
    if lengths.media:
        lines[0].append(f"; {lengths.media.not_counted}", style="yellow")
    if lengths.limit is not None:
        over = share(lengths.over, report.examples)
        line = (
            f"over max_length {lengths.limit:,}: {many(lengths.over, 'example')} ({over}); a cut"
            f" there would lose {many(lengths.lost_tokens, 'token')}, {lengths.lost_supervised:,}"
            " of them supervised"
        )
        lines += map(Text, wrap(line, console.width))
    return lines


def _bar(count: int, top: int) -> str:
    eighths = round(BAR * 8 * count / top) if top else 0
    if count and not eighths:
        eighths = 1
    return "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()


def _plain_bar(count: int, top: int) -> str:
    return "#" * -(-BAR * count // top) if top else ""


def as_text(
    report: Report, *, verbose: bool = False, quiet: bool = False, cases: int = SHOWN_CASES
) -> str:
    """The report as plain text, 100 columns wide."""
    return drawn(
        lambda console: render_report(report, console, verbose=verbose, quiet=quiet, cases=cases)
    )


def render_rules(console: Console, chosen: Iterable[type[Rule[Any]]] = ()) -> None:
    """List rules: all, where none is chosen; in a pipe each on one line."""
    chosen = tuple(chosen or rules())
    if not console.is_terminal:
        longest = max(len(rule.name()) for rule in chosen)
        for rule in chosen:
            _say(
                console,
                f"{rule.code}  {rule.name():{longest}}  {rule.severity:7} "
                f" {summary_of(page(rule))}",
            )
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    for _ in range(3):
        table.add_column(no_wrap=True)
    table.add_column()
    for rule in chosen:
        severity = Text(rule.severity, style=STYLES[rule.severity])
        table.add_row(rule.code, rule.name(), severity, Text(summary_of(page(rule))))
    console.print(table)


def rules_json(chosen: Iterable[type[Rule[Any]]]) -> list[dict[str, str]]:
    """Rules as plain values."""
    return [
        {
            "code": rule.code,
            "rule": rule.name(),
            "station": station(rule),
            "severity": rule.severity,
            "summary": summary_of(page(rule)),
        }
        for rule in chosen
    ]


def render_page(name: str, console: Console) -> None:
    """Show a rule's page. Raises UsageError for a rule that there is not."""
    rule = find(name)
    console.print(Markdown(f"# {rule.code} {rule.name()}\n\n{page(rule)}", code_theme="ansi_dark"))


def rule_json(name: str) -> dict[str, str]:
    """A rule with its page, as plain values. Raises UsageError for a rule that there is not."""
    rule = find(name)
    return {**rules_json([rule])[0], "page": page(rule)}


def summary_of(markdown: str) -> str:
    """The first line of a page."""
    return markdown.partition("\n")[0]
