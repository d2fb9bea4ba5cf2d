"""Measures how much the words of questions and of answers have in common, rare words more than
frequent ones.

A question and its own answer share rare words; a question and another row's answer seldom do. Which answer of the
others a question shares more with says where its own answer went.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

WORD = re.compile(r"[^\W\d_]{3,}|\d{4,}|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{2}")
"""Words, and numbers of four digits on: `There are 14` beside `box 11` is the count of `box 14` by chance"""
# Chosen, not measured. At four, `contract` and `contour` are one word; at nine, `delivery` and `delivered` are two.
STEM = 6
"""Characters of a word that count: endings differ between question and answer"""
# Chosen, not measured: the matrix is made by words, and a page says what it is about at its beginning.
KEPT_WORDS = 400
"""Words of a text that count, from its beginning"""
MAX_SHARE = 0.05
"""Share of the texts that a word may stand in: more frequent ones are of the form, not of the subject"""
PAIR_WORDS = 2
"""Rare words that a pair shares at least: one alone (a name, a town) coincides by chance, in 4 to 40 % of 1,000 rows
whose answers are filled-in templates; two do in 0.4 %"""
FAR_NEARER = 1.5
"""The affinity of a pair by that of the next one, on both sides"""

Words = frozenset[str]


class QuestionAnswerAffinity:
    """The questions and answers of some rows, in file order."""

    def __init__(self, questions: Sequence[str], answers: Sequence[str]) -> None:
        question_words, answered = (
            list(map(_split_into_stems, questions)),
            list(map(_split_into_stems, answers)),
        )
        counts: Counter[str] = Counter()
        for one, other in zip(question_words, answered, strict=True):
            counts.update(one)
            counts.update(other)
        # At least four texts: among few rows 5 % is less than one.
        most = max(4, MAX_SHARE * 2 * len(question_words))
        self.weights = {
            word: math.log(2 * len(question_words) / count)
            for word, count in counts.items()
            if 1 < count <= most
        }
        self.rows = len(question_words)
        self.matrix, self.shared = self._shared_word_weights_and_counts(question_words, answered)

    def _shared_word_weights_and_counts(
        self, questions: Sequence[Words], answered: Sequence[Words]
    ) -> tuple[NDArray[np.float32], NDArray[np.int16]]:
        """(questions, answers) the weight of the words that both have, by the lengths of both; and their number."""
        numbers = {word: number for number, word in enumerate(self.weights)}
        weights = np.array([*self.weights.values(), 0.0], dtype=np.float32)
        matrix = np.zeros((self.rows, self.rows), dtype=np.float32)
        shared = np.zeros((self.rows, self.rows), dtype=np.int16)
        holders: list[list[int]] = [[] for _ in weights]
        for row, words in enumerate(answered):
            for word in words:
                if word in numbers:
                    holders[numbers[word]].append(row)
        for row, words in enumerate(questions):
            for number in (numbers[word] for word in words if word in numbers):
                matrix[row, holders[number]] += weights[number] ** 2
                shared[row, holders[number]] += 1
        sizes = [
            np.array([self._vector_length(words) for words in side])
            for side in (questions, answered)
        ]
        # 1e-6: a text without a word that counts has the size 0.
        matrix /= np.maximum(np.outer(*sizes), 1e-6)
        return matrix, shared

    def _vector_length(self, words: Words) -> float:
        """The length of a text's vector of word weights."""
        return math.sqrt(sum(self.weights.get(word, 0.0) ** 2 for word in words))

    @property
    def affinity_with_own_answers(self) -> NDArray[np.float32]:
        """(rows,) the affinity of each question with its own answer."""
        return np.diagonal(self.matrix)

    def affinity_with_offset(self, offset: int) -> NDArray[np.float32]:
        """(rows,) the affinity of each question with the answer `offset` rows on; nan if there is
        none.
        """
        affinities = np.full(self.rows, np.nan, dtype=np.float32)
        shifted = np.diagonal(self.matrix, offset)
        if offset >= 0:
            affinities[: len(shifted)] = shifted
        else:
            affinities[-len(shifted) :] = shifted
        return affinities

    def mean_affinity_with_all_answers(self) -> NDArray[np.float32]:
        """(rows,) the affinity of each question with the answers of all rows, on average."""
        return np.asarray(self.matrix.mean(axis=1))

    def are_questions_surely_paired(self) -> NDArray[np.bool_]:
        """(rows,) is one answer, whichever, far nearer to the question than every other, and the question to it?

        Both sides are asked: an answer that serves many rows (a canned reply) is near to many questions and belongs to
        none, so it says nothing about where an answer went.
        """
        rows, nearest = np.arange(self.rows), self.nearest_answers()
        best, second = _two_largest(self.matrix)
        of_answer, next_of_answer = _two_largest(self.matrix.T)
        return np.asarray(
            # 0.1: chosen, not measured. It leaves out rows whose best answer shares a common word alone.
            (best > 0.1)
            & (best > FAR_NEARER * second)
            & (self.matrix.argmax(axis=0)[nearest] == rows)
            & (of_answer > FAR_NEARER * next_of_answer)[nearest]
            & (self.shared[rows, nearest] >= PAIR_WORDS)
        )

    def nearest_answers(self) -> NDArray[np.int64]:
        """(rows,) the number of the answer that is nearest to each question."""
        return np.asarray(self.matrix.argmax(axis=1))


def _two_largest(matrix: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """(rows,) the largest value of each row, and the second largest."""
    ordered = np.partition(matrix, -2, axis=1)
    return ordered[:, -1], ordered[:, -2]


def _split_into_stems(text: str) -> Words:
    """The words of a text, without their endings."""
    return frozenset(word[:STEM] for word in WORD.findall(text.casefold())[:KEPT_WORDS])
