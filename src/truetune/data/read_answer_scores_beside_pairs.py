"""Reads scores and ranks of answers from the files beside a set of preference pairs, from which the
pairs may have been built.

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

from truetune.data.find_data_files import find_data_files_of_paths, open_raw
from truetune.data.read_file_records import read_records
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
        """Add one more candidate answer and its score, with the texts around it, one of which is
        the question.
        """
        # A stock answer ("Ask your branch.") has another worth for each question.
        for key in (
            _key_of_texts(text),
            *(_key_of_texts(question, text) for question in questions),
        ):
            columns = self.by_text.setdefault(key, {})
            known = columns.get(score.column, score)
            is_same = known is not None and known.value == score.value
            columns[score.column] = score if is_same else None

    def of(self, text: str, question: str = "") -> dict[str, CandidateScore]:
        """The scores of an answer, by the column that holds them."""
        columns = {
            **self.by_text.get(_key_of_texts(text), {}),
            **self.by_text.get(_key_of_texts(question, text), {}),
        }
        return {column: score for column, score in columns.items() if score is not None}

    def compare(self, chosen: str, rejected: str, question: str = "") -> ComparedSides:
        """Which of two answers is better by a column that scores both; a column of known direction
        comes first.
        """
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
    """The scores in the files beside a file of rows; empty if there are no such files, or they
    can't be read.
    """
    scores = CandidateScores()
    own = Path(path)
    folder = own.parent
    if not folder.is_dir():
        return scores
    others = [one for one in sorted(folder.iterdir()) if one.suffix in SUFFIXES and one != own]
    for file in islice((one for one in others if one.is_file()), MAX_FILES):
        if file.stat().st_size <= MAX_BYTES:
            for row in _first_rows_of_file(file):
                _add_candidates_in_row(scores, row, file.name, 0, ())
    return scores


def _first_rows_of_file(path: Path) -> Iterator[Any]:
    """The first rows of a file, as they are; none if it can't be read."""
    try:
        source = find_data_files_of_paths([str(path)])[0]
        with open_raw(source.path) as raw:
            for record in islice(read_records(source, raw), MAX_ROWS):
                yield record.row
    except (DataError, IndexError, OSError):
        return


def _add_candidates_in_row(
    scores: CandidateScores, row: Any, file: str, depth: int, around: tuple[str, ...]
) -> None:
    """Add the candidate answers of a row: its own texts with its numbers, parallel lists, and
    nested objects.
    """
    if isinstance(row, Mapping):
        texts = [value for value in row.values() if isinstance(value, str)]
        around = (*around, *texts[:MAX_TEXTS_AROUND])
        _add_texts_with_numbers(scores, row, file, around)
        inside = [value for value in row.values() if isinstance(value, list | Mapping)]
    else:
        inside = row if isinstance(row, list) else []
    for one in inside if depth < MAX_DEPTH else ():
        _add_candidates_in_row(scores, one, file, depth + 1, around)


def _add_texts_with_numbers(
    scores: CandidateScores, row: Mapping[str, Any], file: str, around: tuple[str, ...]
) -> None:
    """Add the texts of one row with its numbers and ratings, and its lists of texts with parallel
    lists of numbers.
    """
    # A row of two sides says nothing of either by a number of its own.
    is_of_pair = "chosen" in row and "rejected" in row
    for name, value in row.items():
        better = _direction_of_score_column(str(name))
        if better is None:
            continue
        column = f"`{name}` of {file}"
        if isinstance(value, list):
            _add_lists_beside_scores(scores, row, column, value, better, around)
        elif not is_of_pair:
            _add_texts_beside_score(scores, row, column, value, better, around)
    if not is_of_pair:
        _add_mean_ratings(scores, row, file, around)


def _add_mean_ratings(
    scores: CandidateScores, row: Mapping[str, Any], file: str, around: tuple[str, ...]
) -> None:
    """Add the mean of what several people said of one text: `text: a` beside `ranks: {ann_1: 1,
    ann_2: 2}`.
    """
    for name, value in row.items():
        ratings = _ratings_by_several_people(str(name), value)
        if ratings is not None:
            column = f"the mean of `{ratings.column}` of {file}"
            mean = sum(ratings.numbers) / len(ratings.numbers)
            _add_texts_beside_score(scores, row, column, mean, ratings.better, around)


def _ratings_by_several_people(name: str, value: Any) -> Ratings | None:
    """What several people said of one text, by the value of a column; None for anything else."""
    if isinstance(value, list) and any(isinstance(one, Mapping) for one in value):
        return _ratings_in_records(value)
    better = _direction_of_score_column(name) or 0
    numbers = _numbers_of_ratings(_rating_values(value, better)) if better else []
    return Ratings(name, numbers, better) if len(numbers) > 1 else None


def _rating_values(value: Any, better: int) -> list[Any]:
    """The values that several people gave, by their names or in a list; empty for anything else."""
    if isinstance(value, Mapping):
        # Numbers of several qualities ({"helpful": 5, "verbose": 1}) have no mean that says which text is better.
        is_of_people = better < 0 or _differ_by_number_or_letter(list(map(str, value)))
        return list(value.values()) if is_of_people else []
    is_plain = isinstance(value, list) and all(isinstance(one, int | float) for one in value)
    return value if is_plain else []


def _ratings_in_records(records: list[Any]) -> Ratings | None:
    """The ratings in `[{"annotator": "a", "rank": 1}, ...]`; None if the records hold texts, for
    these are the candidates then.
    """
    if not all(isinstance(one, Mapping) and not _holds_long_text(one) for one in records):
        return None
    for name in records[0]:
        better = _direction_of_score_column(str(name))
        numbers = _numbers_of_ratings([record.get(name) for record in records]) if better else []
        if better and numbers:
            return Ratings(str(name), numbers, better)
    return None


def _numbers_of_ratings(values: list[Any]) -> list[float]:
    """The numbers of the ratings of one text; empty if one of them is no number, or they are too
    many for that.
    """
    numbers = [
        number for value in values[:MAX_RATINGS] if (number := _parse_number(value)) is not None
    ]
    return numbers if len(numbers) == len(values) else []


def _holds_long_text(record: Mapping[str, Any]) -> bool:
    """Does a record hold a text that is longer than a name, and so may be an answer?"""
    texts = [value for value in record.values() if isinstance(value, str)]
    return any(len(text.split()) > MAX_NAME_WORDS for text in texts)


def _differ_by_number_or_letter(names: list[str]) -> bool:
    """Do names differ only by a number or a letter at their end, as people's do: `ann_a` and
    `ann_b`, `rater1` and `rater2`?
    """
    return len(names) > 1 and len({NAME_END.sub("", name) for name in names}) == 1


def _add_texts_beside_score(
    scores: CandidateScores,
    row: Mapping[str, Any],
    column: str,
    value: Any,
    better: int,
    around: tuple[str, ...],
) -> None:
    """Add the texts of a row that are beside the number in `column`: `response: a` beside `score:
    3`.
    """
    number = _parse_number(value)
    for text in row.values() if number is not None else ():
        if isinstance(text, str) and text != value:
            scores.add(text, CandidateScore(column, number or 0.0, better, value), around)


def _add_lists_beside_scores(
    scores: CandidateScores,
    row: Mapping[str, Any],
    column: str,
    values: list[Any],
    better: int,
    around: tuple[str, ...],
) -> None:
    """Add the lists of texts that are parallel to a list of numbers: `completions: [a, b]` beside
    `scores: [3, 5]`.
    """
    numbers = [_parse_number(value) for value in values]
    for texts in row.values():
        is_list = isinstance(texts, list) and len(texts) == len(values) > 1
        if not is_list or not all(isinstance(text, str) for text in texts) or texts is values:
            continue
        for text, number, raw in zip(texts, numbers, values, strict=True):
            if number is not None:
                scores.add(text, CandidateScore(column, number, better, raw), around)


def _direction_of_score_column(name: str) -> int | None:
    """1 for a column of which more is better, -1 for one of which less is, 0 if that is not known,
    None for a column of something else.
    """
    normal = re.sub(r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())
    for pattern, better in ((LOWER, -1), (HIGHER, 1), (UNKNOWN, 0)):
        if pattern.search(normal):
            return better
    return None


def _parse_number(value: Any) -> float | None:
    """A number, also if a table holds it as text; None for anything else."""
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, str) and value.strip().casefold() in ("true", "false"):
        return float(value.strip().casefold() == "true")
    try:
        number = float(value) if isinstance(value, int | float | str) else math.nan
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _key_of_texts(*texts: str) -> str:
    """The texts as one key, with single spaces, so that answers are found again however they are
    wrapped.
    """
    return "\n".join(" ".join(text.split()) for text in texts)
