"""Finds the column that nothing reads and that the answers were made from: it holds words of them
that stand in no prompt.

Such a column is what the answers were made from: a model that never sees it can only invent these words. Two texts of
one data set share words by chance, so that the column of another row is the control. Columns that are made from the
answer, or are an answer of another kind, share its words as well: these are known by their names and left out.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from truetune.checks.is_wrong_column_learned import (
    NOT_MAPPED,
    last_answer,
    last_user_text,
    texts_before_last_answer,
)
from truetune.checks.recognise_prose_and_media_columns import single_spaced
from truetune.data.column_name_aliases import is_answer_column_name, is_metadata_column_name
from truetune.data.conversation import Conversation

WORD = re.compile(r"\w+")
# Chosen, not measured: shorter words stand in any text. A number of two digits seldom does.
MIN_LETTERS = 4
MAX_CHARACTERS = 20_000
"""Characters of a text whose words are compared"""
MIN_QUESTION, QUESTION_BEGINNING = 12, 80
"""Characters of a question's beginning that tell it. Chosen: shorter ones stand in other texts by chance"""
MIN_ROWS = 20
"""Rows to compare at least. Chosen by hand: a mean over fewer swings by more than what the verdict
rests on"""
MAX_ROWS = 500
"""Rows that are compared: a mapping is the same for all of them"""
# Chosen, not measured: a summary repeats about half of its rare words from the text, an extraction nearly all.
MIN_OWN = 0.3
"""Share of an answer's words that stand in the column, on average"""
# Chosen, not measured: rows of one subject share a third of their words.
MIN_TIMES_OTHER = 2.0
"""Times as many as in the same column of another row"""
MADE_FROM_ANSWERS = frozenset(
    (
        "rejected", "chosen", "reasoning", "thinking", "thought", "thoughts", "rationale", "explanation", "summary",
        "translation", "translated", "draft", "prediction", "predicted", "predict", "generated", "generation", "gold",
        "reference", "references", "reply", "replies", "expected", "cot", "code", "final", "raw", "original",
        "keywords", "keyword", "entities", "hint", "choices", "options", "feedback", "critique", "judge", "assistant",
        "gpt", "model", "steps", "title", "headline", "topic", "comment", "notes", "note", "canonical",
        "paraphrase", "alternative",
    )
)  # fmt: skip
"""Words in the names of columns that are made from an answer, or are one of another kind"""
PROMPT_TEXTS = frozenset(
    (
        "input", "inputs", "context", "contexts", "document", "documents", "passage", "passages", "article", "text",
        "message", "email", "mail", "body", "question", "instruction", "prompt", "query", "transcript", "paragraph",
        "ticket", "review", "post", "history", "source_text", "user", "request", "schema",
    )
)  # fmt: skip
"""Names of columns that are what an answer is made from"""


class AnswerWords(NamedTuple):
    """How many words of the answers stand in a column."""

    own: float
    """Share of the words that stand in no prompt, in the column of the same row"""
    other: float
    """The same in the column of another row"""
    example: str
    """Some such words of one row"""
    is_prompt: bool
    """The name says that it belongs into the prompt"""


class _WordsOfRow(NamedTuple):
    """The words of one row."""

    answer: frozenset[str]
    """Those of the answer that stand in no prompt"""
    column: frozenset[str]


class AnswerWordsInColumns:
    """The first rows with an answer, by the column that they do not read."""

    def __init__(self) -> None:
        self._rows: defaultdict[str, list[_WordsOfRow]] = defaultdict(list)

    def add(self, row: Conversation, column: str) -> None:
        """Count one more row, which leaves `column` unread."""
        kept = self._rows[column]
        text = _text_of_column(row.raw or {}, column.removesuffix(NOT_MAPPED))
        if len(kept) == MAX_ROWS or not text or _is_named_as_answer_or_metadata(column):
            return
        answer = last_answer(row) if row.text is None else None
        if answer is None or _holds_question(text, row):
            return
        new = _words_with_content(answer) - _words_with_content(texts_before_last_answer(row))
        if new:
            kept.append(_WordsOfRow(new, _words_with_content(text)))

    def words_explained_by(self, column: str) -> AnswerWords | None:
        """How many words of the answers a column holds; None if it holds no more of them than the
        column of any other row does.
        """
        rows = self._rows.get(column, [])
        if len(rows) < MIN_ROWS:
            return None
        # Half the list away: neighbours may be of one document.
        half = len(rows) // 2
        others = rows[half:] + rows[:half]
        own = _mean_share_of_answer_words(rows, rows)
        other = _mean_share_of_answer_words(rows, others)
        if own < MIN_OWN or own < MIN_TIMES_OTHER * other:
            return None
        best = max(rows[:MIN_ROWS], key=lambda row: len(row.answer & row.column))
        example = ", ".join(
            sorted(best.answer & best.column, key=lambda word: (-len(word), word))[:3]
        )
        name = column.removesuffix(NOT_MAPPED).lower()
        return AnswerWords(own, other, example, name in PROMPT_TEXTS)


def _holds_question(text: str, row: Conversation) -> bool:
    """Does a column hold the row's own question? Then it is the row in another form: rendered, or as it was."""
    question = single_spaced(last_user_text(row))[:QUESTION_BEGINNING]
    return len(question) >= MIN_QUESTION and question in single_spaced(text[:MAX_CHARACTERS])


def _mean_share_of_answer_words(answers: list[_WordsOfRow], columns: list[_WordsOfRow]) -> float:
    """The share of each answer's words that stand in the column beside it, on average."""
    shares = [
        len(one.answer & other.column) / len(one.answer)
        for one, other in zip(answers, columns, strict=True)
    ]
    return sum(shares) / len(shares)


def _words_with_content(text: str) -> frozenset[str]:
    """The words of a text that say something: those with enough letters, and numbers."""
    words = WORD.findall(text[:MAX_CHARACTERS].casefold())
    return frozenset(
        word for word in words if len(word) >= MIN_LETTERS or _is_word_with_digit(word)
    )


def _is_word_with_digit(word: str) -> bool:
    """Does a word of two or more characters hold a digit?"""
    return len(word) > 1 and any(map(str.isdigit, word))


def _is_named_as_answer_or_metadata(column: str) -> bool:
    """Does the name of a column say that it holds answers, a part of them, or metadata of the row?"""
    name = column.removesuffix(NOT_MAPPED)
    words = re.split(r"[\W_]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())
    return (
        is_answer_column_name(name)
        or is_metadata_column_name(name)
        or not MADE_FROM_ANSWERS.isdisjoint(words)
    )


def _text_of_column(raw: Mapping[str, object], name: str) -> str:
    """The text of a column of a raw row; the texts of a list are joined, and other values are
    empty.
    """
    value = raw.get(name)
    if isinstance(value, list):
        return "\n".join(item for item in value if isinstance(item, str))
    return value if isinstance(value, str) else ""
