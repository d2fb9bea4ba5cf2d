"""Scores and ranks of answers in the files that lie beside a set of pairs, from which the pairs may have been built.

Candidates are told by their texts: a row that holds an answer of a pair word for word, and a column that says what it
is worth. What higher means is known from the column's name alone: of a score more is better, of a rank less.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
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

MAX_TEXTS_AROUND = 8
"""Texts of a row that may be the question of its candidates"""
MAX_RATINGS, MAX_NAME_WORDS = 64, 3
"""Ratings of one text that are read, and words of a name; a text of more words is an answer. Chosen, not measured"""
NAME_END = re.compile(r"(?:\d+|(?<=[_\- ])[A-Za-z])$")
"""The end of a name that tells one rater from others"""


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


class Ratings(NamedTuple):
    """What several people said of one text."""

    column: str
    numbers: list[float]
    better: int
    """As of `CandidateScore`"""


class CandidateScores:
    """Scores by the text of the answer."""

    def __init__(self) -> None:
        self.by_text: dict[str, dict[str, CandidateScore | None]] = {}
        """Text -> column -> score; None where the same text has several"""

    def add(self, text: str, score: CandidateScore, questions: Sequence[str] = ()) -> None:
        """One more candidate, with the texts around it, one of which is the question."""
        # A stock answer ("Ask your branch.") has another worth for each question.
        for key in (_key(text), *(_key(question, text) for question in questions)):
            columns = self.by_text.setdefault(key, {})
            known = columns.get(score.column, score)
            is_same = known is not None and known.value == score.value
            columns[score.column] = score if is_same else None

    def of(self, text: str, question: str = "") -> dict[str, CandidateScore]:
        """The scores of an answer by their column."""
        columns = {**self.by_text.get(_key(text), {}), **self.by_text.get(_key(question, text), {})}
        return {column: score for column, score in columns.items() if score is not None}

    def compare(self, chosen: str, rejected: str, question: str = "") -> ComparedSides:
        """Which of two answers a column that has both says to be better; those of a known direction first."""
        good, bad = self.of(chosen, question), self.of(rejected, question)
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
                _add_candidates(scores, row, file.name, 0, ())
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


def _add_candidates(
    scores: CandidateScores, row: Any, file: str, depth: int, around: tuple[str, ...]
) -> None:
    """The candidates of a row: its own texts with its numbers, lists side by side, and objects inside of it."""
    if isinstance(row, Mapping):
        texts = [value for value in row.values() if isinstance(value, str)]
        around = (*around, *texts[:MAX_TEXTS_AROUND])
        _add_row(scores, row, file, around)
        inside = [value for value in row.values() if isinstance(value, list | Mapping)]
    else:
        inside = row if isinstance(row, list) else []
    for one in inside if depth < MAX_DEPTH else ():
        _add_candidates(scores, one, file, depth + 1, around)


def _add_row(
    scores: CandidateScores, row: Mapping[str, Any], file: str, around: tuple[str, ...]
) -> None:
    """The texts of one row with its numbers and ratings, and its lists of texts with those of numbers."""
    # A row of two sides says nothing of either by a number of its own.
    is_of_pair = "chosen" in row and "rejected" in row
    for name, value in row.items():
        better = _direction_of(str(name))
        if better is None:
            continue
        column = f"`{name}` of {file}"
        if isinstance(value, list):
            _add_lists(scores, row, column, value, better, around)
        elif not is_of_pair:
            _add_texts(scores, row, column, value, better, around)
    if not is_of_pair:
        _add_ratings(scores, row, file, around)


def _add_ratings(
    scores: CandidateScores, row: Mapping[str, Any], file: str, around: tuple[str, ...]
) -> None:
    """The mean of what several people said of one text: `text: a` beside `ranks: {ann_1: 1, ann_2: 2}`."""
    for name, value in row.items():
        ratings = _ratings_of(str(name), value)
        if ratings is not None:
            column = f"the mean of `{ratings.column}` of {file}"
            mean = sum(ratings.numbers) / len(ratings.numbers)
            _add_texts(scores, row, column, mean, ratings.better, around)


def _ratings_of(name: str, value: Any) -> Ratings | None:
    """What several people said, by the value of a column; None for anything else."""
    if isinstance(value, list) and any(isinstance(one, Mapping) for one in value):
        return _ratings_of_records(value)
    better = _direction_of(name) or 0
    numbers = _ratings_in(_values_of_people(value, better)) if better else []
    return Ratings(name, numbers, better) if len(numbers) > 1 else None


def _values_of_people(value: Any, better: int) -> list[Any]:
    """What several people said, by their names or in a list; nothing of anything else."""
    if isinstance(value, Mapping):
        # Numbers of several qualities ({"helpful": 5, "verbose": 1}) have no mean that says which text is better.
        is_of_people = better < 0 or _are_people(list(map(str, value)))
        return list(value.values()) if is_of_people else []
    is_plain = isinstance(value, list) and all(isinstance(one, int | float) for one in value)
    return value if is_plain else []


def _ratings_of_records(records: list[Any]) -> Ratings | None:
    """`[{"annotator": "a", "rank": 1}, ...]`; None where the records hold texts: they are the candidates then."""
    if not all(isinstance(one, Mapping) and not _holds_answer(one) for one in records):
        return None
    for name in records[0]:
        better = _direction_of(str(name))
        numbers = _ratings_in([record.get(name) for record in records]) if better else []
        if better and numbers:
            return Ratings(str(name), numbers, better)
    return None


def _ratings_in(values: list[Any]) -> list[float]:
    """The numbers of the ratings of one text; none where one of them is no number, or they are too many for that."""
    numbers = [
        number for value in values[:MAX_RATINGS] if (number := _number_of(value)) is not None
    ]
    return numbers if len(numbers) == len(values) else []


def _holds_answer(record: Mapping[str, Any]) -> bool:
    """Does a record hold a text that is longer than a name?"""
    texts = [value for value in record.values() if isinstance(value, str)]
    return any(len(text.split()) > MAX_NAME_WORDS for text in texts)


def _are_people(names: list[str]) -> bool:
    """Do names differ by a number or a letter at their end alone: `ann_a` and `ann_b`, `rater1` and `rater2`?"""
    return len(names) > 1 and len({NAME_END.sub("", name) for name in names}) == 1


def _add_texts(
    scores: CandidateScores,
    row: Mapping[str, Any],
    column: str,
    value: Any,
    better: int,
    around: tuple[str, ...],
) -> None:
    """`response: a` beside `score: 3`."""
    number = _number_of(value)
    for text in row.values() if number is not None else ():
        if isinstance(text, str) and text != value:
            scores.add(text, CandidateScore(column, number or 0.0, better, value), around)


def _add_lists(
    scores: CandidateScores,
    row: Mapping[str, Any],
    column: str,
    values: list[Any],
    better: int,
    around: tuple[str, ...],
) -> None:
    """`completions: [a, b]` beside `scores: [3, 5]`."""
    numbers = [_number_of(value) for value in values]
    for texts in row.values():
        is_list = isinstance(texts, list) and len(texts) == len(values) > 1
        if not is_list or not all(isinstance(text, str) for text in texts) or texts is values:
            continue
        for text, number, raw in zip(texts, numbers, values, strict=True):
            if number is not None:
                scores.add(text, CandidateScore(column, number, better, raw), around)


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


def _key(*texts: str) -> str:
    return "\n".join(" ".join(text.split()) for text in texts)
