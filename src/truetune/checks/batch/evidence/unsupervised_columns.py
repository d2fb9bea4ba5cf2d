"""Finds columns of the given rows that reach no label, beside those that do: one of them may have
been meant as the answer.

Two witnesses. A canary proves of each field what becomes of it, and comes with the texts of some rows. Without one, the
given rows are compared with their lines in the batches by runs of three words: single words say nothing, for a
solution shares its words with its problem.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from truetune.auditing.audit import Audit, Sample
from truetune.checks.answer_diversity import compressed_bits_beyond_known, compressed_bits_per_row
from truetune.checks.batch.evidence.documents_in_batch_lines import keys_of_batches
from truetune.checks.batch.evidence.fates_of_canary_texts import LEARNED, LOST
from truetune.checks.batch.evidence.learned_texts_of_documents import documents_in_line, line_text
from truetune.checks.recognise_prose_and_media_columns import (
    columns_and_texts_of_row,
    does_batch_hold_media,
    is_prose,
    single_spaced,
)
from truetune.probe.mark_row_texts_with_unique_strings import field_name

# Chosen, not measured. A category beside its reason, or a summary beside its article, differs by
# ten times and more; two columns that could both be the answer (two translations) by less than two.
# At 2 the question itself would be told.
TELLING_TIMES = 4.0
"""Times as many bits a row as the answers hold, from which another column may be what was meant"""
MIN_ANSWER_BITS = 4.0
"""Bits a row that answers count as at least: a compressor's own overhead is not told from less"""
# Two words in a row are shared by rows of one subject, four are cut apart by any sign that a
# template writes otherwise.
RUN_WORDS = 3
"""Words in a row by which a text is found in a line"""
MIN_RUN_SHARE = 0.5
"""Share of its runs from which a text stands in a line: templates write lists and JSON otherwise than the row"""
MIN_ROW_CHARACTERS = 12
"""Characters of a row by which it is recognised in a line: rows share phrases"""
TECHNICAL_COLUMNS = frozenset(("input_ids", "labels", "attention_mask", "prompt_id"))
IS_LOST, IS_READ, IS_LEARNED = 0, 1, 2
"""What became of a text, in an order of which the median of many rows can be taken"""


@dataclass(frozen=True, slots=True)
class UnsupervisedColumn:
    """A column of prose that reaches no label."""

    name: str
    bits: float
    """A row, beyond what its row's other columns say"""
    text: str
    """Of the first row that has one"""

    @property
    def as_evidence_line(self) -> str:
        """The column and what it holds, as one line of evidence."""
        return (
            f"the column {self.name!r} of these rows contains about {self.bits:,.0f} bits per row but"
            f" has no label: {self.text[:60]!r}"
        )


@dataclass(frozen=True, slots=True)
class ColumnsBesideAnswers:
    """The columns of the rows behind some answers."""

    learned: tuple[str, ...] = ()
    """Those that reach the labels"""
    answers: tuple[str, ...] = ()
    """Their texts, one for each row that is known; empty where it is not known which they are"""
    untaught: tuple[UnsupervisedColumn, ...] = ()
    """Those of which nothing does, though they hold much more than the answers: the one that holds most first"""


@dataclass(frozen=True, slots=True)
class _RowTexts:
    """One row: its texts by what becomes of them."""

    learned: Mapping[str, str]
    read: str
    """All that stands in the prompt"""
    lost: Mapping[str, str]


def find_columns_beside_answers(audit: Audit) -> ColumnsBesideAnswers:
    """The columns of the rows that an audit has seen, by the canary where one was sent, else by the given rows."""
    rows = _rows_of_canary(audit) or _learned_and_lost_texts_of_given_rows(audit)
    answers = tuple("\n".join(row.learned.values()) for row in rows if row.learned)
    learned = _distinct_column_names(row.learned for row in rows)
    if not learned:
        learned = list(dict.fromkeys(_labelled_columns(audit.samples)))
    lost = [
        name for name in _distinct_column_names(row.lost for row in rows) if name not in learned
    ]
    # Beside answers of nearly no bits (one text for all rows) any column would be four times as
    # much.
    bits = compressed_bits_per_row(answers) if answers else 0.0
    untaught = _lost_columns_with_enough_bits(
        lost, rows, TELLING_TIMES * max(MIN_ANSWER_BITS, bits)
    )
    return ColumnsBesideAnswers(tuple(learned), answers, tuple(untaught))


def _distinct_column_names(texts: Iterable[Mapping[str, str]]) -> list[str]:
    """The columns of some rows, each once, in the order in which they come."""
    return list(dict.fromkeys(name for by_column in texts for name in by_column))


def _lost_columns_with_enough_bits(
    names: Iterable[str], rows: Sequence[_RowTexts], least: float
) -> list[UnsupervisedColumn]:
    """The lost columns of prose that hold so many bits a row or more: the one that holds most first."""
    measured = [_measure_lost_column(name, rows) for name in names]
    telling = [column for column in measured if column is not None and column.bits >= least]
    return sorted(telling, key=lambda column: -column.bits)


def _measure_lost_column(name: str, rows: Sequence[_RowTexts]) -> UnsupervisedColumn | None:
    """What a lost column holds; None where it holds no prose in most rows."""
    known = [(row.read, row.lost[name]) for row in rows if name in row.lost]
    prose = sum(is_prose(text) for _, text in known)
    if prose * 2 <= len(rows):
        return None
    bits = compressed_bits_beyond_known([text for _, text in known], [read for read, _ in known])
    return UnsupervisedColumn(name, bits, single_spaced(known[0][1]))


def _rows_of_canary(audit: Audit) -> list[_RowTexts]:
    """The rows that were sampled where the canary was made; none without one."""
    canary = audit.facts.get("canary") or {}
    # A column may hold several texts (the turns of a conversation), each with a fate of its own.
    fates: defaultdict[str, set[str]] = defaultdict(set)
    for field in canary.get("fields") or ():
        fates[field_name(field["path"], field["role"])].add(field["seen"])
    learned = {name for name, seen in fates.items() if LEARNED in seen}
    lost = {name for name, seen in fates.items() if seen == {LOST}}
    read = fates.keys() - learned - lost
    return [
        _RowTexts(
            _choose_columns(row, learned),
            "\n".join(_choose_columns(row, read).values()),
            _choose_columns(row, lost),
        )
        for row in canary.get("sampled") or ()
    ]


def _choose_columns(row: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    """The texts of a row in these columns."""
    return {name: text for name, text in row.items() if name in names}


def _learned_and_lost_texts_of_given_rows(audit: Audit) -> list[_RowTexts]:
    """The given rows whose lines are known; a column counts for all rows as it does for most of them."""
    rows = [(_texts_by_column(row), lines) for row, lines in _rows_with_lines(audit)]
    votes: defaultdict[str, list[int]] = defaultdict(list)
    for row, lines in rows:
        for name, fate in _fate_of_columns(row, lines):
            votes[name].append(fate)
    keys = keys_of_batches(audit)
    learned, lost = set(), set()
    for name, fates in votes.items():
        if name in TECHNICAL_COLUMNS or does_batch_hold_media(name, keys):
            continue
        # The median and not the first row: a short text may stand in a line by chance, or be cut
        # off at the limit.
        fate = int(np.median(fates))
        if fate == IS_LEARNED:
            learned.add(name)
        elif fate == IS_LOST:
            lost.add(name)
    return [
        _RowTexts(
            _choose_columns(row, learned),
            "\n".join(line_text(line) for line in lines),
            _choose_columns(row, lost),
        )
        for row, lines in rows
    ]


def _fate_of_columns(row: Mapping[str, str], lines: Sequence[Sample]) -> Iterator[tuple[str, int]]:
    """(column, IS_LEARNED, IS_READ or IS_LOST) of each text of a row, by the lines that it is in."""
    whole = _word_runs(" ".join(line_text(line) for line in lines))
    answers = [
        single_spaced(document.answer) for line in lines for document in documents_in_line(line)
    ]
    labelled = _word_runs(" ".join(answers))
    for name, text in row.items():
        # Short answers have no three words in a row: they are compared as a whole.
        if single_spaced(text) in answers or _holds_most_word_runs(text, labelled):
            yield name, IS_LEARNED
        else:
            yield name, IS_READ if _holds_most_word_runs(text, whole) else IS_LOST


def _rows_with_lines(audit: Audit) -> Iterator[tuple[Mapping[str, Any], list[Sample]]]:
    """The given rows of which texts were placed in lines, with those lines."""
    lines: defaultdict[tuple[int, int], list[Sample]] = defaultdict(list)
    for sample in audit.samples:
        placed: Counter[int] = Counter()
        for i in np.unique(sample.field[sample.field >= 0]).tolist():
            placed[sample.fields[i].row] += len(sample.fields[i].text.strip())
        for row, characters in placed.items():
            if characters >= MIN_ROW_CHARACTERS:
                lines[sample.rank, row].append(sample)
    for record in audit.records:
        rank = int(record.facts["rank"])
        for number, row_texts in zip(record.facts["data"]["numbers"], record.rows, strict=True):
            if (rank, number) in lines:
                yield row_texts, lines[rank, number]


def _texts_by_column(row: Mapping[str, Any]) -> dict[str, str]:
    """All texts of each column of a row, one a line."""
    by_column: defaultdict[str, list[str]] = defaultdict(list)
    for column, text in columns_and_texts_of_row(dict(row)):
        by_column[column].append(text)
    return {column: "\n".join(every) for column, every in by_column.items()}


def _word_runs(text: str) -> set[tuple[str, ...]]:
    """All runs of RUN_WORDS words of a text, without case and signs: a template may write these
    otherwise.
    """
    words = re.findall(r"\w+", text.casefold())
    return {tuple(words[i : i + RUN_WORDS]) for i in range(len(words) - RUN_WORDS + 1)}


def _holds_most_word_runs(text: str, runs: set[tuple[str, ...]]) -> bool:
    """Do these runs hold most of a text's own? A text of fewer words than a run is in none."""
    own = _word_runs(text)
    return bool(own) and len(own & runs) >= MIN_RUN_SHARE * len(own)


def _labelled_columns(samples: Iterable[Sample]) -> Iterator[str]:
    """Columns that the tokens in the loss are from, where they were placed."""
    for sample in samples:
        owners = sample.field[sample.supervised]
        for i in np.unique(owners[owners >= 0]).tolist():
            yield re.split(r"[.\[]", sample.fields[i].path, maxsplit=1)[0]
