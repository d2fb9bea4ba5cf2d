"""Any report as JSON; the schema is docs/schema/report-1.json.

What every report has is written here, in one order; what one kind of report has besides is asked of it
(`Report.more`). Keys are part of the public interface: they are added, never renamed. The trade-off: the
JSON holds what the page draws as well (rows of tokens, tables), which makes it large, and a page can
be drawn again from the file alone (`truetune report result.json`), without the data or the model.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from truetune.checks.findings import Case, Finding, Fix
from truetune.checks.fingerprint_findings import fingerprints_of_findings
from truetune.checks.judgement import Examined, NotJudged
from truetune.checks.plot_of_finding import Figure
from truetune.checks.reports import AuditReport, DataReport, Report
from truetune.encoding.token_counts import Ledger
from truetune.package import __version__
from truetune.report import audit_terminal
from truetune.report.page.choose_cited_rows_for_page import token_rows_of_report
from truetune.report.record_terminal_drawing_as_tables import record_report_details
from truetune.report.verdict_and_next_step import next_step_of_report, report_verdict

SCHEMA = "truetune.report/1"


def to_json(report: Report) -> str:
    """The report as a JSON object of schema `truetune.report/1`, in ASCII: safe on any terminal and in any encoding.

    Each of `runs` and `views` stands on one line, and each part of `data`."""
    # Indented, each of a thousand token ids would have a line of its own. So what is long is
    # taken out, written one row a line, and put behind the rest: files stay small enough to
    # open, and a diff shows which row has changed.
    value = report_as_dict(report)
    lists = {name: value.pop(name) for name in ("runs", "views") if name in value}
    figures = ",".join(
        f"\n    {json.dumps(name)}: {json.dumps(part)}"
        for name, part in value.pop("data", {}).items()
    )
    ends = [f'"data": {{{figures}\n  }}'] if figures else []
    for name, items in lists.items():
        rows = ",".join(f"\n    {json.dumps(item)}" for item in items)
        ends.append(f'"{name}": [{rows}\n  ]')
    return ",\n  ".join([json.dumps(value, indent=2).removesuffix("\n}"), *ends]) + "\n}"


def report_as_dict(report: Report) -> dict[str, Any]:
    """The JSON object: what every report has, and what this kind of report has besides."""
    # What the kind of report says of itself wins over what its log says.
    more = run_log_json(report) | report.more()
    return {
        "schema": SCHEMA,
        "truetune": __version__,
        # A log brings its own sentence; it is the verdict only where nothing of greater weight
        # has one.
        "verdict": more.pop("verdict", None) or report_verdict(report),
        "next": next_step_of_report(report, more.get("runs") or ()),
        "spec": report.spec.model_dump(mode="json"),
        "subjects": [
            {"kind": s.kind, "path": s.path, "facts": dict(s.facts)} for s in report.subjects
        ],
        **(_data_report_only_parts_json(report) if isinstance(report, DataReport) else {}),
        **({"audit": _audit_only_parts_json(report)} if isinstance(report, AuditReport) else {}),
        **more,
        "findings": findings_json(report.findings),
        "known": findings_json(report.known),
        "examined": examined_json(report.examined),
        "not_judged": not_judged_json(report.not_judged),
        "outcome": report.outcome,
        "failed": report.failed(),
        "seconds": round(report.seconds, 3),
        # Drawn tables and rows are kept in the file, so that a page that is made of it later is
        # the same.
        "shown": record_report_details(report),
        "views": token_rows_of_report(report),
    }


def examined_json(parts: Iterable[Examined]) -> list[dict[str, Any]]:
    """The checks that were made and found nothing, as JSON."""
    return [
        {
            "rule": part.rule,
            "code": part.code,
            "looked_for": part.looked_for,
            "figure": part.figure,
            "count": part.count,
            "of": part.of,
        }
        for part in parts
    ]


def not_judged_json(parts: Iterable[NotJudged]) -> list[dict[str, Any]]:
    """What could not be judged, and why, as JSON."""
    return [
        {
            "what": part.what,
            "code": part.code,
            "reason": part.reason,
            "place": part.place,
            "unlock": part.unlock,
            "asked": part.asked,
        }
        for part in parts
    ]


def run_log_json(report: Report) -> dict[str, Any]:
    """The part of the JSON on the run's log: its curves, and the verdict on them where no data has
    one; empty without a log.
    """
    # Reading a run again loads the evaluation package: a check without a log has no need of it.
    if not any(subject.log for subject in report.subjects):
        return {}
    from truetune.evaluation.training_run_report import page_values_of_only_log

    run_json = page_values_of_only_log(report)
    return (
        # Beside rows of data the sentence on the log would contradict the one on the data: only
        # its curves stay.
        {"runs": run_json["runs"]}
        if run_json and isinstance(report, DataReport) and report.rows
        else run_json
    )


def _data_report_only_parts_json(report: DataReport) -> dict[str, Any]:
    """The parts that only a report on data has: the tokenizer, counts, the ledger, lengths and
    figures.
    """
    lengths = report.lengths
    return {
        "tokenizer": {"folder": report.tokenizer, "facts": report.facts},
        "rows": report.rows,
        "examples": report.examples,
        "rejected": report.rejected,
        "unsupervised": report.unsupervised,
        "formats": report.formats,
        "templates": report.templates,
        "ledger": ledger_json(report.ledger),
        "lengths": {
            "counts": lengths.counts.tolist(),
            "edges": lengths.edges.tolist(),
            "median": lengths.median,
            "p95": lengths.p95,
            "longest": lengths.longest,
            "limit": lengths.limit,
            "over": lengths.over,
            "lost_tokens": lengths.lost_tokens,
            "lost_supervised": lengths.lost_supervised,
            "media": (
                {**asdict(lengths.media), "says": lengths.media.note_on_lengths}
                if lengths.media
                else None
            ),
        },
        "data": report.data,
    }


def _audit_only_parts_json(report: AuditReport) -> dict[str, Any]:
    """The parts that only an audit has: the ledger with what is not attended, its lines, loss,
    laws, canary and notes.
    """
    return {
        "ledger": {
            row.key: {
                "supervised": row.supervised,
                "context": row.context,
                "not_attended": row.hidden,
            }
            for row in audit_terminal.ledger_rows(report)
        },
        "batches": report.batches,
        "lines": [
            {
                "rank": sample.rank,
                "batch": sample.batch,
                "line": sample.line,
                "side": sample.side,
                "placed_by": sample.placed_by,
                "places": len(sample.ids),
                # `places` counts every position of the line, `tokens` those that are no
                # padding: their difference is what the batch wastes.
                "tokens": int((~sample.padding).sum()),
                "supervised": int(sample.supervised.sum()),
                "documents": int(sample.documents.max(initial=-1)) + 1,
            }
            for sample in report.samples
        ],
        "label_columns": audit_terminal.describe_label_columns(report),
        "loss": {**report.loss, "summary": audit_terminal.describe_loss_function(report.loss)},
        "laws": audit_terminal.replace_non_finite(report.laws),
        "canary": audit_terminal.replace_non_finite(report.canary),
        "notes": list(report.notes),
    }


def ledger_json(ledger: Ledger) -> dict[str, dict[str, int]]:
    """The ledger as JSON: for each source its token counts."""
    return {
        source.name.lower(): {"supervised": supervised, "context": context}
        for source, supervised, context in ledger.rows()
    }


def findings_json(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Findings as JSON, as a report holds them, with their fingerprints."""
    findings = list(findings)
    # Of all findings at once: places with the same contents are numbered through the whole
    # report, so that a baseline notices one more of them.
    prints = fingerprints_of_findings(findings)
    return [
        _finding_without_fingerprints_json(finding) | {"fingerprints": list(own)}
        for finding, own in zip(findings, prints, strict=True)
    ]


def _finding_without_fingerprints_json(finding: Finding) -> dict[str, Any]:
    """One finding as JSON, without its fingerprints, which depend on the other findings."""
    return {
        "rule": finding.rule,
        "code": finding.code,
        "fault": finding.fault,
        "severity": finding.severity,
        "message": finding.message,
        "remedy": finding.remedy,
        "evidence": list(finding.evidence),
        "count": finding.count,
        "total": finding.total,
        "cases": [_case_json(case) for case in finding.cases],
        "fix": _fix_json(finding.fix) if finding.fix else None,
        "figure": _figure_json(finding.figure) if finding.figure else None,
    }


def _fix_json(fix: Fix) -> dict[str, Any]:
    """The edits of a fix as JSON: characters `start` to `end` of the file become `text`."""
    # Offsets count characters of the file as it was read, as editors and other programs apply
    # them.
    edits = [{"start": edit.start, "end": edit.end, "text": edit.text} for edit in fix.edits]
    return {"file": fix.file, "safe": fix.safe, "edits": edits}


def _figure_json(figure: Figure) -> dict[str, Any]:
    """A finding's figure (title, series, marks) as JSON; NaN, which JSON has not, becomes null."""
    return {
        "title": figure.title,
        "log": figure.log,
        "series": [
            {
                "name": line.name,
                "x": list(line.x),
                # Python would write NaN, which is no JSON: browsers and jq refuse the whole
                # file for it.
                "y": [y if math.isfinite(y) else None for y in line.y],
            }
            for line in figure.series
        ],
        "marks": [{"x": mark.x, "label": mark.label} for mark in figure.marks],
    }


def _case_json(case: Case) -> dict[str, Any]:
    """One case of a finding as JSON: its text, and the file, line, row, turn or token where it is."""
    # A case is on a row of data, which has an origin, or on a line of a script or a setting,
    # which has a file.
    origin = case.origin
    return {
        "text": case.text,
        "file": origin.file if origin else case.file,
        "line": origin.line if origin else case.line,
        "column": case.column,
        "row": origin.row if origin else None,
        "turn": case.turn,
        "token": case.token,
        "side": case.side,
    }
