"""What an audit measured, drawn on a terminal: what the loss is on, tokens by source, the laws, and
what became of the canary.

The sentence comes first, since loss on the wrong tokens is what an audit is run for; tables follow it. The
functions that count (`ledger_rows`, `measured_laws`) return records, and the JSON and the page take theirs from
the same ones, so that no medium can show another number than the next one.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from truetune.auditing.audit import Field
from truetune.checks.reports import AuditReport
from truetune.checks.rule import LawRule
from truetune.checks.rule_catalogue import all_rules
from truetune.render.rendering import Source
from truetune.report.terminal_output import borderless_table
from truetune.report.visible_text import (
    count_noun,
    escape_invisible_characters,
    format_per_cent_share,
    wrap_text,
)

# A chat template or the tokenizer writes these itself: they come from no column, however right
# the columns are.
SOURCES_WITHOUT_COLUMN = (Source.TEMPLATE, Source.STOP, Source.BOS)
CANARY_STYLES = {"supervised": "green", "cut": "yellow", "lost": "bold red"}


class LedgerRow(NamedTuple):
    """One row of the ledger."""

    label: str
    key: str
    supervised: int
    context: int
    hidden: int
    """Tokens that the attention mask hides"""


class MeasuredLaw(NamedTuple):
    """One law that was measured."""

    name: str
    value: str
    tolerance: str
    unit: str
    holds: bool
    standing: str
    """In words, with the finding that it has"""


def audit_verdict(report: AuditReport) -> str:
    """What the loss is on, in one sentence."""
    ledger = report.ledger
    sequences = count_noun(len(report.samples), "sequence")
    where = f"{sequences} of {report.batches:,} batch{'es' * (report.batches != 1)}"
    # Four states in which nothing is learned or known are told apart: each has another cause
    # and another remedy.
    if not report.samples and report.do_rollouts_follow:
        return "the batches hold prompts alone: what is learned is sampled while it trains"
    if not report.samples:
        return (
            f"no token of {report.batches:,} batches was placed"
            if report.batches
            else "no batch was seen"
        )
    if all(sample.labels is None for sample in report.samples):
        return f"the batches hold no labels: {ledger.total:,} tokens in {where}"
    if not ledger.supervised:
        return f"learns nothing: no token of {where} is in the loss"
    parts = sorted(ledger.rows(), key=lambda row: -row[1])
    by_source = ", ".join(
        f"{s.label} {format_per_cent_share(n, ledger.supervised)}" for s, n, _ in parts if n
    )
    count = (
        f"{ledger.supervised:,} of {ledger.total:,} tokens"
        f" ({format_per_cent_share(ledger.supervised, ledger.total)})"
    )
    return f"the loss is on {count} in {where}: {by_source}"


def describe_label_columns(report: AuditReport) -> str:
    """Which columns of the given rows reach the labels, in one line; "" where the batches hold no labels.

    Shares are of the supervised tokens that are text of a row: template text and stop tokens are from no column.
    """
    counts: Counter[str] = Counter()
    unknown = 0
    for sample in report.samples:
        # Padding is left out even where it is supervised: that is a fault of its own, and has
        # its own finding.
        learned = (
            sample.supervised & ~sample.padding & ~np.isin(sample.source, SOURCES_WITHOUT_COLUMN)
        )
        # A negative owner is text that the audit could not find in any field of the row.
        owners = sample.field[learned]
        unknown += int((owners < 0).sum())
        fields, tokens = np.unique(owners[owners >= 0], return_counts=True)
        for field, count in zip(fields.tolist(), tokens.tolist(), strict=True):
            counts[_name_column_and_role(sample.fields[field])] += count
    total = counts.total() + unknown
    if not total:
        return ""
    parts = [
        f"{column} {format_per_cent_share(count, total)}" for column, count in counts.most_common()
    ]
    if unknown:
        parts.append(
            f"not recognised {format_per_cent_share(unknown, total)}"
            if parts
            else "columns that are not recognised"
        )
    return "labels come from: " + ", ".join(parts)


def _name_column_and_role(field: Field) -> str:
    """The name of a field's column, of messages with the role: `output`, `messages (assistant)`."""
    # The path of a field begins with its column: `messages[2].content` is of the column
    # `messages`.
    column = re.split(r"[.\[]", field.path, maxsplit=1)[0]
    return column if column == field.path else f"{column} ({field.source.label})"


def describe_loss_function(loss: Mapping[str, Any]) -> str:
    """Which function computes the loss, in one line, from `AuditReport.loss`.

    Functions of the user's own that were given and are not called follow: to give a loss to a trainer that has no use
    for it is no error there.
    """
    if not loss.get("name"):
        reason = loss.get("reason")
        return f"the loss is not known: {reason}" if reason else "the loss is not known"
    line = f"the loss is computed by {_name_function_with_place(loss)}"
    called, passed_by = (
        " and ".join(
            f"{one['given_as']} {_name_function_with_place(one)}" for one in loss.get(key, ())
        )
        for key in ("calls", "not_called")
    )
    line += f", which calls {called}" if called else ""
    return f"{line}; not called: {passed_by}" if passed_by else line


def _name_function_with_place(function: Mapping[str, Any]) -> str:
    """A function with its place, `my_loss (train.py:12)`; the name alone where it is a library's."""
    name, file = str(function["name"]), function.get("file")
    return f"{name} ({file}:{function['line']})" if file else name


def audit_verdict_text(report: AuditReport, width: int) -> Text:
    """The audit's verdict sentence, wrapped to the width of a terminal."""
    text = Text("\n".join(wrap_text(audit_verdict(report), width)))
    if report.ledger.supervised:
        text.stylize("bold green", 0, len(f"the loss is on {report.ledger.supervised:,}"))
    else:
        text.stylize("bold red")
    return text


def ledger_rows(report: AuditReport) -> list[LedgerRow]:
    """The ledger by source, and the padding last where there is any."""
    counts = np.zeros((len(Source), 3), np.int64)
    pads = np.zeros(3, np.int64)
    for sample in report.samples:
        # One bincount for each mask counts all sources of a line at once, whatever its length.

        for i, mask in enumerate((sample.supervised, ~sample.supervised, ~sample.attended)):
            counts[:, i] += np.bincount(
                sample.source[mask & ~sample.padding], minlength=len(Source)
            )
            # Padding has no source of its own: its tokens are counted apart, so that "template"
            # does not swallow them.
            pads[i] += int((mask & sample.padding).sum())
    by_source = [
        LedgerRow(s.label, s.name.lower(), *map(int, counts[s])) for s in Source if counts[s].any()
    ]
    return (
        [*by_source, LedgerRow("padding", "padding", *map(int, pads))] if pads.any() else by_source
    )


def measured_laws(report: AuditReport) -> list[MeasuredLaw]:
    """The laws that were measured: broken ones first."""
    severity_by_code = {finding.code: str(finding.severity) for finding in report.findings}
    made = [
        MeasuredLaw(
            name,
            f"{law['value']:.2g}",
            f"{law['tolerance']:.1g}",
            str(law.get("unit", "")),
            holds,
            describe_law_standing(name, holds, severity_by_code),
        )
        for name, law in report.laws.items()
        if "value" in law
        for holds in [law["value"] <= law["tolerance"]]
    ]
    # False sorts before True: broken laws come first.
    return sorted(made, key=lambda law: law.holds)


def describe_law_standing(law: str, holds: bool, severity_by_code: Mapping[str, str]) -> str:
    """Whether a law holds, is broken, or differs for a known reason, in words, with the codes of
    its findings.

    A law is broken where its rule says so. What differs without a finding
    is explained by another one's, was asked for, or its rule was left out.

    Args:
        law: the law's name.
        holds: is its value within the tolerance?
        severity_by_code: the findings of the report, code -> severity.
    """
    if holds:
        return "holds"
    # The rule of a law may look at more than the figure: it is silent where the settings asked
    # for the difference. So what is called broken is what has a finding, and not every value
    # above the tolerance.
    severities = {
        rule.code: severity_by_code[rule.code]
        for rule in all_rules("law")
        if issubclass(rule, LawRule) and rule.law == law and rule.code in severity_by_code
    }
    if not severities:
        return "differs, which other findings or the settings explain"
    # A note does not fail the check, and so the word "broken" must not stand alone beside it.
    noted = "only a note, " if set(severities.values()) == {"info"} else ""
    return f"broken ({noted}{', '.join(severities)})"


def untested_laws(report: AuditReport) -> list[tuple[str, str]]:
    """Names of the laws that were not measured, and why."""
    return [(name, str(law["untested"])) for name, law in report.laws.items() if "untested" in law]


def render_audit_tables(report: AuditReport, console: Console, verbose: bool) -> None:
    """Draw the audit's tables below the findings."""
    if report.samples:
        console.print(_ledger_table(report))
        console.print()
    measured = measured_laws(report)
    if measured:
        console.print(_laws_table(measured, verbose))
        console.print()
    if report.canary:
        console.print(_canary_table(report.canary))
        console.print()
    render_audit_notes(report, console, verbose)


def render_audit_notes(report: AuditReport, console: Console, verbose: bool) -> None:
    """Draw the notes of the audit: what could not be looked at, and what was made otherwise than in
    the run; never folded.
    """
    lines = [
        line
        for note in _lines_on_untested_laws_and_notes(report, verbose)
        for line in wrap_text(escape_invisible_characters(note), console.width)
    ]
    if lines:
        console.print(Text("\n".join(lines) + "\n", style="dim"), soft_wrap=True)


def _new_number_table(first: str, *titles: str) -> Table:
    """An empty table of a first column and columns of numbers."""
    table = borderless_table()
    table.add_column(first)
    for title in titles:
        table.add_column(title, justify="right")
    return table


def _ledger_table(report: AuditReport) -> Table:
    """Tokens by source; what the attention mask hides has a column of its own where there is such text."""
    all_rows, total = ledger_rows(report), report.ledger.total
    # Shares are of the text: with the padding they would depend on the batch size instead of
    # the data.
    text = [row for row in all_rows if row.key != "padding"]
    hidden = any(row.hidden for row in text)
    table = _new_number_table(
        "tokens by source", "supervised", "context", "share", *(("not attended",) if hidden else ())
    )
    sums = (
        sum(row.supervised for row in text),
        sum(row.context for row in text),
        sum(row.hidden for row in text),
    )
    for row in [*text, LedgerRow("all", "all", *sums), *all_rows[len(text) :]]:
        pads = row.key == "padding"
        part = "" if pads else format_per_cent_share(row.supervised + row.context, total)
        cells = [
            f"{row.supervised:,}",
            f"{row.context:,}",
            part,
            *((f"{row.hidden:,}",) if hidden else ()),
        ]
        table.add_row(
            Text(row.label, style=_ledger_row_style(row)),
            *cells,
            style="bold" if row.key == "all" else "",
        )
    return table


def _ledger_row_style(row: LedgerRow) -> str:
    """The colour of a ledger row: red for what should not be (stop tokens that are not learned,
    padding that is).
    """
    if row.key == "padding":
        return "red" if row.supervised else "dim"
    if row.key == "all":
        return ""
    return "green" if row.supervised else ("red" if row.key == "stop" else "")


def _laws_table(measured: list[MeasuredLaw], verbose: bool) -> Table:
    """A line for each law that was measured; with `verbose` what was compared."""
    table = _new_number_table("laws", "measured", "tolerance", "")
    if verbose:
        table.add_column("what was compared")
    for law in measured:
        # Red only where a finding of weight stands behind it; "broken (only a note, ..." is
        # yellow.
        grave = law.standing.startswith("broken (LAW")
        standing = Text(
            law.standing, style="green" if law.holds else "bold red" if grave else "yellow"
        )
        table.add_row(
            law.name,
            law.value,
            law.tolerance,
            standing,
            *((escape_invisible_characters(law.unit),) if verbose else ()),
        )
    return table


def _canary_table(fields: tuple[dict[str, Any], ...]) -> Table:
    """A table of what became of the marker that was put into each field."""
    table = borderless_table()
    table.add_column("canary in")
    table.add_column("became")
    for field in fields:
        seen = str(field["seen"])
        table.add_row(
            Text(escape_invisible_characters(str(field["path"]))),
            Text(escape_invisible_characters(seen), style=CANARY_STYLES.get(seen, "")),
        )
    return table


def _lines_on_untested_laws_and_notes(report: AuditReport, verbose: bool) -> Iterator[str]:
    """Laws that were not measured (counted, or with `verbose` each), then the notes of the audit."""
    # Which laws could not be measured depends on the trainer, and is rarely of use: one line
    # counts them, -v says why.
    left = untested_laws(report)
    if verbose:
        yield from (f"not tested: {name}: {why}" for name, why in left)
    elif left:
        yield f"{count_noun(len(left), 'law')} not tested (-v says why)"
    yield from (f"note: {note}" for note in report.notes)


def replace_non_finite(value: Any) -> Any:
    """A value for JSON: numbers that JSON has not (NaN, infinity) become null, in nested values
    too.
    """
    if isinstance(value, dict):
        return {str(key): replace_non_finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [replace_non_finite(item) for item in value]
    # A law of a loss that is NaN measures NaN, which JSON has not.
    return None if isinstance(value, float) and not math.isfinite(value) else value
