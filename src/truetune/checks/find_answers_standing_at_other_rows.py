"""Finds rows whose answers stand at other rows, in a known order (a shift, parts of processes) or
in none.

Affinity of rare words says how near each question is to each answer. An order (`answers one row late`, `those of four
processes, one part behind the other`) says which question each answer would belong to. For each row the share of all
others that are at least as near is a probability, were the order false; their product over a stretch of rows has a
distribution that is known (Fisher 1932), so that chance is bounded whatever the texts are like. A stretch is displaced
where an order explains it far beyond chance, with all orders and stretches that were tried counted, and where the rows'
own answers are no nearer than those of anybody. Where no order fits, pairs that belong to each other alone tell it.

The trade-off: rows whose questions and answers share no rare words are never judged.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from truetune.checks.findings import Case
from truetune.checks.link_questions_to_answers_by_number import link_questions_to_answers_by_number
from truetune.checks.question_answer_word_affinity import QuestionAnswerAffinity
from truetune.data.conversation import Origin
from truetune.generation.answer_orders_after_gather import MAX_PROCESSES, gathered_orders

# Of fewer rows no order is beyond chance, with all that are tried counted.
MIN_ROWS = 14
"""Rows from which their order is judged"""
LARGEST = 1_000
"""Rows that are compared with each other: time and memory grow by the square"""
# Chosen, not measured: rows lost or doubled by hand are few. Farther offsets are tried where pairs point at them.
FARTHEST = 20
"""Rows by which answers may be displaced, to be tried without a pair that says so"""
POINTED_AT = 5
"""Farther offsets that are tried: those that most pairs point at"""
# Chosen, not measured: three rows whose answers were exchanged by hand are no order.
SHORTEST = 10
"""Rows of a stretch whose answers are displaced"""
# ln(1e-6), after the Bonferroni correction for all orders and stretches that were tried.
MAX_LOG_CHANCE = -13.8
"""Logarithm of the chance that is left, above which nothing is said"""
OWN_AT_MOST = 0.25
"""Share of the other answer's affinity that a row's own answer has: over the public sets it is ten times as high"""
OWN_ERRORS = 3.0
"""Standard errors above chance from which the rows' own answers are theirs after all"""
COST_PER_ROW = 0.5
"""Nats that each row of a stretch must bring at least: a stretch ends where the order no longer explains the rows"""
MIN_PAIR_SHARE = 0.05
"""Share of the questions that are a pair with some answer; of nine public sets that the tests lay out seven have 0.07
to 0.76, rows with filled-in templates for answers 0 to 0.004"""
MIN_PAIRS = 20
"""Questions with a sure answer, at least. Chosen by hand: with fewer, chance links make an order of
their own"""
MIN_STRETCH_PAIRS = 12
"""Pairs of a part of the rows whose answers stand anywhere in that part: fewer may be chance links"""
# Chosen, not measured: of answers that were sorted, some stand at home by chance.
MAX_OWN_SHARE = 0.1
"""Share of the pairs of a stretch that are at home though its answers stand anywhere"""
CLOSED_SHARE, CLOSED_TIMES = 0.5, 3.0
"""Of the rows whose answer stands elsewhere, the share that holds the answer of another such row; and how many times as
many as chance makes"""
# Chosen, not measured: of sound rows with numbers, some stand in one other answer alone by chance.
MIN_LINKS = 10
"""Numbers of one question that stand in the answer of one other row, from which the answers are those of other rows"""
LINKS_TO_CHANCE = 3
"""How many times as many there are as coincide within the questions, or within the answers"""
NAMED_SHARE = 0.8
"""Share of the pairs that follow an order, where it is named"""
# Chosen, not measured: sound sets have 0.07 to 0.76 pairs a question, threads that quote a number have none.
QUOTING_SHARE = 0.05
"""Share of the questions that must be a pair with the answer before, for "1 row before" to be told"""
QUOTED_CHARACTERS = 200
"""Characters of an answer that a question quotes: enough to tell it from another, and a short quotation is no talk"""

Chunk = Sequence[tuple[str, str, Origin]]
"""Questions and answers of some rows, in file order"""


@dataclass(frozen=True, slots=True)
class DisplacedAnswers:
    """Rows whose answers stand at other rows."""

    order: str
    """Where they stand, as it follows "the answers stand"; empty where no order that is known fits"""
    first: int
    last: int
    """Of the questions"""
    targets: NDArray[np.int64]
    """(questions,) the row of the answer that belongs to each; -1 where it is not known"""
    own: NDArray[np.float32]
    """(displaced questions,) affinity with the own answer"""
    other: NDArray[np.float32]
    """(displaced questions,) with the answer that belongs to each"""
    offset: int = 0
    """Of a shift; else 0"""
    log_chance: float | None = None
    """Of the order, after correction; None where pairs tell it"""
    is_among_sound_rows: bool = False
    """Sound rows stand between them"""

    @property
    def rows(self) -> list[int]:
        """The questions whose answer stands elsewhere."""
        of_stretch = range(self.first, self.last + 1)
        return [row for row in of_stretch if self.targets[row] not in (-1, row)]

    @property
    def evidence(self) -> str:
        """How near the questions are to their own answers and to the displaced ones, and how likely
        that is by chance, in words.
        """
        text = (
            f"affinity by rare words (0 to 1): own answer {format_mean_with_interval(self.own)},"
            f" the other {format_mean_with_interval(self.other)}"
        )
        if self.log_chance is None:
            return f"{text}, over {len(self.other):,} pairs that belong to each other alone"
        power = math.ceil(self.log_chance / math.log(10))
        return f"{text}; chance with all orders and stretches that were tried: below 1e{power}"


@dataclass(frozen=True, slots=True)
class CandidateOrder:
    """An order that answers may stand in."""

    name: str
    targets: NDArray[np.int64]
    """(questions,) the row of the answer of each; -1 for none"""
    offset: int = 0
    is_of_whole: bool = False
    """It can't begin somewhere: it is about nearly all rows or none"""


def find_displaced_among(chunk: Chunk) -> DisplacedAnswers | None:
    """The displaced answers among all rows of a file, of the first LARGEST; None where all are at home."""
    if len(chunk) < MIN_ROWS:
        return None
    kept = chunk[:LARGEST]
    affinity = QuestionAnswerAffinity([one[0] for one in kept], [one[1] for one in kept])
    return DisplacedAnswerSearch(affinity, kept, is_whole=len(kept) == len(chunk)).find()


class DisplacedAnswerSearch:
    """The search among the rows of one chunk."""

    def __init__(self, affinity: QuestionAnswerAffinity, chunk: Chunk, *, is_whole: bool) -> None:
        """`is_whole`: are these all rows of the file? Only then orders of the whole file are tried."""
        self.affinity, self.chunk, self.is_whole = affinity, chunk, is_whole
        self.rows = len(chunk)
        self.paired, self.nearest = (
            affinity.are_questions_surely_paired(),
            affinity.nearest_answers(),
        )

    def find(self) -> DisplacedAnswers | None:
        """The most certain order; else rows whose answers stand anywhere; None where all are at home."""
        return (
            self._find_most_certain_order()
            or self._find_displaced_in_no_order()
            or self._find_exchanged()
            or self._find_displaced_by_shared_numbers()
        )

    def _find_most_certain_order(self) -> DisplacedAnswers | None:
        """The order (a shift, a reversal, parts of processes) that chance explains least; None if
        no order explains the rows.
        """
        candidates = list(self._candidate_orders())
        # Each order with each first and last row.
        tried = math.log(max(1, len(candidates))) + 2 * math.log(self.rows) - math.log(2)
        displaced = [self._displaced_by_order_beyond_chance(one, tried) for one in candidates]
        certain_orders = [
            one for one in displaced if one is not None and one.log_chance is not None
        ]
        return min(certain_orders, key=lambda one: one.log_chance or 0.0, default=None)

    def _displaced_by_order_beyond_chance(
        self, order: CandidateOrder, log_tried: float
    ) -> DisplacedAnswers | None:
        """What an order explains of a stretch of rows; None where that may be chance, or the rows are at home."""
        scores = self._scores_of_other_answers(order.targets)
        first, last = _stretch_with_largest_sum(scores - self._scores_of_own_answers - COST_PER_ROW)
        length = last - first + 1
        if length < (NAMED_SHARE * self.rows if order.is_of_whole else SHORTEST):
            return None
        part = slice(first, last + 1)
        if self._may_quote_the_row_before(part, order.targets):
            return None
        log_chance = _log_chance_of_sum(float(scores[part].sum()), length) + log_tried
        if log_chance > MAX_LOG_CHANCE or not self._are_targets_nearer_than_own_answers(
            part, order.targets
        ):
            return None
        own, other = (
            self.affinity.affinity_with_own_answers[part],
            self._affinity_to_targets(order.targets)[part],
        )
        return DisplacedAnswers(
            order.name, first, last, order.targets, own, other, order.offset, log_chance
        )

    def _may_quote_the_row_before(self, part: slice, targets: NDArray[np.int64]) -> bool:
        """Does an order live on questions that share one word, such as a number, with the answer before?

        So do the later questions of a thread that stands in several rows. An answer of one's own shares several.
        """
        is_before = targets[part] == np.arange(self.rows)[part] - 1
        is_near = self._affinity_to_targets(targets)[part] > 0
        if (is_near & is_before).sum() < NAMED_SHARE * is_near.sum():
            return False
        pairs = self.paired[part] & (self.nearest[part] == targets[part]) & is_before
        return bool(pairs.sum() < QUOTING_SHARE * is_near.sum())

    def _are_targets_nearer_than_own_answers(self, part: slice, targets: NDArray[np.int64]) -> bool:
        """Are the own answers of a stretch no nearer than anybody's, and those of an order far nearer?"""
        own_scores = self._scores_of_own_answers[part]
        rows = len(own_scores)
        # Under chance the scores have a mean and a variance of 1 at most.
        if own_scores.sum() > rows + OWN_ERRORS * math.sqrt(rows):
            return False
        other = self._affinity_to_targets(targets)[part]
        return bool(
            self.affinity.affinity_with_own_answers[part].mean() <= OWN_AT_MOST * other.mean()
        )

    def _find_displaced_in_no_order(self) -> DisplacedAnswers | None:
        """Rows whose answers stand at other rows of the same stretch, in no order that was tried."""
        own = self.nearest == np.arange(self.rows)
        votes = np.where(self.paired, np.where(own, -1.0 / MAX_OWN_SHARE / 2, 1.0), 0.0)
        first, last = _stretch_with_largest_sum(votes)
        part = slice(first, last + 1)
        away = np.flatnonzero(self.paired & ~own)
        away = away[(away >= first) & (away <= last)]
        pairs = int(self.paired[part].sum())
        enough = max(MIN_STRETCH_PAIRS, MIN_PAIR_SHARE * (last - first + 1))
        if len(away) < enough or pairs - len(away) > MAX_OWN_SHARE * pairs:
            return None
        of_stretch = (self.nearest[away] >= first) & (self.nearest[away] <= last)
        # A chance link goes anywhere; what was exchanged within a part stays in it.
        if of_stretch.mean() < NAMED_SHARE or not self._are_own_answers_no_nearer(part):
            return None
        offset, pairs_of_offset = Counter((self.nearest[away] - away).tolist()).most_common(1)[0]
        if pairs_of_offset < NAMED_SHARE * len(away):
            return self._make_displaced_answers(
                away, first, last, self._order_name_by_step_or_sorting(away)
            )
        # A shift of few rows, which the correction for all that is tried does not let through.
        shifted = self._make_displaced_answers(away, first, last, _describe_shift(offset))
        return replace(shifted, offset=offset)

    def _find_exchanged(self) -> DisplacedAnswers | None:
        """Rows all over the file whose answers were exchanged among each other: where the answer of one went, its own
        went elsewhere too. Chance links go to rows whose own answer is at home."""
        away = np.flatnonzero(self.paired & (self.nearest != np.arange(self.rows)))
        links = len(away)
        if links < MIN_STRETCH_PAIRS or links < MIN_PAIR_SHARE * int(self.paired.sum()):
            return None
        closed = len(np.intersect1d(away, self.nearest[away]))
        by_chance = links * links / self.rows
        if closed < max(CLOSED_SHARE * links, CLOSED_TIMES * by_chance):
            return None
        own_scores = self._scores_of_own_answers[away].sum()
        if own_scores > links + OWN_ERRORS * math.sqrt(links):
            return None
        displaced = self._make_displaced_answers(away, int(away[0]), int(away[-1]), "")
        return replace(displaced, is_among_sound_rows=True)

    def _find_displaced_by_shared_numbers(self) -> DisplacedAnswers | None:
        """Rows whose numbers (of an order, a part) stand in the answers of other rows, where filled-in templates share
        too few words to be pairs."""
        links = link_questions_to_answers_by_number(
            [one[0] for one in self.chunk], [one[1] for one in self.chunk]
        )
        away = _one_way_links(links.away)
        total = len(away) + links.own
        if len(away) < max(
            MIN_LINKS, MIN_PAIR_SHARE * self.rows, LINKS_TO_CHANCE * links.by_chance
        ):
            return None
        # A thread in several rows names in its next question what was answered before.
        offsets = Counter(answer - question for question, answer in away.items())
        if links.own > MAX_OWN_SHARE * total or offsets.most_common(1)[0][1] > len(away) / 2:
            return None
        if not self._are_own_answers_no_nearer(slice(0, self.rows)):
            return None
        questions = np.array(sorted(away))
        targets = np.full(self.rows, -1)
        targets[questions] = [away[question] for question in questions.tolist()]
        own, other = (
            self.affinity.affinity_with_own_answers[questions],
            self._affinity_to_targets(targets)[questions],
        )
        first, last = int(questions[0]), int(questions[-1])
        name = self._order_name_by_file_numbers(away) or self._order_name_by_sorting()
        return DisplacedAnswers(name, first, last, targets, own, other)

    def _make_displaced_answers(
        self, away: NDArray[np.int64], first: int, last: int, order: str
    ) -> DisplacedAnswers:
        """The rows whose pairs are at other rows, with their affinities."""
        targets = np.full(self.rows, -1)
        targets[away] = self.nearest[away]
        own, other = (
            self.affinity.affinity_with_own_answers[away],
            self._affinity_to_targets(targets)[away],
        )
        return DisplacedAnswers(order, first, last, targets, own, other)

    def _are_own_answers_no_nearer(self, part: slice) -> bool:
        """Are the rows' own answers no nearer to their questions than the answers of all rows are?"""
        gain = (
            self.affinity.affinity_with_own_answers - self.affinity.mean_affinity_with_all_answers()
        )[part]
        error = float(gain.std()) / math.sqrt(len(gain))
        # Where no rare word is shared at all, both are 0.
        return float(gain.mean()) <= OWN_ERRORS * error

    def _order_name_by_step_or_sorting(self, away: NDArray[np.int64]) -> str:
        """The step that most pairs follow (question 4 * i + rank), where parts of several processes were put together;
        else the key by which the answers were sorted."""
        targets = self.nearest[away]
        # Few pairs would lie on many lines by chance.
        for step in range(2, min(MAX_PROCESSES, len(away) // 6) + 1):
            for one, other in ((away, targets), (targets, away)):
                constants = Counter((one - step * other).tolist()).most_common(step)
                if sum(count for _, count in constants) >= NAMED_SHARE * len(away):
                    return _describe_process_order(step)
        sums = Counter((away + targets).tolist()).most_common(1)[0]
        if sums[1] >= NAMED_SHARE * len(away):
            return "in reverse order"
        pairs = dict(zip(away.tolist(), targets.tolist(), strict=True))
        return self._order_name_by_file_numbers(pairs) or self._order_name_by_sorting()

    def _order_name_by_file_numbers(self, pairs: Mapping[int, int]) -> str:
        """Were the questions sorted by the numbers of their files as text (1, 10, 100, 2), and the answers as numbers,
        or the reverse? Empty where the pairs (question, answer) say neither."""
        if not self.is_whole or len(pairs) < MIN_LINKS:
            return ""
        sides = (
            ("questions", "answers", list(pairs.items())),
            ("answers", "questions", [(answer, question) for question, answer in pairs.items()]),
        )
        for first in (1, 0):
            as_text = sorted(range(first, first + self.rows), key=str)
            for side, other, links in sides:
                follow = sum(as_text[place] - first == beside for place, beside in links)
                if follow >= NAMED_SHARE * len(pairs):
                    return (
                        f"in the order of file numbers: the {side} sorted by them as text (1, 10, 100, 2), the {other}"
                        " as numbers"
                    )
        return ""

    def _order_name_by_sorting(self) -> str:
        """How the answers were sorted, if one side alone is sorted by something that is tried; else
        empty.
        """
        sides = {
            "answers": [answer for _, answer, _ in self.chunk],
            "questions": [question for question, _, _ in self.chunk],
        }
        for side, texts in sides.items():
            lengths = [len(text) for text in texts]
            if lengths in (sorted(lengths), sorted(lengths, reverse=True)):
                return f"sorted by length, the {side} alone"
            if texts == sorted(texts):
                return f"sorted by text, the {side} alone"
        return ""

    def _candidate_orders(self) -> Iterator[CandidateOrder]:
        """Shifts, and what scripts make of whole files: reversed, put together from several processes."""
        rows = np.arange(self.rows)
        away = self.nearest[self.paired] - rows[self.paired]
        pointed = [offset for offset, _ in Counter(away.tolist()).most_common(POINTED_AT)]
        near = (*range(-FARTHEST, 0), *range(1, FARTHEST + 1))
        for offset in dict.fromkeys([*near, *pointed]):
            if offset:
                targets = rows + offset
                targets[(targets < 0) | (targets >= self.rows)] = -1
                yield CandidateOrder(_describe_shift(offset), targets, offset)
        pairs = rows ^ 1
        pairs[pairs >= self.rows] = -1
        yield CandidateOrder("at the other row of each two", pairs)
        if not self.is_whole:
            return
        yield CandidateOrder("in reverse order", rows[::-1].copy(), is_of_whole=True)
        for processes in range(2, min(MAX_PROCESSES, self.rows // 4) + 1):
            for order in gathered_orders(self.rows, processes):
                targets = np.full(self.rows, -1)
                targets[order] = rows
                yield CandidateOrder(_describe_process_order(processes), targets, is_of_whole=True)

    @cached_property
    def _scores_of_own_answers(self) -> NDArray[np.float64]:
        """(questions,) how surely each belongs to the answer of its own row, in nats."""
        return -np.log(self._shares_of_answers_at_least_as_near(np.arange(self.rows)))

    def _scores_of_other_answers(self, targets: NDArray[np.int64]) -> NDArray[np.float64]:
        """(questions,) how surely each belongs to an answer of another row, in nats; 0 where that answer is quoted."""
        scores = -np.log(self._shares_of_answers_at_least_as_near(targets))
        for row in np.flatnonzero(scores > COST_PER_ROW).tolist():
            # The question quotes an answer before it: one conversation in several rows.
            quoted = self.chunk[int(targets[row])][1].strip()[:QUOTED_CHARACTERS]
            if quoted in self.chunk[row][0]:
                scores[row] = 0.0
        return scores

    def _shares_of_answers_at_least_as_near(
        self, targets: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """(questions,) the share of answers that are at least as near to the question, or of questions to the answer.

        The larger of the two: an answer that serves many rows is near to many questions, and says nothing. 1 where
        nothing is shared.
        """
        known = np.flatnonzero(targets >= 0)
        of = targets[known]
        values = self.affinity.matrix[known, of]
        by_row, by_column = self._sorted_affinities_of_questions_and_answers
        shares = np.ones(len(targets))
        for row, answer, value in zip(known.tolist(), of.tolist(), values.tolist(), strict=True):
            if value > 0:
                among_answers = self.rows - np.searchsorted(by_row[row], np.float32(value))
                among_questions = self.rows - np.searchsorted(by_column[answer], np.float32(value))
                shares[row] = max(among_answers, among_questions) / self.rows
        return shares

    @cached_property
    def _sorted_affinities_of_questions_and_answers(
        self,
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The affinities of each question, and of each answer, the least first."""
        return np.sort(self.affinity.matrix, axis=1), np.sort(self.affinity.matrix.T, axis=1)

    def _affinity_to_targets(self, targets: NDArray[np.int64]) -> NDArray[np.float32]:
        """(questions,) the affinity of each question with the answer of its target row; 0 if it has
        no target.
        """
        values = self.affinity.matrix[np.arange(self.rows), targets]
        return np.where(targets >= 0, values, np.float32(0))


def _one_way_links(links: Sequence[tuple[int, int]]) -> dict[int, int]:
    """Question -> answer of the links that don't also lead back, as those of two rows on one matter do."""
    mutual = {(answer, question) for question, answer in links}
    return {question: answer for question, answer in links if (question, answer) not in mutual}


def _log_chance_of_sum(total: float, rows: int) -> float:
    """The logarithm of the chance that so many scores have such a sum or more (Chernoff's bound of a gamma)."""
    if total <= rows:
        return 0.0
    return rows - total + rows * math.log(total / rows)


def _stretch_with_largest_sum(gain: NDArray[np.float64]) -> tuple[int, int]:
    """(first, last) row of the stretch with the largest sum of gains (Kadane 1984)."""
    best, first, last = 0.0, 0, -1
    total, start = 0.0, 0
    for row, value in enumerate(gain.tolist()):
        if total <= 0:
            total, start = 0.0, row
        total += value
        if total > best:
            best, first, last = total, start, row
    return first, last


def _describe_shift(offset: int) -> str:
    """A shift by so many rows in words: `2 rows further on`."""
    rows = abs(offset)
    return f"{rows} row{'s' * (rows != 1)} {'further on' if offset > 0 else 'before'}"


def _describe_process_order(processes: int) -> str:
    """The order of answers that several processes gave, in words."""
    return f"in the order in which {processes} processes gave them"


def format_mean_with_interval(values: NDArray[np.float32]) -> str:
    """A mean with its 95 % interval."""
    # 1.96 standard errors either way: the normal approximation, good from some 30 rows on.
    half = 1.96 * float(values.std()) / np.sqrt(len(values))
    return f"{float(values.mean()):.2f} (95 %: {values.mean() - half:.2f} to {values.mean() + half:.2f})"


def case_of_displaced_answer(chunk: Chunk, row: int, other: int) -> Case:
    """The case of a question whose answer stands at another row."""
    question, answer = chunk[row][0].strip()[:60], chunk[other][1].strip()[:60]
    return Case(f"{question!r} is answered at {chunk[other][2]}: {answer!r}", chunk[row][2])
