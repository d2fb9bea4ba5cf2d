"""Puts into findings on the form of rows the edit that ends them, which is found by trying the
remedies on some of the rows.

A rule says which rows are wrong; which change makes a template take them can only be found by trying. So some of the
rows that a finding names are read again, the remedies of its rule are tried on them as `truetune fix` does, and the
finding's remedy becomes the first edit that helps, with the command that makes it in all rows. Nothing is advised that
was not tried.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any

from truetune.checks.check_data import load_tokenizer_and_template
from truetune.checks.findings import Finding
from truetune.checks.reports import AnyReport, DataReport
from truetune.checks.reread_rows_of_findings import reread_rows
from truetune.checks.template_refusal_cause import template_error_without_quoted_row_text
from truetune.data.conversation import Conversation, Origin
from truetune.data.find_data_files import (
    COMPRESSION_SUFFIXES,
    DataFile,
    find_data_files_of_paths,
    open_raw,
)
from truetune.data.read_parquet_and_arrow_rows import read_record_batches
from truetune.data.remote_path import RemotePath
from truetune.errors import MAX_SHOWN, TruetuneError
from truetune.fixing.apply_proved_remedies import Fixer, FixRow, MadeChange
from truetune.fixing.base_of_row_remedies import Remedy, RemedyContext
from truetune.fixing.editable_row_of_file import JsonBody, RowBody, TableBody
from truetune.fixing.fix_parquet_and_arrow_files import TypedBody
from truetune.fixing.judge_rows_before_and_after_edits import RowJudge
from truetune.fixing.remedy_catalogue import all_remedies
from truetune.fixing.row_edits import Edit, EditError, format_path
from truetune.settings.row_formats import is_script_named_as_format
from truetune.settings.run_spec import RunSpec

TRIED_RULES = ("template-rejects-rows", "values-printed-as-python")
"""Rules whose remedy depends on row and template; the others know theirs by themselves"""
# Chosen, not measured: rows of which a finding says the same mostly have one cause; a second one
# shows in three.
MAX_ROWS_OF_A_TEXT = 3
"""Rows that are tried of those of which a finding says the same"""
# Chosen, not measured: each row costs some renderings for each remedy.
MAX_TRIED_ROWS = 48
"""Rows that are tried for one finding, so that a check stays nearly as quick as without"""
# Chosen, not measured: reading up to there takes seconds.
MAX_ROW_NUMBER = 50_000
"""Rows from this one on are not tried: to read them may take as long as the check"""
# Chosen, not measured: a remedy is one line of a terminal.
MAX_SHOWN_EDITS = 2
"""Edits of a row that a remedy spells out"""


@dataclass
class _CauseGroup:
    """The rows that are refused for one cause, and what became of them when edits were tried."""

    cause: str
    """What the template raised; empty where it takes the rows"""
    rows: int = 0
    rendered: int = 0
    """Rows that a safe edit helped"""
    unsafe: int = 0
    """Rows that only an edit helped which may change what they mean"""
    example: list[MadeChange] = field(default_factory=list)
    """The edits of the first row that was helped; those of a safe remedy before others"""
    example_is_safe: bool = False


@dataclass(frozen=True)
class _CsvRowBody(TableBody):
    """The body of a row of a CSV file: cells hold text alone."""

    def edited(self, edit: Edit) -> _CsvRowBody:
        """The row with one change. Raises EditError where a cell would hold anything but text."""
        row = TableBody(self.value).edited(edit).value
        if not all(isinstance(cell, str) for cell in row.values()):
            raise EditError("a cell of a CSV file holds text alone")
        return _CsvRowBody(row)


def with_suggested_edits(report: AnyReport) -> AnyReport:
    """The report; its findings on the form of rows have the edit that helps as their remedy.

    As it is where it has no such finding, where no edit helps, or where the rows can't be read any more.
    """
    if not isinstance(report, DataReport) or not any(
        map(_has_remedy_that_depends_on_rows, report.findings)
    ):
        return report
    if report.spec.format is not None and is_script_named_as_format(report.spec.format):
        # The rows are what a script makes of the file: an edit of theirs is none of the file.
        return report
    try:
        findings = [
            _finding_with_tried_edit(finding, report.spec)
            if _has_remedy_that_depends_on_rows(finding)
            else finding
            for finding in report.findings
        ]
    # The rows were readable when they were checked, and may not be now: the finding stands without
    # an edit.
    except (TruetuneError, OSError):
        return report
    return replace(report, findings=tuple(findings))


def _has_remedy_that_depends_on_rows(finding: Finding) -> bool:
    """Is it a finding whose remedy depends on what its rows hold?"""
    return finding.rule in TRIED_RULES and bool(finding.cases)


def _finding_with_tried_edit(finding: Finding, spec: RunSpec) -> Finding:
    """The finding, with the edit that helped most of its rows as the remedy. Raises TruetuneError,
    OSError.
    """
    rows = list(reread_rows(spec, _origins_of_rows_to_try(finding)))
    groups = _try_remedies(rows, finding.rule, spec)
    best = max(
        (group for group in groups if group.example),
        key=lambda g: (g.example_is_safe, g.rows),
        default=None,
    )
    evidence = (
        *finding.evidence,
        *(_evidence_on_tried_edits(group, is_best=group is best) for group in groups),
    )
    remedy = finding.remedy if best is None else _remedy_in_words(finding, best, spec)
    return replace(finding, remedy=remedy, evidence=evidence)


def _origins_of_rows_to_try(finding: Finding) -> list[Origin]:
    """Which rows to try: the first ones of each text of the finding's cases."""
    taken: dict[str, int] = {}
    places = []
    for case in finding.cases:
        if (
            case.origin is None
            or case.origin.row >= MAX_ROW_NUMBER
            or taken.get(case.text, 0) >= MAX_ROWS_OF_A_TEXT
        ):
            continue
        taken[case.text] = taken.get(case.text, 0) + 1
        places.append(case.origin)
        if len(places) == MAX_TRIED_ROWS:
            break
    return places


def _try_remedies(rows: Sequence[Conversation], rule: str, spec: RunSpec) -> list[_CauseGroup]:
    """Try the rule's remedies on rows, the safe ones first; gives the rows by cause, the most
    frequent cause first.
    """
    # The exact way: a few rows, and nothing may be advised that a shortcut only seems to prove.
    setup = load_tokenizer_and_template(spec, only_reference=True)
    judge, context = RowJudge(setup, only_reference=True), RemedyContext(spec, setup)
    kinds = [remedy for remedy in all_remedies() if remedy.rule == rule]
    bodies = dict(zip((row.origin for row in rows), _read_bodies_of_rows(rows, spec), strict=True))
    groups: dict[str, _CauseGroup] = {}
    for row in rows:
        reason = judge([row]).template_refusal_reason_by_row.get(row.origin.row)
        cause = "" if reason is None else template_error_without_quoted_row_text(row, reason)
        group = groups.setdefault(cause, _CauseGroup(cause))
        group.rows += 1
        # An edit that may change what a row means is only tried where no safe one helps.
        for is_safe in (True, False):
            changes = _changes_that_help(
                row,
                bodies[row.origin],
                [kind for kind in kinds if kind.safe == is_safe],
                context,
                judge,
            )
            if changes:
                _count_row(group, changes, is_safe=is_safe)
                break
    # The most frequent cause first: it is the one that the finding is mostly about.
    return sorted(groups.values(), key=lambda group: -group.rows)


def _changes_that_help(
    row: Conversation,
    body: RowBody,
    remedies: Sequence[type[Remedy]],
    context: RemedyContext,
    judge: RowJudge,
) -> list[MadeChange]:
    """The changes that help a row, of one remedy alone first; none where the row would be dropped,
    or none helps.
    """
    for kind in remedies:
        fixed = FixRow(row.origin, body, row)
        Fixer(context, judge, [kind(context)], [])([fixed])
        # To drop a row always ends its fault: that is no advice.
        if fixed.changes and not fixed.dropped:
            return fixed.changes
    return []


def _count_row(group: _CauseGroup, changes: list[MadeChange], *, is_safe: bool) -> None:
    """Count a row that edits helped; the first one is the example."""
    if is_safe:
        group.rendered += 1
    else:
        group.unsafe += 1
    if not group.example or (is_safe and not group.example_is_safe):
        group.example, group.example_is_safe = changes, is_safe


def _read_bodies_of_rows(rows: Sequence[Conversation], spec: RunSpec) -> Iterator[RowBody]:
    """The rows as their files hold them, so far as that says which edits can be made."""
    sources = {str(source.path): source for source in find_data_files_of_paths(spec.data)}
    schemas: dict[str, Any] = {}
    for row in rows:
        source = sources[row.origin.file]
        if source.kind == "csv":
            yield _CsvRowBody(row.raw or {})
        elif source.kind in ("parquet", "arrow"):
            if row.origin.file not in schemas:
                schemas[row.origin.file] = _table_schema(source)
            yield TypedBody(row.raw or {}, schemas[row.origin.file])
        else:
            # Not the line of the file: the spelling of the rest does not matter here.
            yield JsonBody(json.dumps(row.raw, ensure_ascii=False))


def _table_schema(source: DataFile) -> Any:
    """The schema of a table."""
    with open_raw(source.path) as raw:
        return next(iter(read_record_batches(source, raw))).schema


def _evidence_on_tried_edits(group: _CauseGroup, *, is_best: bool) -> str:
    """One line on what came of trying: `tried on 3 rows: ...`."""
    about = f"tried on {group.rows:,} row{'s' * (group.rows != 1)}" + (
        f" ({group.cause})" if group.cause else ""
    )
    if not group.example:
        return f"{about}: no mechanical edit helps"
    helped = group.rendered or group.unsafe
    edit = "the edit below" if is_best else _changes_in_words(group.example)
    caution = "" if group.rendered else ", and may change what the row means"
    return f"{about}: {edit} helps in {helped:,} of them{caution}"


def _remedy_in_words(finding: Finding, best: _CauseGroup, spec: RunSpec) -> str:
    """The remedy in words: the edit that helps most rows, and the command that makes it in all."""
    edit = f"{_changes_in_words(best.example)} ({best.example[0].origin})"
    files_named = {case.origin.file for case in finding.cases if case.origin is not None}
    # The command takes one file: the others need it as well.
    others = len(files_named) - 1
    files = f", and so for the {others:,} other file{'s' * (others != 1)}" if others else ""
    command = _fix_command(finding.rule, best, spec)
    if command is None:
        return f"{edit}, and the same in the other rows"
    if best.example_is_safe:
        return f"{edit}; {command} makes such edits{files}"
    unsafe = "which may change what the row means"
    return f"{edit}, {unsafe}; {command} makes such edits, and drops rows that none helps{files}"


def _fix_command(rule: str, best: _CauseGroup, spec: RunSpec) -> str | None:
    """The `truetune fix` command that makes the edit in the whole file; None where there is no such
    command.
    """
    name = best.example[0].origin.file
    source = next(
        source for source in find_data_files_of_paths(spec.data) if str(source.path) == name
    )
    # `truetune fix` reads files of this machine alone.
    if isinstance(source.path, RemotePath):
        return None
    words = ["truetune", "fix", name, "-o", _name_of_fixed_file(name), "--select", rule]
    for flag, value in (
        ("-t", spec.tokenizer),
        ("--model", spec.model),
        ("--template", spec.template),
        ("--data-format", spec.format),
    ):
        words += [flag, str(value)] if value is not None else []
    for ours, column in spec.map.items():
        words += ["--map", f"{ours}={column}"]
    return f"`{shlex.join(words if best.example_is_safe else [*words, '--unsafe'])}`"


def _name_of_fixed_file(name: str) -> str:
    """`chats.fixed.jsonl.gz` of `chats.jsonl.gz`, in the folder where the command runs"""
    path = PurePath(name)
    endings = (
        path.suffixes[-2:] if path.suffix.lower() in COMPRESSION_SUFFIXES else path.suffixes[-1:]
    )
    ending = "".join(endings)
    return f"{path.name.removesuffix(ending)}.fixed{ending}"


def _changes_in_words(changes: Sequence[MadeChange]) -> str:
    """The first edits of a row in words: `messages[1].content: null -> ""`"""
    parts = [
        f"{format_path(change.path)}: {_value_in_words(change.before)} -> {_value_after_in_words(change)}"
        for change in changes
    ]
    more = len(parts) - MAX_SHOWN_EDITS
    return ", ".join(parts[:MAX_SHOWN_EDITS]) + (f" and {more:,} more" if more > 0 else "")


def _value_after_in_words(change: MadeChange) -> str:
    """The value after a change, in words: `taken out` for a turn that a remedy removes, which is
    not a turn of null.
    """
    is_turn = isinstance(change.path[-1], int) and isinstance(change.before, dict)
    return "taken out" if change.after is None and is_turn else _value_in_words(change.after)


def _value_in_words(value: Any) -> str:
    """A value as JSON, clipped."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."
