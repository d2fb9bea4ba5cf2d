"""Finds the answers in the batches: where each stands that a served model must produce, and what of
it has labels.

An audit knows of each token which field it comes from, and whether inference must produce it. From that, an answer is a
run of expected tokens, whatever the template. Only lines whose labels are of their own tokens are looked at: where
labels are shifted, each rule on single tokens would fire, and one rule names the cause.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truetune.auditing.audit import NO_DOCUMENT, Audit, Sample
from truetune.auditing.expected_tokens_without_rendering import find_answer_marker
from truetune.auditing.list_row_texts_with_sources import parse_row
from truetune.render.rendering import Source
from truetune.settings.row_formats import row_formats

PROMPT_SOURCES = (Source.SYSTEM, Source.USER, Source.TOOL_RESULT, Source.TOOLS)
ANSWER_SOURCES = (Source.ASSISTANT, Source.REASONING, Source.TOOL_CALL)
LENGTH_SETTINGS = ("max_length", "max_seq_length", "max_seq_len", "cutoff_len", "sequence_len")
"""Names of the setting that cuts rows"""
# Two documents of one length may be chance or copies. With five, audits of a few batches would
# seldom see a limit.
MIN_LONGEST_DOCUMENTS = 3
"""So many documents of one length, none longer, stand for a limit that no setting names"""
# Half or less is a shift, or a collator for masked language models, of whose labels one in ten is
# its place's id.
OWN_LABEL_SHARE = 0.5
"""Share of the labels that are the id of their place, above which labels are not shifted"""
SHOWN_TOKENS = 10
"""Tokens shown around a place"""


@dataclass(frozen=True, slots=True)
class Answer:
    """One assistant turn in a line: its tokens are `start` to `end`, without the stop token."""

    sample: Sample
    document: int
    turn: int
    """Which answer of its document, from 0"""
    start: int
    end: int
    stop: int | None
    """Place of the stop token behind it"""
    last: bool
    """Is it the last answer of its document?"""

    @property
    def supervised_token_mask(self) -> NDArray[np.bool_]:
        """(end - start,) true for the tokens of the answer that have a label."""
        return self.sample.supervised[self.start : self.end]

    @property
    def content_token_mask(self) -> NDArray[np.bool_]:
        """(end - start,) true for the tokens that are the answer's own text, not the template's."""
        return np.isin(self.sample.source[self.start : self.end], ANSWER_SOURCES)


def lines_with_unshifted_labels(audit: Audit) -> Iterator[Sample]:
    """The lines with a loss on them, as long as each label is its own token's: others are shifted, another fault.

    KTO's lines of prompts with answers of other rows are left out: nothing of them is learned.
    """
    lines = [
        (sample, sample.labels[sample.supervised] == sample.ids[sample.supervised])
        for sample in audit.samples
        if sample.labels is not None and sample.side != "kl" and not sample.padding.all()
    ]
    # First over all lines: of a short line, labels that are shifted may equal their ids by chance.
    all_own = np.concatenate([own for _, own in lines] or [np.ones(0, np.bool_)])
    if all_own.size and all_own.mean() <= OWN_LABEL_SHARE:
        return
    for sample, own in lines:
        if own.size == 0 or own.mean() > OWN_LABEL_SHARE:
            yield sample


def lines_of_known_rows(audit: Audit) -> list[Sample]:
    """The judged lines whose rows are known."""
    return [sample for sample in lines_with_unshifted_labels(audit) if sample.expected is not None]


def answers_in_line(sample: Sample, stops: frozenset[int]) -> list[Answer]:
    """The answers of one line, in order. Plain text has none.

    Args:
        sample: the line.
        stops: ids that end a turn.
    """
    if sample.expected is None:
        return []
    # A run is a stretch of tokens that inference must produce, in one document: an answer with its
    # stop token. Where documents follow each other without a gap, their numbers part the runs.
    owner = np.where(sample.expected, sample.documents, NO_DOCUMENT)
    is_answer = np.isin(sample.source, ANSWER_SOURCES)
    edges = np.flatnonzero(np.diff(owner, prepend=NO_DOCUMENT - 1, append=NO_DOCUMENT - 1)).tolist()
    # A run without text of an answer is an empty one, or what the generation prompt writes ahead.
    runs = [
        run
        for run in pairwise(edges)
        if owner[run[0]] != NO_DOCUMENT and is_answer[slice(*run)].any()
    ]
    answers: list[Answer] = []
    for document, turns in groupby(runs, lambda run: int(owner[run[0]])):
        spans = list(turns)
        for turn, (start, end) in enumerate(spans):
            stop = _place_of_ending_stop(sample, start, end, stops)
            answer_end = end if stop is None else min(end, stop)
            is_last = turn == len(spans) - 1
            answers.append(Answer(sample, document, turn, start, answer_end, stop, is_last))
    return answers


def _place_of_ending_stop(
    sample: Sample, start: int, end: int, stops: frozenset[int]
) -> int | None:
    """The stop token that ends an expected stretch, in the row's own text or not, or stands right behind it."""
    inside = np.flatnonzero(sample.source[start:end] == Source.STOP)
    if len(inside):
        return start + int(inside[0])
    # A stop token that the row itself brings is text of the answer: it is known by its id alone.
    last = end
    while last > start and int(sample.ids[last - 1]) in stops:
        last -= 1
    if last < end:
        return last
    behind = end < len(sample.ids) and sample.documents[end] == sample.documents[end - 1]
    return end if behind and not sample.padding[end] and int(sample.ids[end]) in stops else None


def answers_in_recognised_lines(audit: Audit) -> list[Answer]:
    """The answers in all recognised lines of the batches."""
    return [
        answer
        for sample in lines_of_known_rows(audit)
        for answer in answers_in_line(sample, audit.stops)
    ]


def prompt_mask(audit: Audit, sample: Sample) -> NDArray[np.bool_]:
    """(tokens,) true for what the user, the system and the tools say; in lines that were placed by
    the template's markers alone, for any text but the answers.
    """
    is_prompt = np.isin(sample.source, [int(kind) for kind in PROMPT_SOURCES]) & ~sample.padding
    if sample.placed_by == "markers":
        is_prompt |= (sample.source == Source.TEXT) & np.array(
            [not piece.isspace() for piece in sample.pieces]
        )
        is_prompt &= ~answer_header_mask(audit, sample)
    if sample.expected is not None:
        # Columns that no format knows: the template's markers say that they stand before an answer.
        is_prompt |= sample.source == Source.OTHER
    return np.asarray(is_prompt if sample.expected is None else is_prompt & ~sample.expected)


def answer_header_mask(audit: Audit, sample: Sample) -> NDArray[np.bool_]:
    """(tokens,) true for what the template writes right before each answer.

    In lines that were placed by the template's markers alone, its headers count as text: they are
    found by their length in characters, from each answer backwards.
    """
    headers = np.zeros(len(sample.ids), np.bool_)
    marker = find_answer_marker(audit.probes).decode("utf-8", "replace")
    for answer in answers_in_line(sample, audit.stops):
        first, size = answer.start, 0
        while first and size < len(marker):
            first -= 1
            size += len(sample.pieces[first])
        headers[first : answer.start] = True
    return headers


def true_runs(flags: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Where runs of True begin and end: (tokens,)."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], flags, [False])).astype(np.int8)))
    return [(int(start), int(end)) for start, end in edges.reshape(-1, 2)]


def count_tokens_without_padding(sample: Sample) -> int:
    """Tokens of a line without padding."""
    return int((~sample.padding).sum())


def length_limit_and_is_explicit(audit: Audit) -> tuple[int | None, bool]:
    """(the length at which rows are cut, whether a setting names it).

    Without a setting: the length that several documents share as their longest, or None.
    """
    args: dict[str, Any] = audit.facts["args"]
    named = next((args[name] for name in LENGTH_SETTINGS if isinstance(args.get(name), int)), None)
    if named is not None:
        return int(named), True
    lengths = [
        n
        for sample in audit.samples
        for n in np.bincount(sample.documents[sample.documents != NO_DOCUMENT]).tolist()
    ]
    longest = max(lengths, default=0)
    return (longest if lengths.count(longest) >= MIN_LONGEST_DOCUMENTS else None), False


def row_format_of_audit(audit: Audit) -> str | None:
    """The format of the given rows, by their columns where none is available; None where they are not known."""
    row = next((row for record in audit.records for row in record.rows), None)
    conversation = None if row is None else parse_row(row, 0)
    if conversation:
        return conversation.format
    data = audit.facts["data"]
    columns: set[str] = set()
    for table in (data["given"], data["prepared"]):
        if table:
            columns |= set(table["columns"] or ())
    for format in row_formats().values():
        if format.columns and set(format.columns) <= columns:
            return format.name
    return None


def text_around(sample: Sample, place: int) -> str:
    """The tokens around a place, as text."""
    return repr(
        sample.text(max(place - SHOWN_TOKENS, 0), min(place + SHOWN_TOKENS // 2, len(sample.ids)))
    )
