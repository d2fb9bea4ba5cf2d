"""The report on a terminal."""

from __future__ import annotations

import io

from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table
from rich.text import Text

from truetune.checks.catalogue import find, page, rules
from truetune.checks.findings import Case, Finding
from truetune.checks.report import Report
from truetune.render.rendering import Source
from truetune.report.text import share, visible
from truetune.spec.run import Severity

STYLES: dict[Severity, str] = {"error": "bold red", "warning": "bold yellow", "info": "bold cyan"}
BAR = 30
EIGHTHS = " ▏▎▍▌▋▊▉"


def render_report(report: Report, console: Console, *, verbose: bool = False, quiet: bool = False) -> None:
    """Draw findings, ledger and lengths."""
    if not quiet:
        console.print(verdict(report), soft_wrap=False)
        console.print()
    for finding in report.findings:
        if finding.severity == "info" and not verbose:
            continue
        _finding(finding, console, verbose=True)
    notes = [finding for finding in report.findings if finding.severity == "info"]
    if notes and not verbose:
        for finding in notes:
            _finding(finding, console, verbose=False)
        console.print()
    if quiet:
        return
    console.print(_ledger(report))
    console.print()
    for line in _histogram(report):
        console.print(line)
    console.print()
    console.print(summary(report))


def verdict(report: Report) -> Text:
    """What is learned, in one sentence."""
    ledger = report.ledger
    if not ledger.supervised:
        return Text(f"learns nothing: no token of {report.examples:,} examples is supervised", style="bold red")
    parts = sorted(ledger.rows(), key=lambda row: -row[1])
    by_source = ", ".join(f"{s.label} {share(n, ledger.supervised)}" for s, n, _ in parts if n)
    rows = f"{report.examples:,} examples"
    if report.examples != report.rows:
        rows += f" of {report.rows:,} rows"
    return Text.assemble(
        "learns ",
        (f"{ledger.supervised:,}", "bold green"),
        f" of {ledger.total:,} tokens ({share(ledger.supervised, ledger.total)}) in {rows}: {by_source}",
    )


def summary(report: Report) -> Text:
    """Counts of findings, and how to go on."""
    counts = {s: sum(f.severity == s for f in report.findings) for s in STYLES}
    text = Text()
    if not counts["error"] and not counts["warning"]:
        text.append("clean", style="bold green")
    else:
        for severity in ("error", "warning"):
            if counts[severity]:
                text.append(", " if text else "")
                text.append(_many(counts[severity], severity), style=STYLES[severity])
    if counts["info"]:
        text.append(f", {_many(counts['info'], 'note')}")
    text.append(f" · {report.rows:,} rows in {report.seconds:.1f} s")
    if counts["error"] or counts["warning"]:
        text.append("\nmore on a rule: truetune explain NAME")
    return text


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def _finding(finding: Finding, console: Console, *, verbose: bool) -> None:
    style = STYLES[finding.severity]
    console.print(
        Text.assemble((f"{finding.severity}[{finding.code}]", style), f" {finding.rule}: ", visible(finding.message))
    )
    if not verbose:
        return
    for case in finding.cases:
        console.print(_indented(f"  --> {_place(case)}", visible(case.text), console.width), style=None)
    for line in finding.evidence:
        console.print(_hanging("   | ", visible(line), console.width))
    console.print(_hanging("   = help: ", visible(finding.remedy), console.width, "bold"))
    console.print()


def _place(case: Case) -> str:
    place = str(case.origin) if case.origin is not None else case.file or ""
    return f"{place} (turn {case.turn})" if case.turn is not None else place


def _indented(head: str, text: str, width: int) -> Text:
    """The place on one line, the text beside it where there is room, else below it."""
    if not text:
        return Text(head)
    if len(head) + 2 + len(text) <= width:
        return Text(f"{head}: {text}")
    return Text(f"{head}\n").append_text(_hanging("   | ", text, width))


def _hanging(head: str, text: str, width: int, style: str = "") -> Text:
    """Wrapped by words, each further line as far in as the first."""
    lines = Text(text, style=style).wrap(Console(width=width), max(20, width - len(head)))
    made = Text()
    for i, line in enumerate(lines):
        line.rstrip()
        made.append(head if not i else ("   | " if "|" in head else " " * len(head)))
        made.append_text(line)
        if i < len(lines) - 1:
            made.append("\n")
    return made


def _ledger(report: Report) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("tokens by source")
    for title in ("supervised", "context", "share"):
        table.add_column(title, justify="right")
    total = report.ledger.total
    for source, supervised, context in report.ledger.rows():
        style = "green" if supervised else ("red" if source is Source.STOP else "")
        table.add_row(
            Text(source.label, style=style), f"{supervised:,}", f"{context:,}", share(supervised + context, total)
        )
    table.add_row("all", f"{report.ledger.supervised:,}", f"{total - report.ledger.supervised:,}", "", style="bold")
    return table


def _histogram(report: Report) -> list[Text]:
    lengths = report.lengths
    lines = [
        Text(f"length in tokens: median {lengths.median:,}, 95 % up to {lengths.p95:,}, longest {lengths.longest:,}")
    ]
    top = int(lengths.counts.max()) if len(lengths.counts) else 0
    width = len(f"{lengths.longest:,}")
    for count, low, high in zip(lengths.counts, lengths.edges[:-1], lengths.edges[1:], strict=True):
        past = lengths.limit is not None and low > lengths.limit
        lines.append(
            Text(f"  {low:>{width},} to {high - 1:>{width},} ").append(
                _bar(int(count), top), style="red" if past else "green"
            ).append(f" {count:,}")
        )  # fmt: skip
    if lengths.limit is not None:
        over = share(lengths.over, report.examples)
        lines.append(
            Text(
                f"over max_length {lengths.limit:,}: {lengths.over:,} examples ({over}); a cut there would lose "
                f"{lengths.lost_tokens:,} tokens, {lengths.lost_supervised:,} of them supervised"
            )
        )
    return lines


def _bar(count: int, top: int) -> str:
    eighths = round(BAR * 8 * count / top) if top else 0
    if count and not eighths:
        eighths = 1
    return "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()


def as_text(report: Report) -> str:
    """The report as plain text."""
    buffer = io.StringIO()
    render_report(report, Console(file=buffer, width=100, no_color=True, highlight=False, markup=False))
    return buffer.getvalue()


def render_rules(console: Console) -> None:
    """List the rules, one a line."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    for rule in rules():
        table.add_row(rule.code, rule.name(), Text(rule.severity, style=STYLES[rule.severity]), summary_of(page(rule)))
    console.print(table)


def render_page(name: str, console: Console) -> None:
    """Show a rule's page. Raises UsageError for a rule that there is not."""
    rule = find(name)
    console.print(Markdown(f"# {rule.code} {rule.name()}\n\n{page(rule)}"))


def summary_of(markdown: str) -> str:
    """The first line of a page."""
    return markdown.partition("\n")[0]
