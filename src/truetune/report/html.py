"""The report as one self-contained page: no scripts, no network, everything from data escaped."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

import jinja2

import truetune
from truetune.checks.report import Report, TokenView
from truetune.render.rendering import Run, Source
from truetune.report.show import spell
from truetune.report.terminal import verdict
from truetune.report.text import share, visible

MAX_TOKENS = 20_000
"""Tokens of one example that the page shows; the heading says how many there are."""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def page(report: Report) -> str:
    """A whole HTML document."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        "<title>truetune</title><style>body{margin:0;background:Canvas}</style></head>"
        f"<body>{fragment(report)}</body></html>\n"
    )


def fragment(report: Report) -> str:
    """The report as an HTML fragment, for notebooks."""
    module: Any = _template().module
    return str(
        module.body(
            report,
            _sources(report),
            [_view(view) for view in report.views],
            _histogram(report),
            verdict(report).plain,
            resources.files(__package__).joinpath("page.css").read_text(encoding="utf-8"),
        )
    )


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(autoescape=True, trim_blocks=True)
    environment.filters["visible"] = visible
    environment.globals["version"] = truetune.__version__
    source = resources.files(__package__).joinpath("page.html.jinja").read_text(encoding="utf-8")
    return environment.from_string(source)


def _sources(report: Report) -> list[dict[str, Any]]:
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


def _histogram(report: Report) -> list[dict[str, Any]]:
    lengths = report.lengths
    count = max(1, len(lengths.counts))
    top = max(1, int(lengths.counts.max(initial=0)))
    width = 600 / count
    bins = []
    for i, (n, low, high) in enumerate(zip(lengths.counts, lengths.edges[:-1], lengths.edges[1:], strict=True)):
        height = 140 * int(n) / top
        bins.append(
            {
                "x": round(i * width, 1),
                "y": round(142 - height, 1),
                "width": round(width * 0.9, 1),
                "height": round(height, 1),
                "low": f"{low:,}",
                "over": lengths.limit is not None and low > lengths.limit,
                "title": f"{low:,} to {high - 1:,} tokens: {n:,} examples",
            }
        )
    return bins


def _view(view: TokenView) -> dict[str, Any]:
    row, rendering = view.example.row, view.example.rendering
    title = f"{row.origin} (row {row.origin.row}), {len(view.ids):,} tokens, {int(view.supervised.sum()):,} supervised"
    if rendering.turn is not None:
        title += f", trains turn {rendering.turn} alone"
    if len(view.ids) > MAX_TOKENS:
        title += f"; the first {MAX_TOKENS:,} are shown"
    tokens, start, runs = [], 0, iter(rendering.runs)
    run: Run | None = next(runs, None)
    for piece, id, source, supervised in zip(
        view.pieces[:MAX_TOKENS], view.ids, view.source, view.supervised, strict=False
    ):
        while run is not None and run.end <= start:
            run = next(runs, None)
        kind = Source(int(source))
        label = "supervised" if supervised else "context"
        tokens.append(
            {
                "key": kind.name.lower(),
                "supervised": bool(supervised),
                "title": f"id {id} · {_path(run, start) or kind.label} · {label}",
                "text": spell(piece),
                "breaks": "\n" in piece,
            }
        )
        start += 0 if piece.startswith("\\x") else len(piece)
    return {"title": title, "tokens": tokens}


def _path(run: Run | None, start: int) -> str:
    if run is None or not run.path:
        return ""
    return f"{run.path}[{run.offset + start - run.start}:]" if run.offset >= 0 else run.path
