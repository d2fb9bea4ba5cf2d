"""Finds the answers of a file that stand at other rows, by comparing its rows in chunks.

Of long files the chunks from row 0, 1,000, 2,000, 4,000, 8,000, ... on are compared: a shift stays to the end of the
file, and memory grows by the square of a chunk.
"""

from __future__ import annotations

import numpy as np

from truetune.checks.find_answers_standing_at_other_rows import (
    LARGEST,
    MIN_PAIRS,
    MIN_ROWS,
    DisplacedAnswers,
    DisplacedAnswerSearch,
    case_of_displaced_answer,
)
from truetune.checks.findings import Case
from truetune.checks.judgement import Unmet
from truetune.checks.question_answer_word_affinity import QuestionAnswerAffinity
from truetune.data.conversation import Origin

CHUNK_ROWS = LARGEST
"""Neighbouring rows that are compared with each other"""
CASES_OF_DISPLACED = 20
"""Cases that a finding shows. Chosen by hand: enough to see the shift, and few enough to read"""


class DisplacedAnswersOfFile:
    """Questions and answers as they are read, and the first chunk whose answers stand at other rows."""

    def __init__(self) -> None:
        self.rows = self.compared = self.pairs = self.own_pairs = 0
        self.chunk: list[tuple[str, str, Origin]] = []
        self.displaced: DisplacedAnswers | None = None
        self.cases: list[Case] = []

    def add(self, question: str, answer: str, origin: Origin) -> None:
        """Keep the question and the answer of one more row; rows without one of them are left out."""
        if not question.strip() or not answer.strip():
            return
        number = self.rows // CHUNK_ROWS
        if number & (number - 1) == 0:  # 0 and the powers of two
            self.chunk.append((question, answer, origin))
        self.rows += 1
        if len(self.chunk) == CHUNK_ROWS:
            self.search_and_forget_kept_rows(is_last=False)

    def search_and_forget_kept_rows(self, *, is_last: bool = True) -> None:
        """Look for displaced answers among the rows that were kept, and forget the rows."""
        chunk, self.chunk = self.chunk, []
        if len(chunk) < MIN_ROWS:
            return
        affinity = QuestionAnswerAffinity([one[0] for one in chunk], [one[1] for one in chunk])
        is_whole = is_last and self.rows == len(chunk)
        search = DisplacedAnswerSearch(affinity, chunk, is_whole=is_whole)
        is_own = search.nearest == np.arange(len(chunk))
        self.compared += len(chunk)
        self.pairs += int(search.paired.sum())
        self.own_pairs += int(is_own[search.paired].sum())
        # One finding is enough; the later chunks only add to the figure.
        if self.displaced is not None:
            return
        self.displaced = search.find()
        if self.displaced is not None:
            self.cases = [
                case_of_displaced_answer(chunk, row, int(self.displaced.targets[row]))
                for row in self.displaced.rows[:CASES_OF_DISPLACED]
            ]

    def why_not_judged(self, what: str) -> Unmet | None:
        """Why these rows can't be judged; `what` names what their answers are."""
        if not self.compared:
            return Unmet(f"it is about {MIN_ROWS} questions with {what} or more")
        if self.displaced is None and self.pairs < MIN_PAIRS:
            return Unmet(
                "it is about questions and answers that share rare words with each other alone;"
                " these do not"
            )
        return None
