"""Reads rows that train an embedding model or a reranker: a query, texts that fit it, and texts that do not.

How it works: the columns tell the layout. sentence-transformers has one text a column (`anchor`, `positive`,
`negative`, or two sentences and a score), FlagEmbedding lists (`query`, `pos`, `neg`), Tevatron passages with a title,
ms-swift lists of messages (`messages`, `positive_messages`). Each becomes the same record, so a rule needs one form.

The trade-off: columns that other trainings have too (`question` and `answer`, `query` and `response`) tell nothing, so
such rows are read as chats; what a script makes of them is known from the script.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from truetune.data.conversation import Origin
from truetune.data.find_data_files import DataFile, find_data_files_of_paths, open_raw
from truetune.data.read_file_records import read_records
from truetune.errors import TruetuneError
from truetune.parsing import InputLimitError

Layout = Literal["sentence-transformers", "FlagEmbedding", "Tevatron", "ms-swift"]
QUERY_COLUMNS = ("query", "anchor", "question", "sentence", "q")
POSITIVE_COLUMNS = ("positive", "positives", "pos")
NEGATIVE_COLUMNS = ("negative", "negatives", "neg")
SENTENCE_PAIRS = (
    ("sentence1", "sentence2"),
    ("sentence_1", "sentence_2"),
    ("sentence_A", "sentence_B"),
    ("text1", "text2"),
    ("text_a", "text_b"),
    ("query", "passage"),
    ("query", "document"),
    ("premise", "hypothesis"),
)
"""Two texts whose likeness or relevance a column scores"""
SCORE_COLUMNS = (
    "score",
    "label",
    "similarity",
    "similarity_score",
    "relevance",
    "labels",
    "scores",
)
MAX_ROWS = 200_000
"""Rows that are read. Chosen: texts of 200,000 rows are some hundred megabytes, read in about ten seconds"""
ROWS_TO_RECOGNISE = 5
"""First rows whose columns tell what a file is"""


@dataclass(frozen=True, slots=True)
class RetrievalRow:
    """One row: a query with its texts, or two texts with a score."""

    origin: Origin
    query: str
    positives: tuple[str, ...]
    """The texts that fit the query; of a scored pair its second text"""
    negatives: tuple[str, ...]
    score: float | None = None
    """The score of a pair; None where the row has no such column"""
    is_scored: bool = False
    """Is it two texts and a score?"""

    @property
    def texts(self) -> tuple[str, ...]:
        """All texts of the row."""
        return (self.query, *self.positives, *self.negatives)


@dataclass(frozen=True, slots=True)
class RetrievalData:
    """The rows of some files."""

    layout: Layout
    rows: tuple[RetrievalRow, ...]
    broken: tuple[Origin, ...] = ()
    """Lines that hold no such row"""
    is_cut: bool = False
    """There are more rows than were read"""
    evaluation: tuple[RetrievalRow, ...] = ()
    """Rows that the model is evaluated on"""


def layout_of_row(row: Any) -> Layout | None:
    """The layout that the columns of a row tell; None if they may be those of another training."""
    if not isinstance(row, Mapping):
        return None
    if "positive_passages" in row and "query" in row:
        return "Tevatron"
    if "positive_messages" in row and "messages" in row:
        return "ms-swift"
    if _column_in_row(row, QUERY_COLUMNS) is None:
        return "sentence-transformers" if _scored_pair_columns(row) is not None else None
    positive = _column_in_row(row, POSITIVE_COLUMNS)
    if positive is not None:
        return "FlagEmbedding" if isinstance(row[positive], list) else "sentence-transformers"
    return "sentence-transformers" if _scored_pair_columns(row) is not None else None


def layout_of_file(path: str) -> Layout | None:
    """The layout of the rows in a file or folder; None if they are other rows, or can't be read."""
    try:
        sources = find_data_files_of_paths([path])
        with open_raw(sources[0].path) as raw:
            first = list(islice(read_records(sources[0], raw), ROWS_TO_RECOGNISE))
    except (TruetuneError, InputLimitError, OSError, IndexError):
        return None
    layouts = {layout_of_row(record.row) for record in first if record.error is None}
    return layouts.pop() if len(layouts) == 1 else None


def read_retrieval_rows(paths: list[str], layout: Layout) -> RetrievalData:
    """The rows of files that all have one layout.

    Raises:
        DataError: a file can't be read.
    """
    rows: list[RetrievalRow] = []
    broken: list[Origin] = []
    for origin, row in islice(_rows_of_files(find_data_files_of_paths(paths)), MAX_ROWS + 1):
        made = retrieval_row(origin, row)
        if made is None:
            broken.append(origin)
            continue
        rows.append(made)
    is_cut = len(rows) + len(broken) > MAX_ROWS
    return RetrievalData(layout, tuple(rows[:MAX_ROWS]), tuple(broken), is_cut)


def _rows_of_files(sources: list[DataFile]) -> Iterator[tuple[Origin, Any]]:
    """The rows of files, each with its place; None for a line that holds none."""
    number = 0
    for source in sources:
        with open_raw(source.path) as raw:
            for record in read_records(source, raw):
                yield Origin(str(source.path), record.line, number), record.row
                number += 1


def retrieval_row(origin: Origin, row: Any) -> RetrievalRow | None:
    """A row of a file as a query with its texts; None if it is none."""
    if not isinstance(row, Mapping):
        return None
    if "positive_passages" in row:
        return _row_of_passages(origin, row)
    if "positive_messages" in row:
        return _row_of_messages(origin, row)
    query_name = _column_in_row(row, QUERY_COLUMNS)
    positive_name = _column_in_row(row, POSITIVE_COLUMNS)
    if query_name is not None and positive_name is not None:
        return _make_row(
            origin,
            row[query_name],
            _texts_of_value(row[positive_name]),
            _texts_of_numbered_columns(row, NEGATIVE_COLUMNS),
            _score_of_row(row),
        )
    pair = _scored_pair_columns(row)
    if pair is None:
        return None
    score = _score_of_row(row)
    return _make_row(origin, row[pair[0]], _texts_of_value(row[pair[1]]), (), score, is_scored=True)


def _make_row(
    origin: Origin,
    query: Any,
    positives: tuple[str, ...],
    negatives: tuple[str, ...],
    score: float | None,
    *,
    is_scored: bool = False,
) -> RetrievalRow | None:
    """The record of a row; None if its query is no text."""
    if not isinstance(query, str):
        return None
    return RetrievalRow(origin, query, positives, negatives, score, is_scored)


def _row_of_passages(origin: Origin, row: Mapping[str, Any]) -> RetrievalRow | None:
    """A row of Tevatron."""
    fitting, others = (
        tuple(text for one in _list(row.get(name)) for text in _texts_of_passage(one))
        for name in ("positive_passages", "negative_passages")
    )
    return _make_row(origin, row.get("query"), fitting, others, None)


def _texts_of_passage(passage: Any) -> Iterator[str]:
    """The text of a passage, with its title before it."""
    if isinstance(passage, Mapping) and isinstance(passage.get("text"), str):
        yield f"{passage.get('title') or ''} {passage['text']}".strip()


def _row_of_messages(origin: Origin, row: Mapping[str, Any]) -> RetrievalRow | None:
    """A row of ms-swift."""
    query = " ".join(_texts_of_messages(row.get("messages")))
    fitting, others = (
        tuple(" ".join(_texts_of_messages(one)) for one in _list(row.get(name)))
        for name in ("positive_messages", "negative_messages")
    )
    # With a label, a row is a pair that the label scores.
    score = _score_of_row(row)
    return _make_row(origin, query, fitting, others, score, is_scored=score is not None)


def _texts_of_messages(messages: Any) -> Iterator[str]:
    """The texts of a list of messages."""
    for message in _list(messages):
        if isinstance(message, Mapping) and isinstance(message.get("content"), str):
            yield message["content"]


def _list(value: Any) -> list[Any]:
    """The value if it is a list; else an empty one."""
    return value if isinstance(value, list) else []


def _texts_of_value(value: Any) -> tuple[str, ...]:
    """The texts of a column: one, or those of a list."""
    if isinstance(value, str):
        return (value,)
    return tuple(text for text in _list(value) if isinstance(text, str))


def _texts_of_numbered_columns(row: Mapping[str, Any], names: tuple[str, ...]) -> tuple[str, ...]:
    """The texts of `negative`, or of `negative_1`, `negative_2`, ..."""
    texts: tuple[str, ...] = ()
    for column, value in row.items():
        name, _, number = str(column).rpartition("_")
        if column in names or (name in names and number.isdigit()):
            texts += _texts_of_value(value)
    return texts


def _column_in_row(row: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    """The first of these columns that a row has."""
    return next((name for name in names if name in row), None)


def _scored_pair_columns(row: Mapping[str, Any]) -> tuple[str, str] | None:
    """The columns of two texts beside a score; None if the row has none."""
    if _score_of_row(row) is None:
        return None
    for first, second in SENTENCE_PAIRS:
        if isinstance(row.get(first), str) and isinstance(row.get(second), str):
            return first, second
    return None


def _score_of_row(row: Mapping[str, Any]) -> float | None:
    """The number in the row's column of scores; None if there is none."""
    name = _column_in_row(row, SCORE_COLUMNS)
    value = None if name is None else row[name]
    if isinstance(value, str):
        # Cells of a CSV file are texts.
        try:
            return float(value)
        except ValueError:
            return None
    return float(value) if isinstance(value, int | float) else None
