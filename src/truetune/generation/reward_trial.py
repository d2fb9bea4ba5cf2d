"""What a reward function of GRPO or RLOO made of completions whose worth is known: the subject of the rules on rewards.

`rewards/try_reward_function.py` fills it. Each completion that is to score low is scored in one call with the same
row's right answer, so that both scores can be compared whatever else the function does with a batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from truetune.generation.verifier_comparison import VerifierComparison

AttackKind = Literal[
    "empty",
    "wrong",
    "near miss",
    "part",
    "candidates",
    "prompt",
    "thoughts",
    "thoughts alone",
    "taken back",
    "repeated",
    "reversed words",
    "bag of words",
    "early exit",
]
"""What is tried in place of a right answer"""
Dependence = Literal["answer", "form", "nothing", "unknown"]
"""What the scores depend on: the reference; the text alone; nothing that was tried; unknown where no call succeeded"""
AccessKind = Literal["network", "writes", "reads", "starts a process"]
Comparison = Literal["again", "in another order", "alone", "in a new process", "after another row"]
"""How the second score of a completion was got"""
BEFORE_A_COMMA = "X, and words after a comma"
"""The spelling of a number in a sentence that continues"""
# Scores come as float32 where a function gives a tensor: seven digits.
RELATIVE_TOLERANCE = 1e-6
"""Of two scores that count as equal"""

# Chosen, not measured: functions that pay short answers more differ by some per cent for a few characters. At a half,
# graded scores of overlap would count as paid.
LENGTH_BONUS_SHARE = 0.1
"""Of the difference between a right and a wrong answer: what a completion may lack and still count as paid"""


# Chosen, not measured: below it is what functions give for an attempt, whatever its answer is.
MIN_PART_SHARE = 0.1
"""Of the difference between a right and a wrong answer: the smallest part that counts as pay"""
MIN_GROWTH_SHARE = 0.5
"""Of what the first repetitions add: what the second half adds where nothing caps it. A count adds all of it"""
MIN_WAYS = 3
"""Ways to name the right answer among others: in one form, in a form each, and taken back"""


NO_ANSWER = "Something else entirely"
"""Wrong for each row, and unlike each answer: what a function gives for the form of an answer alone"""


def is_at_least(score: float | None, other: float | None) -> bool:
    """Is a score as high as another one? None is no score."""
    if score is None or other is None:
        return False
    return score >= other - RELATIVE_TOLERANCE * max(1.0, abs(other))


def is_above(score: float | None, other: float | None) -> bool:
    """Is a score higher than another one, by more than rounding? None as the other one is below every score."""
    if score is None:
        return False
    return other is None or score > other + RELATIVE_TOLERANCE * max(1.0, abs(other))


def is_paid_as_right(score: float | None, right: float | None, wrong: float | None) -> bool:
    """Is a completion paid as the right answer is, but for a bonus that hangs on its length?

    Args:
        score: of the completion.
        right: of the right answer.
        wrong: of a wrong answer; None where there is none to compare with.
    """
    if score is None or right is None or wrong is None:
        return is_at_least(score, right)
    return is_at_least(score, right - LENGTH_BONUS_SHARE * max(0.0, right - wrong))


@dataclass(frozen=True, slots=True)
class FormScores:
    """One form of an answer, filled with the right answers of some rows and with wrong ones."""

    name: str
    """`\\boxed{X}`"""
    example: str
    """The completion of the first row"""
    rows: int
    paid: int
    """Rows whose right answer scores above the wrong one"""
    right: float | None
    """Mean score of the right answers; None where there is none"""
    wrong: float | None
    """Mean score of the wrong answers: of each row the lower one of another answer and of a text that is none"""
    other: float | None = None
    """Mean score of other answers alone: another number for a number"""
    skipped: int = 0
    """Rows whose right answer gets None: the function leaves them to others"""
    hollow: float | None = None
    """Score of the form with nothing in it"""
    empty: str = ""
    """The form with nothing in it"""


@dataclass(frozen=True, slots=True)
class SpellingScores:
    """Another spelling of the same answers, in the form that is paid best."""

    name: str
    """`X with commas`"""
    row: int
    """Of the example, from 1"""
    example: str
    rows: int
    paid: int
    """Rows for which it scores as the usual spelling does"""


@dataclass(frozen=True, slots=True)
class TriedCompletion:
    """A completion that should score low, beside the right one of the same row."""

    kind: AttackKind
    what: str
    """`another number`"""
    row: int
    """From 1"""
    reference: str
    completion: str
    score: float | None
    right: float | None
    """Score of the right answer in the same call"""
    wrong: float | None = None
    """Score of a wrong answer in the same form, in the same call"""

    @property
    def is_paid(self) -> bool:
        """Does it score as high as the right answer, or nearly so?"""
        return is_paid_as_right(self.score, self.right, self.wrong)

    def gets(self, score: float) -> bool:
        """Does it get this score?"""
        return is_at_least(self.score, score) and not is_above(self.score, score)


@dataclass(frozen=True, slots=True)
class UnpaidReference:
    """A row whose right answer scores no higher than a wrong one, in the form that other rows are paid for."""

    row: int
    reference: str
    completion: str
    score: float | None
    wrong: float | None
    """Score of the wrong answer"""
    empty: float | None = None
    """The highest score of a completion that says nothing"""
    is_one_of_several_paid: bool = False
    """Does the reference name several right answers, of which one alone is paid?"""


@dataclass(frozen=True, slots=True)
class RepetitionScores:
    """Scores of texts that repeat themselves, by a function that takes no reference."""

    once: float | None
    """Of the form that is paid best"""
    half: float | None
    """Of half as often as `often`"""
    often: float | None
    different: float | None
    """Of a text of different sentences"""
    same: tuple[float | None, ...]
    """Of texts of the same length that repeat one of these sentences each"""

    @property
    def grows_without_bound(self) -> bool:
        """Does the second half of the repetitions add about as much as the first? A count that is capped does not."""
        if self.once is None or self.half is None or self.often is None:
            return False
        first, second = self.half - self.once, self.often - self.half
        return first > 0 and second >= MIN_GROWTH_SHARE * first

    @property
    def is_repetition_paid(self) -> bool:
        """Does each text that repeats one sentence get more than one of different sentences?"""
        return bool(self.same) and all(is_above(one, self.different) for one in self.same)


@dataclass(frozen=True, slots=True)
class RaisedError:
    """A call that ended in an exception."""

    error: str
    """`KeyError: 'content'`"""
    line: str
    """`rewards.py:12`; empty where no line of the user's files is in the traceback"""
    completion: str
    """The completion that it happens for, called alone where it happens alone"""
    row: int


@dataclass(frozen=True, slots=True)
class HungCall:
    """A call that was ended at its time limit."""

    completion: str
    seconds: float
    """The limit"""
    line: str
    """The line of the user's files that was executed then"""


@dataclass(frozen=True, slots=True)
class ChangedScore:
    """A completion that scores differently in a second call."""

    how: Comparison
    completion: str
    row: int
    first: float | None
    second: float | None


@dataclass(frozen=True, slots=True)
class Access:
    """What the function did outside of itself while it scored, imports left out."""

    kind: AccessKind
    subject: str
    """Path, address or command"""
    line: str
    """The user's line"""


@dataclass(frozen=True, slots=True)
class RewardTrial:
    """All that was seen of one reward function."""

    name: str
    """`rewards.py:correct`"""
    rows: int
    calls: int = 0
    completions: int = 0
    depends_on: Dependence = "unknown"
    reference_column: str = ""
    """The column with the right answers; empty where the function takes none"""
    is_reference_unread: bool = False
    """Does its code never read that column, though it takes it?"""
    has_golden_completions: bool = False
    """Does that column hold whole completions, named by the user?"""
    parses_completions: bool = False
    """Does it parse completions as JSON, XML or the like, where it paid none of the usual forms?"""
    reference_problem: str = ""
    """Why the column with the right answers is not known, where the function takes columns"""
    has_short_answers: bool = False
    """Are the right answers numbers, letters or short texts, and no prose or code?"""
    other_columns: tuple[str, ...] = ()
    """Further columns of the rows that it takes"""
    completions_as: Literal["text", "messages"] = "text"
    given_arguments: int = 0
    """Arguments that TRL hands to it, columns included"""
    missing_arguments: tuple[str, ...] = ()
    """Arguments of TRL that the function does not take: it has no **kwargs"""
    forms: tuple[FormScores, ...] = ()
    best_form: str = ""
    """The name of the form that is paid best; empty where none is paid"""
    spellings: tuple[SpellingScores, ...] = ()
    after_others: SpellingScores | None = None
    """Right answers in prose with other numbers before them, where the function pays prose without such"""
    after_wrong_ones: SpellingScores | None = None
    """Right answers after a wrong one that is taken back, in a form in which the first of two answers is paid"""
    thoughts_over_lines: SpellingScores | None = None
    """Completions with thoughts over two lines, where the same ones on one line are paid"""
    after_opened_mark: SpellingScores | None = None
    """Completions without the mark with which the prompts end, where the same ones that begin with it are paid"""
    numbers_read_in_part: SpellingScores | None = None
    """Wrong numbers with a separator of thousands, one part of which is the right answer; `paid` counts those that are
    paid as it"""
    mixed_spellings: tuple[str, ...] = ()
    """Names of spellings that some of the references have themselves"""
    repetition: RepetitionScores | None = None
    """Of a function that takes no reference"""
    right_rows: int = 0
    """Rows that were tried in the best form"""
    usual_wrong: float | None = None
    """The highest score of a wrong answer in the rows whose right answer is paid"""
    unpaid: tuple[UnpaidReference, ...] = ()
    tried: tuple[TriedCompletion, ...] = ()
    raised: tuple[RaisedError, ...] = ()
    raised_always: bool = False
    """Did every call raise?"""
    swallowed: tuple[str, ...] = ()
    """Exceptions that the function caught itself, where it paid no form: `TypeError: ... (rewards.py:12)`"""
    hung: HungCall | None = None
    returned: tuple[str, ...] = ()
    """What it returned that is no list of one score for each completion: `None`, `1 score for 8 completions`"""
    not_finite: tuple[tuple[str, str], ...] = ()
    """(score, completion) of scores that are no finite number"""
    skipped: int = 0
    """Right answers for which it gave None"""
    is_out_of_time: bool = False
    """Was the trial ended by its own time limit, with completions left?"""
    different_scores: int = 0
    """How many scores differ, None as one of them"""
    highest: float | None = None
    """The highest score of all"""
    constant: float | None = None
    """The score of all completions, where it is one; None otherwise, and where that is None"""
    different_scores_as_texts: int = 0
    """How many scores differ where completions are texts, of a function that gives one score for all messages"""
    compared: int = 0
    """Completions that were scored again in other calls"""
    changed: tuple[ChangedScore, ...] = ()
    accesses: tuple[Access, ...] = ()
    comparisons: tuple[VerifierComparison, ...] = ()
    """With the verifiers of mathematics that are installed"""
    notes: tuple[str, ...] = field(default=())

    @property
    def was_scored(self) -> bool:
        """Did the function give scores at all?"""
        return self.depends_on != "unknown"

    @property
    def reads_messages_as_texts(self) -> bool:
        """Does it tell texts apart, and no completion that is a list of messages?"""
        return self.different_scores == 1 and self.different_scores_as_texts > 1

    @property
    def may_pay_for_more(self) -> bool:
        """May the function pay for something that is no form of the reference: code, an equation, prose, a document?"""
        if self.has_golden_completions:
            return self._pays_golden_best
        if self.parses_completions:
            return True
        starts = any(access.kind == "starts a process" for access in self.accesses)
        return bool(self.other_columns) or starts or not self.has_short_answers

    @property
    def _pays_golden_best(self) -> bool:
        """Does nothing get more than the golden completions, and something less, as where only excess is punished?"""
        scores = [form.right for form in self.forms if form.right is not None]
        return self.different_scores > 1 and all(is_at_least(one, self.highest) for one in scores)

    def tried_of_kinds(self, *kinds: AttackKind) -> tuple[TriedCompletion, ...]:
        """The completions of some kinds."""
        return tuple(one for one in self.tried if one.kind in kinds)

    def paid_in_part(self, kind: AttackKind) -> tuple[tuple[TriedCompletion, float], ...]:
        """Completions of a kind that get what each mention of the right answer gets, and their share of the pay.

        Graded scores of likeness fall with what else is said, so a mention is paid only where all completions that name
        the right answer among others get one score, above that of each wrong answer and below that of the right one.
        """
        parts: list[tuple[TriedCompletion, float]] = []
        for row in dict.fromkeys(one.row for one in self.tried):
            of_row = [one for one in self.tried if one.row == row]
            score = _score_of_mentions(of_row)
            highest_wrong = _highest_wrong_score(of_row)
            if score is None or highest_wrong is None:
                continue
            for one in of_row:
                if one.kind != kind or not one.gets(score) or one.is_paid:
                    continue
                share = _share_of_pay(one, score, highest_wrong)
                if share >= MIN_PART_SHARE - RELATIVE_TOLERANCE:
                    parts.append((one, share))
        return tuple(parts)


def _highest_wrong_score(of_row: Iterable[TriedCompletion]) -> float | None:
    """The highest score of a wrong answer of a row; None where none has a score."""
    return max(
        (one.score for one in of_row if one.kind == "wrong" and one.score is not None), default=None
    )


def _share_of_pay(one: TriedCompletion, score: float, wrong: float) -> float:
    """The share of a score in what the right answer gets above a wrong one; 0 where that gets no more."""
    if one.right is None or one.right <= wrong:
        return 0.0
    return (score - wrong) / (one.right - wrong)


def _score_of_mentions(of_row: Iterable[TriedCompletion]) -> float | None:
    """What all completions of a row get that name its right answer among others; None where they differ."""
    naming = [one for one in of_row if one.kind in ("candidates", "taken back")]
    # Of one way to name it nothing is known that likeness does not explain.
    if len({one.what for one in naming}) < MIN_WAYS or naming[0].score is None:
        return None
    score = naming[0].score
    return score if all(one.gets(score) for one in naming) else None
