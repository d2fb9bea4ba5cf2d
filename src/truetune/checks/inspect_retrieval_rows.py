"""Inspects rows that train an embedding model or a reranker: what they are, and what the rules on them find."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median

from truetune.checks.judgement import NotJudged
from truetune.checks.reports import Report, Subject
from truetune.checks.rule import RetrievalRule
from truetune.checks.rule_runner import choose_rules, run_rules
from truetune.data.retrieval_rows import (
    MAX_ROWS,
    Layout,
    RetrievalData,
    layout_of_file,
    read_retrieval_rows,
)
from truetune.settings.run_spec import RunSpec

RETRIEVAL_KIND = "rows of an embedding model or a reranker"
RULES_ON_CHATS = "the rules on chats, tokens and answers"


def retrieval_layout(path: str, spec: RunSpec) -> Layout | None:
    """The layout of the rows of a path, if they train an embedding model or a reranker; None for other rows.

    A format or a map that is named says that they are something else.
    """
    if spec.format is not None or spec.map or "://" in path:
        return None
    return layout_of_file(path)


def inspect_retrieval_rows(
    paths: Sequence[str], layout: Layout, spec: RunSpec, evaluation: Sequence[str] = ()
) -> Report:
    """Judge the rows of files that train an embedding model or a reranker.

    Args:
        paths: files of one layout.
        layout: theirs.
        spec: selects rules.
        evaluation: files of evaluation rows, of the same layout.

    Raises:
        DataError: a file can't be read.
    """
    started = time.perf_counter()
    data = read_retrieval_rows(list(paths), layout)
    if evaluation:
        held_out = read_retrieval_rows(list(evaluation), layout)
        data = replace(data, evaluation=held_out.rows)
    judgement = run_rules(data, choose_rules(spec, RetrievalRule))
    subject = Subject(RETRIEVAL_KIND, ", ".join(paths), tuple(_facts_of_rows(data)))
    return Report(
        spec=spec,
        subjects=(subject,),
        findings=judgement.findings,
        examined=judgement.examined,
        not_judged=(*_parts_left_out(data), *judgement.not_judged),
        seconds=time.perf_counter() - started,
    )


def _facts_of_rows(data: RetrievalData) -> Iterator[tuple[str, str]]:
    """Short facts on the rows, by name."""
    rows = data.rows
    yield "layout", data.layout
    yield "rows", f"{len(rows):,}"
    if not rows:
        return
    yield "positives a row", f"median {median(len(row.positives) for row in rows):g}"
    yield "negatives a row", f"median {median(len(row.negatives) for row in rows):g}"
    scores = [row.score for row in rows if row.score is not None]
    if scores:
        yield "scores", f"{min(scores):g} to {max(scores):g}"
    queries = median(len(row.query.split()) for row in rows)
    texts = [len(text.split()) for row in rows for text in (*row.positives, *row.negatives)]
    yield "words", f"query: median {queries:g}; text: median {median(texts or [0]):g}"


def _parts_left_out(data: RetrievalData) -> Iterator[NotJudged]:
    """What of the rows was not judged."""
    yield NotJudged(
        RULES_ON_CHATS,
        "these rows train embeddings or scores of texts, and no answers",
        asked=False,
    )
    if data.broken:
        place = f"{data.broken[0].file}:{data.broken[0].line}"
        yield NotJudged(f"{len(data.broken):,} lines", "they hold no query with texts", place=place)
    if data.is_cut:
        yield NotJudged(f"rows after the first {MAX_ROWS:,}", "more are not read", asked=False)
