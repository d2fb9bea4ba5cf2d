"""The report as one self-contained page: no scripts, no network, everything from data escaped."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

import jinja2
import numpy as np

import truetune
from truetune.checks.report import AuditReport, DataReport, Lengths, Report, TokenView
from truetune.encoding.ledger import Ledger
from truetune.render.rendering import Run, Source
from truetune.report import audited
from truetune.report.plot import svg
from truetune.report.terminal import verdict
from truetune.report.text import many, share, spell, visible

if TYPE_CHECKING:
    from truetune.auditing.audit import Sample

TOKENS_OF_A_VIEW = 20_000
TOKENS_OF_A_PAGE = 60_000
"""Shared among the views; a view that is cut says so."""
CANVAS = "body{margin:0;background:Canvas}"


def page(report: Report) -> str:
    """A whole HTML document."""
    policy = f"default-src 'none'; style-src {_hash(CANVAS)} {_hash(_style())}; base-uri 'none'; form-action 'none'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>truetune</title><style>{CANVAS}</style></head>"
        f"<body>{fragment(report)}</body></html>\n"
    )


def fragment(report: Report) -> str:
    """The report as an HTML fragment, for notebooks."""
    learned = _learned(report) if isinstance(report, DataReport) and report.rows else None
    seen = _audited(report) if isinstance(report, AuditReport) else None
    return _template().render(report=report, learned=learned, seen=seen, style=_style())


def _learned(report: DataReport) -> dict[str, Any]:
    """What is drawn where there were rows."""
    limit = min(TOKENS_OF_A_VIEW, TOKENS_OF_A_PAGE // max(1, len(report.views)))
    return {
        "verdict": verdict(report).plain,
        "sources": _sources(report),
        "bar": list(_bar(report.ledger)),
        "histogram": _histogram(report.lengths),
        "views": [_view(view, limit) for view in report.views],
        "viewed": {view.example.row.origin.row for view in report.views},
    }


def _audited(report: AuditReport) -> dict[str, Any]:
    """What is drawn of an audit; of each batch the first line, and of pairs the first of each side."""
    rows = audited.rows(report)
    first = {(s.rank, s.batch, s.side): s for s in reversed(report.samples)}
    shown = sorted(first.values(), key=lambda s: (s.rank, s.batch, s.line))
    limit = min(TOKENS_OF_A_VIEW, TOKENS_OF_A_PAGE // max(1, len(shown)))
    return {
        "verdict": audited.verdict(report),
        "rows": rows,
        "hidden": any(row.hidden for row in rows if row.key != "padding"),
        "bar": list(_bar(report.ledger)),
        "laws": audited.laws(report),
        "untested": audited.untested(report),
        "views": [_line(sample, limit) for sample in shown],
    }


def _line(sample: Sample, limit: int) -> dict[str, Any]:
    tokens, supervised = many(len(sample.ids), "token"), int(sample.supervised.sum())
    how = f", placed by {sample.placed_by}" if sample.placed_by else ""
    cut = f"; the first {limit:,} are shown" if len(sample.ids) > limit else ""
    return {"title": f"{sample.place}: {tokens}, {supervised:,} supervised{how}{cut}",
            "tokens": list(_places(sample, limit))}  # fmt: skip


def _places(sample: Sample, limit: int) -> Iterator[dict[str, Any]]:
    """Each place of a line, with all that is known of it; what is learned and should not be, or the other way round,
    is marked."""
    expected: Sequence[bool] = sample.supervised.tolist() if sample.expected is None else sample.expected.tolist()
    for i, piece in enumerate(sample.pieces[:limit]):
        supervised, pad, owner = bool(sample.supervised[i]), bool(sample.padding[i]), int(sample.field[i])
        kind = Source(int(sample.source[i]))
        facts = [
            f"id {sample.ids[i]}",
            "padding" if pad else (sample.fields[owner].path if owner >= 0 else kind.label),
            "supervised" if supervised else "context",
            *(["must be learned" if expected[i] else "must not be learned"] if supervised != expected[i] else []),
            *([] if sample.attended[i] else ["not attended"]),
            *([f"position {sample.positions[i]}"] if sample.positions is not None else []),
            *([f"document {sample.documents[i]}"] if not pad and sample.documents.max() > 0 else []),
        ]
        yield {
            "key": "padding" if pad else kind.name.lower(),
            "supervised": supervised,
            "wrong": supervised != expected[i] and sample.labels is not None,
            "title": " · ".join(facts),
            "text": spell(piece),
            "breaks": piece.count("\n"),
        }


@cache
def _style() -> str:
    return _file("page.css")


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(style: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()}'"


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined)
    environment.filters |= {"visible": lambda value: visible(str(value)), "many": many, "number": "{:,}".format}
    environment.globals |= {"version": truetune.__version__, "svg": svg}
    return environment.from_string(_file("page.html.jinja"))


def _sources(report: DataReport) -> list[dict[str, Any]]:
    total = report.ledger.total
    return [
        {
            "key": source.name.lower(),
            "label": source.label,
            "supervised": supervised,
            "context": context,
            "share": share(supervised + context, total),
        }
        for source, supervised, context in report.ledger.rows()
    ]


def _bar(ledger: Ledger) -> Iterator[dict[str, Any]]:
    """What is supervised, then the context, as parts of 1,000."""
    rows, total, done = ledger.rows(), max(1, ledger.total), 0
    for kind, column in (("supervised", 1), ("context", 2)):
        for row in rows:
            if count := int(row[column]):
                title = f"{row[0].label}: {count:,} {kind}"
                x, width = round(1000 * done / total, 2), round(1000 * count / total, 2)
                yield {"key": row[0].name.lower(), "kind": kind, "x": x, "width": width, "title": title}
                done += count


def _histogram(lengths: Lengths) -> dict[str, Any]:
    """Bars of one width in a box of 600 x 140; the last may stand for a wider range."""
    top, width = max(1, int(lengths.counts.max(initial=0))), 600 / max(1, len(lengths.counts))
    bars = []
    for i, (count, low, high) in enumerate(zip(lengths.counts, lengths.edges[:-1], lengths.edges[1:], strict=True)):
        height = round(140 * int(count) / top, 1)
        bars.append(
            {
                "x": round(i * width, 1),
                "y": round(140 - height, 1),
                "width": round(width * 0.94, 1),
                "height": height,
                "over": lengths.limit is not None and low > lengths.limit,
                "title": f"{low:,} to {high - 1:,} tokens: {many(int(count), 'example')}",
            }
        )
    places = np.linspace(0, 600, len(lengths.edges))
    middle = int(np.interp(300, places, lengths.edges))
    limit = lengths.limit if lengths.limit is not None and lengths.limit < lengths.edges[-1] else None
    return {
        "bars": bars,
        "marks": [int(lengths.edges[0]), middle, int(lengths.edges[-1])],
        "line": None if limit is None else round(float(np.interp(limit, lengths.edges, places)), 1),
    }


def _view(view: TokenView, limit: int) -> dict[str, Any]:
    row, rendering = view.example.row, view.example.rendering
    tokens, supervised = many(len(view.ids), "token"), int(view.supervised.sum())
    title = f"{row.origin} (row {row.origin.row}), {tokens}, {supervised:,} supervised"
    if rendering.turn is not None:
        title += f", trains turn {rendering.turn} alone"
    if len(view.ids) > limit:
        title += f"; the first {limit:,} are shown"
    return {"row": row.origin.row, "title": title, "tokens": list(_tokens(view, limit))}


def _tokens(view: TokenView, limit: int) -> Iterator[dict[str, Any]]:
    runs = iter(view.example.rendering.runs)
    run: Run | None = next(runs, None)
    columns = (view.pieces, view.ids.tolist(), view.starts.tolist(), view.source.tolist(), view.supervised.tolist())
    for piece, id, start, source, supervised in list(zip(*columns, strict=True))[:limit]:
        while run is not None and run.end <= start:
            run = next(runs, None)
        kind = Source(source)
        yield {
            "key": kind.name.lower(),
            "supervised": supervised,
            "title": f"id {id} · {_path(run, start) or kind.label} · {'supervised' if supervised else 'context'}",
            "text": spell(piece),
            "breaks": piece.count("\n"),
        }


def _path(run: Run | None, start: int) -> str:
    if run is None or not run.path:
        return ""
    return f"{run.path}[{run.offset + start - run.start}:]" if run.offset >= 0 else run.path
