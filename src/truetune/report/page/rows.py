"""Rows as the token view takes them, as JSON.

A row (all lists have one entry a token):

    row, file, line, turn, format    where it is from; `turn` where one turn alone is trained
    title                            what else names it (`batch 0, line 2`), or null
    ids                              ints
    pieces                           the characters of each token; bytes of a split character as lone surrogates
    source                           a string, one letter a token: "a" is Source 0, "b" Source 1, ...
    supervised                       a string of 0 and 1: is the token's own label in the loss?
    runs                             [[first token, path, offset], ...]: from this token on (to the next run) the text is
                                     `path` from character `offset`; path "" is template text, offset -1 unknown
  and where they are known:
    expected                         like supervised, as the inference contract wants it
    attended, padding                strings of 0 and 1
    positions, documents             ints; documents count from 0, -1 is padding
    origins                          of each document: [file, line, row]
    labels, weights, losses          numbers or null
    twin, twin_name                  the same row as it should be (a row), and what that is
    error                            why there are no tokens (then ids and all other lists are empty)
    problems                         what else is wrong with the row: texts
    left_out                         how many tokens of a very long row are not shown

A server of rows (`truetune view`) answers, by the number of a row in the data, from 0:

    rows?start=K&count=N      {"rows": [row, ...], "total": int or null, "indexed": int, "notice": text or absent}
                              of one row of the data all examples stand one after the other, each with its `row`; there
                              may be fewer rows than asked for (long ones; not yet indexed): ask again from there on.
                              `indexed` rows are known by now, `total` once all are. count is at most 64
    search?q=TEXT&start=K     {"row": int or null, "scanned": int, "done": bool}: the first row from K on that holds the
                              text (ASCII letters of either case); null: none before `scanned`, go on from there
                              unless `done`
    search?kind=error&start=K the same for rows that can't be read or rendered, are faulty, or teach nothing
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truetune.auditing.audit import Sample
from truetune.checks.report import AuditReport, DataReport, Report, TokenView

Row = dict[str, Any]


@singledispatch
def views(report: Report) -> list[Row]:
    """The rows that a report has to show."""
    return []


@views.register
def _(report: DataReport) -> list[Row]:
    return [row_of(view) for view in report.views]


@views.register
def _(report: AuditReport) -> list[Row]:
    return [line_of(sample) for sample in report.samples]


def row_of(view: TokenView) -> Row:
    """An example of `truetune check`."""
    row, rendering = view.example.row, view.example.rendering
    return {
        "row": row.origin.row,
        "file": row.origin.file,
        "line": row.origin.line,
        "turn": rendering.turn,
        "format": row.format,
        "title": None,
        "ids": view.ids.tolist(),
        "pieces": list(view.pieces),
        "source": letters(view.source),
        "supervised": bits(view.supervised),
        "runs": list(_runs(view)),
    }


def line_of(sample: Sample) -> Row:
    """A line of an audited batch."""
    made: Row = {
        "row": None,
        "file": None,
        "line": None,
        "turn": None,
        "format": None,
        "title": sample.place + (f", placed by {sample.placed_by}" if sample.placed_by else ""),
        "ids": sample.ids.tolist(),
        "pieces": list(sample.pieces),
        "source": letters(sample.source),
        "supervised": bits(sample.supervised),
        "runs": [
            [i, sample.fields[owner].path if owner >= 0 else "", -1] for i, owner in _changes(sample.field.tolist())
        ],
        "attended": bits(sample.attended),
        "padding": bits(sample.padding),
        "documents": sample.documents.tolist(),
    }
    if sample.expected is not None:
        made["expected"] = bits(sample.expected)
    if sample.positions is not None:
        made["positions"] = sample.positions.tolist()
    return made


def letters(source: NDArray[np.uint8]) -> str:
    """(tokens,) numbers of sources as letters from "a" on."""
    return (np.asarray(source, np.uint8) + ord("a")).tobytes().decode("ascii")


def bits(mask: NDArray[np.bool_]) -> str:
    """(tokens,) as a string of 0 and 1."""
    return (np.asarray(mask, np.uint8) + ord("0")).tobytes().decode("ascii")


def _changes(values: list[int]) -> Iterator[tuple[int, int]]:
    """(index, value) wherever the value is another than before."""
    for i, value in enumerate(values):
        if not i or value != values[i - 1]:
            yield i, value


def _runs(view: TokenView) -> Iterator[list[Any]]:
    """One entry wherever a token begins in another run than the token before; its offset is that of the token."""
    runs = iter(view.example.rendering.runs)
    run, last = next(runs, None), None
    for i, start in enumerate(view.starts.tolist()):
        while run is not None and run.end <= start:
            run = next(runs, None)
        if run is not last or not i:
            last = run
            known = run is not None and run.path and run.offset >= 0
            yield [i, run.path if run else "", run.offset + start - run.start if run is not None and known else -1]
