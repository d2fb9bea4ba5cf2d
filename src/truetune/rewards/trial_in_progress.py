"""What a trial of a reward function is given, and what it has found so far; each stage of the trial adds to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from truetune.generation.reward_trial import (
    NO_ANSWER,
    ChangedScore,
    FormScores,
    RepetitionScores,
    SpellingScores,
    TriedCompletion,
    UnpaidReference,
)
from truetune.generation.verifier_comparison import ComparedCompletion
from truetune.rewards.answer_forms import AnswerForm
from truetune.rewards.attack_completions import WrongAnswers, wrong_answers
from truetune.rewards.rows_for_rewards import RewardRow, RightAnswer
from truetune.rewards.score_completions import CompletionScorer, RowCompletion
from truetune.rewards.verifiers import Verifier

CompletionsAs = Literal["auto", "text", "messages"]
STAND_IN_ANSWER = "42"
"""What forms are filled with for a function that takes no reference"""
PLAIN = AnswerForm("X", "", "")
"""The form that is the answer alone"""
EMPTY = ""


@dataclass(frozen=True, slots=True)
class TrialOptions:
    """How a function is tried."""

    seconds: float = 3.0
    """That one completion may take"""
    max_seconds: float = 120.0
    """After which nothing more is tried"""
    reference: str | None = None
    """The column with the right answers"""
    golden: str | None = None
    """A column of whole completions that are to be paid"""
    own_forms: tuple[str, ...] = ()
    completions_as: CompletionsAs = "auto"
    python_only: bool = False
    verifiers: tuple[Verifier, ...] = ()
    """Whose verdicts are compared with the function's, where they are installed"""


@dataclass(slots=True)
class TrialInProgress:
    """What is found while a function is tried."""

    scorer: CompletionScorer
    rows: Sequence[RewardRow]
    answers: dict[int, RightAnswer]
    """By the number of the row; rows without an answer are left out"""
    forms: list[FormScores] = field(default_factory=list)
    paid_forms: list[AnswerForm] = field(default_factory=list)
    """The best one, and one of another kind that is paid as well"""
    spellings: list[SpellingScores] = field(default_factory=list)
    after_others: SpellingScores | None = None
    after_wrong_ones: SpellingScores | None = None
    thoughts_over_lines: SpellingScores | None = None
    after_opened_mark: SpellingScores | None = None
    numbers_read_in_part: SpellingScores | None = None
    repetition: RepetitionScores | None = None
    parses_completions: bool = False
    reads_columns: bool = True
    """May it tell a right answer from another row's? Not without a column of the rows"""
    unpaid: list[UnpaidReference] = field(default_factory=list)
    tried: list[TriedCompletion] = field(default_factory=list)
    right_ones: list[ComparedCompletion] = field(default_factory=list)
    """Right answers in the forms that are paid for some row, and their other spellings"""
    changed: list[ChangedScore] = field(default_factory=list)
    right_rows: int = 0
    usual_wrong: float | None = None
    compared: int = 0
    skipped: int = 0
    seen_scores: set[float | None] = field(default_factory=set)
    scored_as_texts: int = 0
    """Completions that were scored as texts, where those of the trial are messages"""
    scores_as_texts: set[float | None] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    def wrong_of(self, row: RewardRow) -> WrongAnswers:
        """Wrong answers for a row."""
        if not self.reads_columns:
            return WrongAnswers((("another answer", NO_ANSWER),))
        return wrong_answers(self.answers[row.number], list(self.answers.values()))

    @property
    def answered_rows(self) -> list[RewardRow]:
        """The rows with a right answer."""
        return [row for row in self.rows if row.number in self.answers]

    def score(self, completions: Sequence[RowCompletion]) -> list[float | None]:
        """Score completions, and remember which scores there are."""
        scores = self.scorer.score(completions)
        self.seen_scores.update(scores)
        return scores
