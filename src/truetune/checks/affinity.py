"""Affinity: how much the words of a question and those of an answer have in common, rare words more than frequent ones.

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

WORD = re.compile(r"[^\W\d_]{3,}|\d{2,}|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{2}")
STEM = 6
"""Characters of a word that count: endings differ between question and answer"""
KEPT_WORDS = 400
"""Words of a text that count, from its beginning"""
MAX_SHARE = 0.05
"""Share of the texts that a word may stand in: more frequent ones are of the form, not of the subject"""

Words = frozenset[str]


class Affinity:
    """The questions and answers of some rows, in file order."""

    def __init__(self, questions: Sequence[str], answers: Sequence[str]) -> None:
        asked, answered = list(map(_words, questions)), list(map(_words, answers))
        counts: Counter[str] = Counter()
        for one, other in zip(asked, answered, strict=True):
            counts.update(one)
            counts.update(other)
        most = max(4, MAX_SHARE * 2 * len(asked))
        self.weights = {
            word: math.log(2 * len(asked) / count)
            for word, count in counts.items()
            if 1 < count <= most
        }
        self.rows = len(asked)
        self.matrix = self._matrix(asked, answered)

    def _matrix(self, asked: Sequence[Words], answered: Sequence[Words]) -> NDArray[np.float32]:
        """(questions, answers) the weight of the words that both have, by the lengths of both."""
        numbers = {word: number for number, word in enumerate(self.weights)}
        weights = np.array([*self.weights.values(), 0.0], dtype=np.float32)
        matrix = np.zeros((self.rows, self.rows), dtype=np.float32)
        holders: list[list[int]] = [[] for _ in weights]
        for row, words in enumerate(answered):
            for word in words:
                if word in numbers:
                    holders[numbers[word]].append(row)
        for row, words in enumerate(asked):
            for number in (numbers[word] for word in words if word in numbers):
                matrix[row, holders[number]] += weights[number] ** 2
        sizes = [np.array([self._size(words) for words in side]) for side in (asked, answered)]
        matrix /= np.maximum(np.outer(*sizes), 1e-6)
        return matrix

    def _size(self, words: Words) -> float:
        return math.sqrt(sum(self.weights.get(word, 0.0) ** 2 for word in words))

    @property
    def own(self) -> NDArray[np.float32]:
        """(rows,) of each question with its own answer."""
        return np.diagonal(self.matrix)

    def at(self, offset: int) -> NDArray[np.float32]:
        """(rows,) of each question with the answer `offset` rows on; nan where there is none."""
        found = np.full(self.rows, np.nan, dtype=np.float32)
        shifted = np.diagonal(self.matrix, offset)
        if offset >= 0:
            found[: len(shifted)] = shifted
        else:
            found[-len(shifted) :] = shifted
        return found

    def of_others(self) -> NDArray[np.float32]:
        """(rows,) of each question with the answers of all rows, on average."""
        return np.asarray(self.matrix.mean(axis=1))

    def standing_out(self) -> NDArray[np.bool_]:
        """(rows,) is one answer, whichever, far nearer to the question than every other?"""
        best = np.sort(self.matrix, axis=1)[:, -2:]
        return np.asarray((best[:, 1] > 0.1) & (best[:, 1] > 1.5 * best[:, 0]))

    def nearest(self) -> NDArray[np.int64]:
        """(rows,) the number of the answer that is nearest to each question."""
        return np.asarray(self.matrix.argmax(axis=1))


def _words(text: str) -> Words:
    """The words of a text, without their endings."""
    return frozenset(word[:STEM] for word in WORD.findall(text.casefold())[:KEPT_WORDS])
