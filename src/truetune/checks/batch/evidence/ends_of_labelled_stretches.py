"""Finds by the labels alone where answers end, in runs whose rows are not recognised.

A data set that tokenizes each row when it is asked for shows no texts, so no token is known to be of an answer. Its own
mask tells: what has no label is the prompt, and the stretch of labels behind it is the answer. The trade-off: only runs
that mask prompts of different lengths are judged. Continued pretraining learns all tokens, and windows over a long text
mask an equal part of each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truetune.auditing.audit import NO_DOCUMENT, Audit, Sample
from truetune.checks.batch.evidence.answer_spans import (
    answers_in_recognised_lines,
    length_limit_and_is_explicit,
    lines_with_unshifted_labels,
    text_around,
    true_runs,
)
from truetune.render.rendering import IGNORED

MIN_ENDS = 4
"""Fewer whole answers are not judged: a default audit of one line in each of eight batches has more"""
# A single masked token is a BOS, or a hole of a mask that hides random tokens.
MIN_MASKED_TOKENS = 2
"""So many tokens without labels before or behind a stretch are another's text"""
# A class, a digit or a letter is often read from the first token, and never needs an end.
MIN_MEDIAN_ANSWER = 4
"""Half of the answers have at least so many tokens; shorter ones may be classes"""
MIN_LINES_AT_LIMIT = 3
"""So many lines of one length, none longer, stand for a limit that no setting names, as for documents"""
# A text that ends answers may also stand in one of them, and be missing in one.
MARK_SHARE = 0.9
"""Share of the answers that end in a text, above which it is a mark of the end"""
MAX_SHARE_OF_MARK_INSIDE = 0.1
"""So often, for each answer, may the text of a mark stand inside of answers"""
MAX_MARK_TOKENS = 8
# The last is what a part of a character decodes to.
ENDS_OF_SENTENCES = frozenset(".!?…。！？।\"'”’»)]} \ufffd")
"""Characters that end any text: by these alone no server stops"""


@dataclass(frozen=True, slots=True)
class LearnedEnd:
    """The end of a stretch of labels behind a prompt without labels."""

    place: str
    shown: str
    """The text around the end"""
    learned: tuple[int, ...]
    """The ids of the stretch"""
    sample: Sample | None
    """None for the labels of an encoder-decoder"""
    masked_stop: int | None
    """Place of a stop token without a label right behind it"""


@dataclass(frozen=True, slots=True)
class _Stretch:
    """A stretch of labels in a document: `prompt` tokens without labels stand before it."""

    start: int
    end: int
    prompt: int


class _PlacedStretch(NamedTuple):
    """A stretch of labels with the document that it stands in: the tokens from `start` to `end` of a line."""

    sample: Sample
    start: int
    end: int
    stretch: _Stretch


def ends_learned_without_stop(audit: Audit) -> list[LearnedEnd]:
    """The ends of whole answers, where labels hold no stop token at all; empty where one does, or nothing is judged."""
    ends = ends_of_labelled_stretches(audit)
    has_stop = any(audit.stops & set(end.learned) for end in ends)
    return [] if has_stop or _do_answers_end_in_mark(audit, ends) else ends


def ends_of_labelled_stretches(audit: Audit) -> list[LearnedEnd]:
    """The ends of answers that are not cut off, by the labels of lines that were not recognised.

    Returns:
        Empty where answers are recognised, no prompt is masked, or the answers are too few or too short.
    """
    if not audit.stops or answers_in_recognised_lines(audit):
        return []
    if audit.facts["model"]["config"].get("is_encoder_decoder"):
        ends = list(_ends_of_decoder_labels(audit))
    else:
        ends = list(_ends_in_lines(audit))
    if len(ends) < MIN_ENDS or np.median([len(end.learned) for end in ends]) < MIN_MEDIAN_ANSWER:
        return []
    return ends


def _ends_in_lines(audit: Audit) -> Iterator[LearnedEnd]:
    """The ends of stretches in lines of a causal model; none where all prompts have one length."""
    lines = [
        sample
        for sample in lines_with_unshifted_labels(audit)
        if not sample.side and any(sample.supervised)
    ]
    placed = list(_placed_stretches(lines))
    prompt_lengths = {one.stretch.prompt for one in placed}
    # Windows over a long text mask what they share with the one before, which is as much in each.
    if len(prompt_lengths) < 2 or min(prompt_lengths) < MIN_MASKED_TOKENS:
        return
    lines_at_limit = _lines_at_limit(lines)
    limit, _ = length_limit_and_is_explicit(audit)
    for one in placed:
        if not _is_cut_off(one, limit, lines_at_limit):
            yield _learned_end(one, audit.stops)


def _placed_stretches(lines: list[Sample]) -> Iterator[_PlacedStretch]:
    """The stretches of labels in all documents of some lines, in order."""
    for sample in lines:
        for start, end in _document_ranges(sample):
            for stretch in _stretches_in_document(sample, (start, end)):
                yield _PlacedStretch(sample, start, end, stretch)


def _is_cut_off(one: _PlacedStretch, limit: int | None, lines_at_limit: frozenset[int]) -> bool:
    """Does a stretch end where a limit ends its document, or its line?"""
    if one.stretch.end != one.end:
        return False
    is_full = limit is not None and one.end - one.start >= limit
    is_at_end_of_line = one.end == len(one.sample.ids)
    return is_full or (is_at_end_of_line and id(one.sample) in lines_at_limit)


def _learned_end(one: _PlacedStretch, stops: Collection[int]) -> LearnedEnd:
    """The end of a stretch, with the stop token right behind it that has no label."""
    sample, stretch = one.sample, one.stretch
    is_inside = stretch.end < min(one.end, len(sample.ids))
    masked_stop = stretch.end if is_inside and int(sample.ids[stretch.end]) in stops else None
    learned = tuple(sample.ids[stretch.start : stretch.end].tolist())
    return LearnedEnd(
        sample.place, text_around(sample, stretch.end - 1), learned, sample, masked_stop
    )


def _lines_at_limit(lines: list[Sample]) -> frozenset[int]:
    """The lines (by `id`) that are filled to the length that several share as their longest."""
    sizes = [int((~sample.padding).sum()) for sample in lines]
    longest = max(sizes, default=0)
    if sizes.count(longest) < MIN_LINES_AT_LIMIT:
        return frozenset()
    return frozenset(
        id(sample) for sample, size in zip(lines, sizes, strict=True) if size == longest
    )


def _document_ranges(sample: Sample) -> Iterator[tuple[int, int]]:
    """(start, end) of each document of a line, padding left out."""
    owner = np.where(sample.padding, NO_DOCUMENT, sample.documents)
    edges = np.flatnonzero(np.diff(owner, prepend=NO_DOCUMENT - 1, append=NO_DOCUMENT - 1)).tolist()
    for start, end in pairwise(edges):
        if owner[start] != NO_DOCUMENT:
            yield start, end


def _stretches_in_document(sample: Sample, document: tuple[int, int]) -> Iterator[_Stretch]:
    """The stretches of labels in a document; a masked token inside of one does not part it."""
    start, end = document
    runs: list[tuple[int, int]] = []
    for first, last in true_runs(sample.supervised[start:end]):
        if runs and first - runs[-1][1] < MIN_MASKED_TOKENS:
            runs[-1] = (runs[-1][0], last)
        else:
            runs.append((first, last))
    before = 0
    for first, last in runs:
        yield _Stretch(start + first, start + last, first - before)
        before = last


def _ends_of_decoder_labels(audit: Audit) -> Iterator[LearnedEnd]:
    """The ends of an encoder-decoder's labels, which hold answers alone; the padding behind them is left out."""
    lines = list(_lines_of_decoder_labels(audit))
    sizes = Counter(len(ids) for _, ids in lines)
    longest = max(sizes, default=0)
    for place, ids in lines:
        is_cut_off = len(ids) == longest and sizes[longest] >= MIN_LINES_AT_LIMIT
        if not len(ids) or is_cut_off:
            continue
        text = (
            repr(audit.probes.tokenizer.backend.decode(ids[-12:].tolist())) if audit.probes else ""
        )
        yield LearnedEnd(place, text, tuple(ids.tolist()), None, None)


def _lines_of_decoder_labels(audit: Audit) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """The place of each line of labels, `batch 0, line 2 of rank 1`, and its labels without padding."""
    pad = (audit.facts["tokenizer"] or {}).get("pad")
    for record in audit.records:
        rank = record.facts["rank"]
        of_rank = f" of rank {rank}" if rank else ""
        for number, batch in enumerate(record.batches):
            labels = batch.get("labels")
            if labels is None or labels.ndim != 2 or labels.dtype.kind not in "iu":
                continue
            for line in range(len(labels)):
                yield f"batch {number}, line {line}{of_rank}", _without_padding(labels[line], pad)


def _without_padding(labels: NDArray[np.int64], pad: int | None) -> NDArray[np.int64]:
    """The labels of a line that count, without pad ids behind them. A pad that is a stop token is not told from one."""
    kept: NDArray[np.int64] = labels[labels != IGNORED].astype(np.int64)
    end = len(kept)
    while pad is not None and end > 1 and kept[end - 1] == pad and kept[end - 2] == pad:
        end -= 1
    return kept[:end]


def _do_answers_end_in_mark(audit: Audit, ends: list[LearnedEnd]) -> bool:
    """Do nearly all answers end in one text that stands nowhere else in them, by which a server can stop?"""
    for size in range(1, MAX_MARK_TOKENS + 1):
        tails = Counter(end.learned[-size:] for end in ends if len(end.learned) > size)
        if not tails:
            return False
        tail, count = tails.most_common(1)[0]
        if count < MARK_SHARE * len(ends):
            return False
        inside = sum(_count_inside(end.learned, tail) for end in ends)
        if inside <= MAX_SHARE_OF_MARK_INSIDE * len(ends) and _may_stop_server(audit, tail):
            return True
    return False


def _count_inside(learned: tuple[int, ...], tail: tuple[int, ...]) -> int:
    """How often these ids stand in an answer, its end left out."""
    size = len(tail)
    return sum(learned[i : i + size] == tail for i in range(len(learned) - size))


def _may_stop_server(audit: Audit, tail: tuple[int, ...]) -> bool:
    """Is it more than the end of a sentence? A text that is not known may be."""
    if audit.probes is None:
        return True
    text = audit.probes.tokenizer.backend.decode(list(tail), skip_special_tokens=False)
    return not text or not set(text) <= ENDS_OF_SENTENCES
