"""Scores and ranks of answers in the files that lie beside a set of pairs, from which the pairs may have been built.

Candidates are told by their texts: a row that holds an answer of a pair word for word, and a column that says what it
is worth. What higher means is known from the column's name alone: of a score more is better, of a rank less.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from truetune.data.file_records import read_records
from truetune.data.find_data_files import find_sources, open_raw
from truetune.errors import DataError

SUFFIXES = (".csv", ".tsv", ".jsonl", ".json", ".parquet")
MAX_FILES, MAX_BYTES, MAX_ROWS, MAX_DEPTH = 8, 16 << 20, 20_000, 4
"""Files beside that are read, the largest of them, their first rows, and how deep an answer may stand in a row"""
HIGHER = re.compile(
    r"(?:^|_)(?:score|rating|reward|grade|stars?|upvotes?|likes?|votes?|quality|helpfulness|preference"
    r"|label|thumbs?)s?(?:$|_)"
)
LOWER = re.compile(r"(?:^|_)(?:rank|ranking|place|penalty|perplexity|ppl)s?(?:$|_)")
UNKNOWN = re.compile(r"(?:^|_)(?:order|position|value|pref|judge\w*|metric|result)s?(?:$|_)")
"""Names of columns whose numbers are better where they are higher, where they are lower, and which is unknown"""


class CandidateScore(NamedTuple):
    """What a column says that an answer is worth."""

    column: str
    """`rank of candidates.jsonl`"""
    value: float
    better: int
    """1: higher is better; -1: lower is; 0: not known"""
    raw: Any
    """As the file holds it"""


class ComparedSides(NamedTuple):
    """Two answers by one column; `prefers_chosen` is None where it says nothing, or its direction is not known."""

    column: str = ""
    prefers_chosen: bool | None = None
    case: str = ""


class CandidateScores:
    """Scores by the text of the answer."""

    def __init__(self) -> None:
        self.by_text: dict[str, dict[str, CandidateScore | None]] = {}
        """Text -> column -> score; None where the same text has several"""

    def add(self, text: str, score: CandidateScore) -> None:
        """One more candidate."""
        columns = self.by_text.setdefault(_key(text), {})
        known = columns.get(score.column, score)
        columns[score.column] = score if known is not None and known.value == score.value else None

    def of(self, text: str) -> dict[str, CandidateScore]:
        """The scores of an answer by their column."""
        columns = self.by_text.get(_key(text), {})
        return {column: score for column, score in columns.items() if score is not None}

    def compare(self, chosen: str, rejected: str) -> ComparedSides:
        """Which of two answers a column that has both says to be better; those of a known direction first."""
        good, bad = self.of(chosen), self.of(rejected)
        both = [
            (good[column], bad[column])
            for column in good
            if column in bad and good[column].value != bad[column].value
        ]
        if not both:
            return ComparedSides()
        one, other = max(both, key=lambda pair: abs(pair[0].better))
        text = f"{one.column}: {one.raw} against {other.raw}"
        if not one.better:
            return ComparedSides(one.column, None, text)
        return ComparedSides(one.column, (one.value - other.value) * one.better > 0, text)


def read_candidate_scores(path: str) -> CandidateScores:
    """The scores in the files beside a file of rows; none where there are no such files, or they can't be read."""
    scores = CandidateScores()
    own = Path(path)
    folder = own.parent
    if not folder.is_dir():
        return scores
    others = [one for one in sorted(folder.iterdir()) if one.suffix in SUFFIXES and one != own]
    for file in islice((one for one in others if one.is_file()), MAX_FILES):
        if file.stat().st_size <= MAX_BYTES:
            for row in _rows_of(file):
                _add_candidates(scores, row, file.name, 0)
    return scores


def _rows_of(path: Path) -> Iterator[Any]:
    """The first rows of a file."""
    try:
        source = find_sources([str(path)])[0]
        with open_raw(source.path) as raw:
            for record in islice(read_records(source, raw), MAX_ROWS):
                yield record.row
    except (DataError, IndexError, OSError):
        return


def _add_candidates(scores: CandidateScores, row: Any, file: str, depth: int) -> None:
    """The candidates of a row: its own texts with its numbers, lists side by side, and objects inside of it."""
    if isinstance(row, list) and depth < MAX_DEPTH:
        for one in row:
            _add_candidates(scores, one, file, depth + 1)
    if not isinstance(row, Mapping):
        return
    for name, value in row.items():
        better = _direction_of(str(name))
        if better is None:
            continue
        column = f"`{name}` of {file}"
        if isinstance(value, list):
            _add_lists(scores, row, column, value, better)
        # A row of two sides says nothing of either by a number of its own.
        elif not ("chosen" in row and "rejected" in row):
            _add_texts(scores, row, column, value, better)
    for value in row.values() if depth < MAX_DEPTH else ():
        if isinstance(value, list | Mapping):
            _add_candidates(scores, value, file, depth + 1)


def _add_texts(
    scores: CandidateScores, row: Mapping[str, Any], column: str, value: Any, better: int
) -> None:
    """`response: a` beside `score: 3`."""
    number = _number_of(value)
    for text in row.values() if number is not None else ():
        if isinstance(text, str) and text != value:
            scores.add(text, CandidateScore(column, number or 0.0, better, value))


def _add_lists(
    scores: CandidateScores,
    row: Mapping[str, Any],
    column: str,
    values: list[Any],
    better: int,
) -> None:
    """`completions: [a, b]` beside `scores: [3, 5]`."""
    numbers = [_number_of(value) for value in values]
    for texts in row.values():
        is_list = isinstance(texts, list) and len(texts) == len(values) > 1
        if not is_list or not all(isinstance(text, str) for text in texts) or texts is values:
            continue
        for text, number, raw in zip(texts, numbers, values, strict=True):
            if number is not None:
                scores.add(text, CandidateScore(column, number, better, raw))


def _direction_of(name: str) -> int | None:
    """1 where more is better, -1 where less is, 0 where that is not known, None for a column of something else."""
    normal = re.sub(r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())
    for pattern, better in ((LOWER, -1), (HIGHER, 1), (UNKNOWN, 0)):
        if pattern.search(normal):
            return better
    return None


def _number_of(value: Any) -> float | None:
    """A number, also where a table holds it as text; None for anything else."""
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, str) and value.strip().casefold() in ("true", "false"):
        return float(value.strip().casefold() == "true")
    try:
        number = float(value) if isinstance(value, int | float | str) else math.nan
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _key(text: str) -> str:
    return " ".join(text.split())
