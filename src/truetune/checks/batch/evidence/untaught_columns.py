"""Columns of the given rows that reach no label, beside those that do: was another column meant to be the answer?

Two witnesses. A canary proves of each field what becomes of it, and comes with the texts of some rows. Without one, the
given rows are compared with their lines in the batches by runs of three words: single words say nothing, for a
solution shares its words with its problem.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from truetune.auditing.audit import Audit, Sample
from truetune.checks.answer_spread import bits_beyond, bits_per_row
from truetune.checks.batch.evidence.canary_texts import LEARNED, LOST
from truetune.checks.batch.evidence.learned_documents import documents_in_line, line_text
from truetune.checks.column_texts import holds_media, is_prose, single_spaced, texts_of_row
from truetune.probe.watermarks import field_name

TELLING_TIMES = 4.0
"""Times as many bits a row as the answers hold, from which another column may be what was meant"""
MIN_ANSWER_BITS = 4.0
"""Bits a row that answers count as at least: a compressor's own overhead is not told from less"""
RUN_WORDS = 3
"""Words in a row by which a text is found in a line"""
MIN_RUN_SHARE = 0.5
"""Share of its runs from which a text stands in a line: templates write lists and JSON otherwise than the row"""
MIN_ROW_CHARACTERS = 12
"""Characters of a row by which it is recognised in a line: rows share phrases"""
TECHNICAL_COLUMNS = frozenset(("input_ids", "labels", "attention_mask", "prompt_id"))


@dataclass(frozen=True, slots=True)
class UntaughtColumn:
    """A column of prose that reaches no label."""

    name: str
    bits: float
    """A row, beyond what its row's other columns say"""
    text: str
    """Of the first row that has one"""

    @property
    def shown(self) -> str:
        """One line of evidence."""
        return (
            f"the column {self.name!r} of these rows holds about {self.bits:,.0f} bits a row and"
            f" reaches no label: {self.text[:60]!r}"
        )


@dataclass(frozen=True, slots=True)
class ColumnsBeside:
    """The columns of the rows behind some answers."""

    learned: tuple[str, ...] = ()
    """Those that reach the labels"""
    answers: tuple[str, ...] = ()
    """Their texts, one for each row that is known; empty where it is not known which they are"""
    untaught: tuple[UntaughtColumn, ...] = ()
    """Those of which nothing does, though they hold much more than the answers: the one that holds most first"""


@dataclass(frozen=True, slots=True)
class _RowTexts:
    """One row: its texts by what becomes of them."""

    learned: Mapping[str, str]
    read: str
    """All that stands in the prompt"""
    lost: Mapping[str, str]


def columns_beside(audit: Audit) -> ColumnsBeside:
    """The columns of the rows that an audit has seen, by the canary where one was sent, else by the given rows."""
    rows = _rows_of_canary(audit) or _rows_by_their_lines(audit)
    answers = tuple("\n".join(row.learned.values()) for row in rows if row.learned)
    names = dict.fromkeys(name for row in rows for name in row.learned)
    lost = dict.fromkeys(name for row in rows for name in row.lost)
    if not names:
        names = dict.fromkeys(_labelled_columns(audit.samples))
    untaught = [
        one
        for name in lost
        if name not in names and (one := _measure_untaught(name, rows)) is not None
    ]
    least = TELLING_TIMES * max(MIN_ANSWER_BITS, bits_per_row(answers) if answers else 0.0)
    telling = sorted((one for one in untaught if one.bits >= least), key=lambda one: -one.bits)
    return ColumnsBeside(tuple(names), answers, tuple(telling))


def _measure_untaught(name: str, rows: Sequence[_RowTexts]) -> UntaughtColumn | None:
    """What a lost column holds; None where it holds no prose in most rows."""
    known = [(row.read, row.lost[name]) for row in rows if name in row.lost]
    prose = sum(is_prose(text) for _, text in known)
    if prose * 2 <= len(rows):
        return None
    bits = bits_beyond([text for _, text in known], [read for read, _ in known])
    return UntaughtColumn(name, bits, single_spaced(known[0][1]))


def _rows_of_canary(audit: Audit) -> list[_RowTexts]:
    """The rows that were sampled where the canary was made; none without one."""
    canary = audit.facts.get("canary") or {}
    became: defaultdict[str, set[str]] = defaultdict(set)
    for field in canary.get("fields") or ():
        became[field_name(field["path"], field["role"])].add(field["seen"])
    learned = {name for name, seen in became.items() if LEARNED in seen}
    lost = {name for name, seen in became.items() if seen == {LOST}}
    return [
        _RowTexts(
            {name: text for name, text in row.items() if name in learned},
            "\n".join(text for name, text in row.items() if name in became.keys() - learned - lost),
            {name: text for name, text in row.items() if name in lost},
        )
        for row in canary.get("sampled") or ()
    ]


def _rows_by_their_lines(audit: Audit) -> list[_RowTexts]:
    """The given rows whose lines are known; a column counts for all rows as it does for most of them."""
    rows = [(_texts_by_column(given), lines) for given, lines in _rows_with_lines(audit)]
    votes: defaultdict[str, list[int]] = defaultdict(list)
    for row, lines in rows:
        whole = _word_runs(" ".join(map(line_text, lines)))
        answers = [single_spaced(one.answer) for line in lines for one in documents_in_line(line)]
        labelled = _word_runs(" ".join(answers))
        for name, text in row.items():
            is_learned = single_spaced(text) in answers or _holds_runs(text, labelled)
            votes[name].append(2 if is_learned else int(_holds_runs(text, whole)))
    keys = {key for record in audit.records for batch in record.batches for key in batch}
    fate = {
        name: int(np.median(votes[name]))
        for name in votes
        if name not in TECHNICAL_COLUMNS and not holds_media(name, keys)
    }
    return [
        _RowTexts(
            {name: text for name, text in row.items() if fate.get(name) == 2},
            "\n".join(line_text(line) for line in lines),
            {name: text for name, text in row.items() if fate.get(name) == 0},
        )
        for row, lines in rows
    ]


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
        for number, row_texts in zip(record.facts["data"]["numbers"], record.rows, strict=True):
            if row_lines := lines.get((int(record.facts["rank"]), number)):
                yield row_texts, row_lines


def _texts_by_column(row: Mapping[str, Any]) -> dict[str, str]:
    by_column: defaultdict[str, list[str]] = defaultdict(list)
    for column, text in texts_of_row(dict(row)):
        by_column[column].append(text)
    return {column: "\n".join(every) for column, every in by_column.items()}


def _word_runs(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.casefold())
    return {tuple(words[i : i + RUN_WORDS]) for i in range(len(words) - RUN_WORDS + 1)}


def _holds_runs(text: str, runs: set[tuple[str, ...]]) -> bool:
    own = _word_runs(text)
    return bool(own) and len(own & runs) >= MIN_RUN_SHARE * len(own)


def _labelled_columns(samples: Iterable[Sample]) -> Iterator[str]:
    """Columns that the tokens in the loss are from, where they were placed."""
    for sample in samples:
        owners = sample.field[sample.supervised]
        for i in np.unique(owners[owners >= 0]).tolist():
            yield re.split(r"[.\[]", sample.fields[i].path, maxsplit=1)[0]
