"""Finds answers that stand beside the references of other rows, because the order of the rows was lost.

Each answer is looked up among all references: it gives one where it is the same words, holds a short one whole, or
shares far more rare words with it than with any other. Answers that give the references of other rows, and hardly one
of them twice, were put out of order: a model that guesses among the references would name some of them often and
others never (the birthday problem). Where a few labels repeat each other no answer points at one row, so the orders
that scripts lose (shifted, reversed, sorted by length, gathered from several processes) are tried one by one.

The trade-off: a lost order is told only where it is sure. Answers that are right of several rows, short ones and few
rows tell nothing, and tests/generation/test_answer_row_order.py holds that confusions of a model are never taken for
one.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from truetune.generation.answer_orders_after_gather import MAX_PROCESSES, gathered_orders
from truetune.generation.answer_samples import Sample
from truetune.generation.split_words import DENSE, split_words

# Chosen, not measured: with half of them two rows that are near copies could do it.
MIN_ELSEWHERE = 8
"""Answers that must point elsewhere: fewer may be confusions of a model"""
# Chosen for speed: the order of all shows in a part.
MAX_EXAMINED_ANSWERS = 2_000
"""Answers that are looked up, spread over all rows; each costs as much as there are rows with a rare word of it"""
# Chosen, not measured: a more frequent word is weighed at less than 2.3 nats, and costs more to look up than all
# others.
MAX_POSTING_SHARE = 0.1
"""Share of the references that may hold a word that still tells them apart"""
MIN_TELLING_LETTERS = 4
"""Letters and digits that a reference needs to be no chance hit: `B` and `12` are given by guessing"""
SHORT_WORDS = 5
"""Words of a reference that an answer may hold whole in a sentence of its own"""
MIN_LIKENESS, MIN_TIMES_NEXT = 0.3, 2.0
"""Share of the rare words that an answer and its reference have in common, at least, and how many times that of the
next best: answers of one fine-tune to other questions share below 0.15 (Alpaca's rows among each other)"""
# Chosen: a file that is shuffled or sorted loses the order of all its rows; of a part only a shift does.
MIN_LOST_SHARE = 0.5
"""Share of the answers that belong elsewhere, from which the order of all is lost: more than half"""
# Chosen, not measured.
MIN_SHIFTED_SHARE = 0.05
"""The same where all of them are off by the same number of rows: then a part of the file is enough"""
MAX_CHANCE = 0.01
"""Probability below which guessing does not explain that hardly a reference is given twice: the usual level of tests"""
# Chosen, not measured: some answers are looked up wrongly, and no two of the known orders agree on so many rows.
MIN_SAME_ORDER_SHARE = 0.8
"""Share of the answers that follow one order, where it is named"""
MIN_SORTED_SHARE = 0.9
"""Rank correlation, and share of neighbours in order, from which rows are sorted by a key that is known roughly: a
sampler that groups by length counts tokens, and we characters"""
MIN_AGREEMENT_GAIN, MIN_DEVIATIONS = 0.3, 5.0
"""By how much labels must agree better in another order, and by how many standard deviations of chance: some 60 orders
are tried"""
# Chosen, not measured.
MIN_GAIN_OVER_EXCHANGED_LABELS = 0.15
"""How much less another meaning of the labels must explain than another order does"""
# Chosen, not measured: each further order that is tried makes chance likelier.
MAX_SHIFT = 16
"""Rows too early or too late by which labels are tried"""


@dataclass(frozen=True, slots=True)
class RowOrder:
    """Answers that belong to other rows."""

    targets: Mapping[int, int]
    """Row of an answer -> the row whose reference it gives"""
    elsewhere: int
    in_place: int
    """Answers that give their own reference"""
    examined_answers: int
    order: str
    """What the order is like; empty where it is like none that is known"""


def row_order_of(samples: Sequence[Sample]) -> RowOrder | None:
    """`find_row_order` of the samples of one sampling pass."""
    return find_row_order(
        [sample.answer.text for sample in samples],
        [sample.prompt.reference for sample in samples],
        [sample.prompt.question for sample in samples],
    )


def find_row_order(
    answers: Sequence[str], references: Sequence[str], prompts: Sequence[str]
) -> RowOrder | None:
    """The order of answers that belong to other rows.

    Args:
        answers: one a row.
        references: as many; one that is not known is empty.
        prompts: as many; one that is not known is empty.

    Returns:
        None where the answers stand in their rows, or that can't be told.
    """
    rows = [row for row, reference in enumerate(references) if reference.strip()]
    if len(rows) < MIN_ELSEWHERE:
        return None
    texts = [[column[row] for row in rows] for column in (answers, references, prompts)]
    order = _order_by_texts(*texts) or _order_by_labels(*texts)
    if order is None:
        return None
    targets = {rows[at]: rows[target] for at, target in order.targets.items()}
    return replace(order, targets=targets)


class ReferenceIndex:
    """References by their texts and by their rare words.

    Attributes:
        keys: their words, one text each.
        rows: by key.
        word_sets: by row.
        unique: how many references tell their row.
    """

    def __init__(self, references: Sequence[str]) -> None:
        self.keys = [" ".join(split_words(reference)) for reference in references]
        self.rows = defaultdict[str, list[int]](list)
        self.word_sets = [frozenset(key.split()) for key in self.keys]
        self._postings = defaultdict[str, list[int]](list)
        for row, key in enumerate(self.keys):
            self.rows[key].append(row)
            for word in self.word_sets[row]:
                self._postings[word].append(row)
        # Two at least: in a small file a tenth of the rows may be less than one.
        self._longest_posting = max(2.0, MAX_POSTING_SHARE * len(references))
        # A word of an answer that no reference has weighs most: an answer full of them gives none of the references.
        self._unknown_weight = math.log(1 + len(references))
        self._weights = [
            sum(map(self._inverse_document_frequency, words)) for words in self.word_sets
        ]
        self.unique = sum(map(self.does_reference_identify_row, range(len(self.keys))))

    def does_reference_identify_row(self, row: int) -> bool:
        """Is a reference long enough, and the only one of its kind?"""
        key = self.keys[row]
        letters = sum(2 if _is_character_dense(c) else 1 for c in key if c.isalnum())
        return letters >= MIN_TELLING_LETTERS and len(self.rows[key]) == 1

    def find_row_whose_reference_is_given(self, answer: str, own: int) -> int | None:
        """The row whose reference an answer gives; `own` where that is as good; None where it is none."""
        key = " ".join(split_words(answer))
        rows = self.rows.get(key)
        if rows is not None:
            # References that stand several times: the own row is as good as the others.
            if own in rows:
                return own
            return rows[0] if self.does_reference_identify_row(rows[0]) else None
        if self._holds_reference_whole(key, own):
            return own
        return self._likeliest_row(frozenset(key.split()), own, key)

    def _holds_reference_whole(self, key: str, row: int) -> bool:
        """Does an answer hold a reference whole?"""
        reference = self.keys[row]
        return bool(reference) and f" {reference} " in f" {key} "

    def _likeliest_row(self, answer: frozenset[str], own: int, key: str) -> int | None:
        """The row whose reference shares by far the most rare words with an answer; None where no
        row is far likelier than the others.
        """
        shared, hits = self._shared_words(answer)
        total = sum(map(self._inverse_document_frequency, answer))
        likeness = {
            row: self._likeness_to_reference(row, weight, total) for row, weight in shared.items()
        }
        best = sorted(likeness, key=likeness.__getitem__, reverse=True)[:2]
        if not best:
            return None
        first = best[0]
        rival = likeness[best[1]] if best[1:] else 0.0
        if likeness[first] < MIN_LIKENESS or likeness[first] < MIN_TIMES_NEXT * rival:
            return None
        # One word is no proof, unless it is a whole short reference.
        is_short = len(self.word_sets[first]) <= SHORT_WORDS
        if hits[first] == 1 and not (is_short and self._holds_reference_whole(key, first)):
            return None
        return first if first == own or self.does_reference_identify_row(first) else None

    def _shared_words(self, answer: frozenset[str]) -> tuple[dict[int, float], Counter[int]]:
        """By row: the weight of the rare words that it has in common with an answer, and their number."""
        shared, hits = defaultdict[int, float](float), Counter[int]()
        for word in answer:
            rows = self._postings.get(word, ())
            if len(rows) > self._longest_posting:
                continue
            weight = self._inverse_document_frequency(word)
            for row in rows:
                shared[row] += weight
                hits[row] += 1
        return shared, hits

    def _likeness_to_reference(self, row: int, shared: float, answer_weight: float) -> float:
        """Share of the weights of the words of both, or all of a short reference that is held whole."""
        own = self._weights[row]
        is_short = len(self.word_sets[row]) <= SHORT_WORDS
        whole = own if is_short else (own + answer_weight) / 2
        return shared / whole if whole else 0.0

    def _inverse_document_frequency(self, word: str) -> float:
        """What a word tells of the row that it is from, in nats (its inverse document frequency)."""
        rows = self._postings.get(word)
        return self._unknown_weight if rows is None else self._unknown_weight - math.log(len(rows))


def _is_character_dense(character: str) -> bool:
    """Does a character say as much as some letters?"""
    return any(low <= character <= high for low, high in zip(DENSE[::3], DENSE[2::3], strict=False))


def _order_by_texts(
    answers: Sequence[str], references: Sequence[str], prompts: Sequence[str]
) -> RowOrder | None:
    """The order of the answers by references that tell their row; None where no order is lost, or
    too few of them do.
    """
    index = ReferenceIndex(references)
    # Labels, numbers and short texts tell no row: `_order_by_labels` looks at those.
    if index.unique < MIN_ELSEWHERE:
        return None
    # Evenly spread, so that a shift which begins somewhere is seen in its place.
    step = max(1, math.ceil(len(answers) / MAX_EXAMINED_ANSWERS))
    looked_at = range(0, len(answers), step)
    given = {row: index.find_row_whose_reference_is_given(answers[row], row) for row in looked_at}
    at_home = sum(target == row for row, target in given.items())
    targets = _rows_of_given_references(given, answers, prompts)
    elsewhere = len(targets)
    if elsewhere < MIN_ELSEWHERE:
        return None
    shift, count = _commonest_shift_and_count(targets)
    is_one_shift = count >= MIN_SAME_ORDER_SHARE * elsewhere
    is_shifted = is_one_shift and elsewhere >= MIN_SHIFTED_SHARE * len(looked_at)
    if not is_shifted and not _is_order_of_all_rows_lost(
        targets, index.unique, len(looked_at), len(answers)
    ):
        return None
    order = _name_of_order_that_explains(targets, len(answers), prompts, references)
    if is_shifted and at_home >= MIN_ELSEWHERE:
        order += _first_shifted_row_in_words(targets, shift)
    return RowOrder(targets, elsewhere, at_home, len(looked_at), order)


def _rows_of_given_references(
    given: Mapping[int, int | None], answers: Sequence[str], prompts: Sequence[str]
) -> dict[int, int]:
    """Row of an answer -> the row whose reference it gives, of those that give another one's.

    `given` tells the row of each answer that was looked up.
    """
    return {
        row: target
        for row, target in given.items()
        if target is not None
        and target != row
        and not _is_copied_from_prompt(answers[row], prompts[row])
    }


def _first_shifted_row_in_words(targets: Mapping[int, int], shift: int) -> str:
    """From which row on the answers are shifted, for a reader; empty where that is the beginning of the file.

    Rows before it are at home: a line was lost or doubled there, and all behind it moved.
    """
    first = min(row for row, target in targets.items() if target - row == shift)
    return f", from the {_format_ordinal(first + 1)} row on" if first >= MIN_ELSEWHERE else ""


def _commonest_shift_and_count(targets: Mapping[int, int]) -> tuple[int, int]:
    """By how many rows most answers are off, and how many are."""
    shifts = Counter(target - row for row, target in targets.items())
    return shifts.most_common(1)[0]


def _is_order_of_all_rows_lost(
    targets: Mapping[int, int], unique: int, looked_at: int, rows: int
) -> bool:
    """Do most answers that can tell belong elsewhere, and hardly two of them to one row?

    Args:
        targets: row of an answer -> the row whose reference it gives.
        unique: references that tell their row, of all.
        looked_at: answers that were looked up.
        rows: all of them.
    """
    elsewhere = len(targets)
    repeated = elsewhere - len(set(targets.values()))
    telling = looked_at * unique / rows
    return elsewhere >= MIN_LOST_SHARE * telling and _are_repeats_rarer_than_by_chance(
        elsewhere, repeated, unique
    )


def _is_copied_from_prompt(answer: str, prompt: str) -> bool:
    """Is the answer copied from its own prompt? Then the rows need not be exchanged: a model that says the last value
    of a series gives the reference of the row before."""
    answer_words, prompt_words = (" ".join(split_words(text)) for text in (answer, prompt))
    return f" {answer_words} " in f" {prompt_words} "


def _are_repeats_rarer_than_by_chance(drawn: int, repeated: int, of: int) -> bool:
    """Would guessing among so many references name more of them twice?

    The pairs that are alike are nearly Poisson (Feller 1968, An Introduction to Probability Theory,
    II.3).
    """
    # The mean number of pairs that name one reference, were each drawn by chance.
    expected = drawn * (drawn - 1) / (2 * of)
    chance = sum(
        math.exp(k * math.log(expected) - expected - math.lgamma(k + 1))
        for k in range(repeated + 1)
    )
    return chance < MAX_CHANCE


def _name_of_order_that_explains(
    targets: Mapping[int, int], count: int, prompts: Sequence[str], references: Sequence[str]
) -> str:
    """What takes the rows of the answers to those of their references; empty where nothing that is known does.

    Args:
        targets: row of an answer -> the row whose reference it gives.
        count: rows of the file.
        prompts: of each row.
        references: of each row.
    """
    shift, rows = _commonest_shift_and_count(targets)
    if rows >= MIN_SAME_ORDER_SHARE * len(targets):
        plural = "s" if abs(shift) > 1 else ""
        return f"{abs(shift)} row{plural} too {'early' if shift > 0 else 'late'}"
    if _share_that_order_explains(targets, lambda row: count - 1 - row) >= MIN_SAME_ORDER_SHARE:
        return "in reverse order"
    # The first number that fits: twice as many processes explain nothing more.
    for processes in range(2, MAX_PROCESSES + 1):
        for order in gathered_orders(count, processes):
            if _share_that_order_explains(targets, order.__getitem__) >= MIN_SAME_ORDER_SHARE:
                return f"as {processes} processes gave them"
    return _name_what_rows_were_sorted_by(targets, prompts, references)


def _share_that_order_explains(targets: Mapping[int, int], order: Callable[[int], int]) -> float:
    """Share of the answers that an order takes to their row."""
    return sum(order(row) == target for row, target in targets.items()) / len(targets)


def _name_what_rows_were_sorted_by(
    targets: Mapping[int, int], prompts: Sequence[str], references: Sequence[str]
) -> str:
    """Sorted by what? Tried on the prompts and references that belong to the answers, in their order."""
    rows = [targets[row] for row in sorted(targets)]
    keys: tuple[tuple[str, Callable[[int], float | str]], ...] = (
        ("the length of the prompt", lambda row: len(prompts[row])),
        ("the length of the prompt", lambda row: len(split_words(prompts[row]))),
        ("the length of the reference", lambda row: len(references[row])),
        ("the text of the prompt", lambda row: prompts[row]),
        ("the text of the reference", lambda row: references[row]),
    )
    for name, key in keys:
        values = [key(row) for row in rows]
        # A key with few values is in order by chance.
        if len(set(values)) < MIN_ELSEWHERE / 2:
            continue
        sign = _sort_direction(values)
        if sign:
            return f"sorted by {name}" + (", the longest first" if sign < 0 else "")
    return ""


def _sort_direction(values: Sequence[float | str]) -> int:
    """1 where the values rise, -1 where they fall, nearly always or by their ranks; else 0."""
    ranks = _rank_values(values)
    # Both measures: a few rows far from their place spoil the correlation, many near theirs spoil the steps.
    steps = np.diff(ranks)
    correlation = float(np.corrcoef(ranks, np.arange(len(ranks)))[0, 1])
    for sign in (1, -1):
        if sign * correlation >= MIN_SORTED_SHARE or (sign * steps >= 0).mean() >= MIN_SORTED_SHARE:
            return sign
    return 0


def _rank_values(values: Sequence[float | str]) -> np.ndarray:
    """(values,) their ranks, 0 for the least; equal ones have one rank."""
    order = {value: rank for rank, value in enumerate(sorted(set(values)))}
    return np.array([order[value] for value in values], dtype=float)


def _order_by_labels(
    answers: Sequence[str], references: Sequence[str], prompts: Sequence[str]
) -> RowOrder | None:
    """The order of the answers by labels that repeat each other, where one of the orders that
    scripts lose agrees far better; else None.
    """
    answered = [" ".join(split_words(answer)) for answer in answers]
    expected = [" ".join(split_words(reference)) for reference in references]
    # Labels in blocks (all of one class, then all of the next) agree in any order but at the borders of the blocks.
    changes = sum(label != following for label, following in pairwise(expected))
    if len(set(expected)) < 2 or changes < MIN_ELSEWHERE:
        return None
    in_place = _share_of_right_labels(answered, expected)
    agreements = [
        (_share_of_right_labels(answered, [expected[row] for row in order]), name, order)
        for name, order in _orders_that_scripts_lose(len(answered), prompts)
    ]
    agreed, name, order = max(agreements, key=lambda entry: entry[0])
    # Answers within a block of labels are no independent draws: there are as many as there are blocks.
    draws = min(changes, len(answered))
    if agreed < in_place + MIN_AGREEMENT_GAIN or not _is_above_chance(
        agreed, answered, expected, draws
    ):
        return None
    # Exchanged names of classes (0 for 1) look like a lost order of rows, and are another fault.
    if _agreement_of_exchanged_labels(answered, expected) > agreed - MIN_GAIN_OVER_EXCHANGED_LABELS:
        return None
    targets = _rows_of_labels_right_only_by_order(answered, expected, order)
    at_home = round(in_place * len(answered))
    return RowOrder(targets, round(agreed * len(answered)), at_home, len(answered), name)


def _rows_of_labels_right_only_by_order(
    answered: Sequence[str], expected: Sequence[str], order: Sequence[int]
) -> dict[int, int]:
    """Row of an answer -> its row by an order, of answers that are wrong in their own row and right in that."""
    labels = zip(answered, expected, order, strict=True)
    return {
        row: target
        for row, (label, own, target) in enumerate(labels)
        if label == expected[target] and label != own
    }


def _is_above_chance(
    agreed: float, answered: Sequence[str], expected: Sequence[str], draws: int
) -> bool:
    """Is an agreement more than the best of some sixty orders has by chance?

    Args:
        agreed: share of the answers that agree in the best order.
        answered: labels of the answers.
        expected: labels of the references.
        draws: answers that are independent of each other, for the deviation of chance.
    """
    chance = _agreement_by_chance(answered, expected)
    deviation = math.sqrt(chance * (1 - chance) / draws)
    return agreed >= chance + MIN_DEVIATIONS * deviation


def _share_of_right_labels(answered: Sequence[str], expected: Sequence[str]) -> float:
    """Share of the answers that are their reference."""
    equal = sum(a == b for a, b in zip(answered, expected, strict=True))
    return equal / len(answered)


def _agreement_by_chance(answered: Sequence[str], expected: Sequence[str]) -> float:
    """The share of answers that would agree by chance, were labels as frequent as these drawn apart
    from each other.
    """
    answer_counts, reference_counts = Counter(answered), Counter(expected)
    pairs = sum(answer_counts[label] * count for label, count in reference_counts.items())
    return pairs / len(answered) ** 2


def _agreement_of_exchanged_labels(answered: Sequence[str], expected: Sequence[str]) -> float:
    """The share of answers that agree, were each reference taken for the answer that it gets most.
    What that explains comes from exchanged names of classes, and not from exchanged rows.
    """
    pairs = defaultdict[str, Counter[str]](Counter)
    for answer, reference in zip(answered, expected, strict=True):
        pairs[reference][answer] += 1
    return sum(max(answers.values()) for answers in pairs.values()) / len(answered)


def _orders_that_scripts_lose(count: int, prompts: Sequence[str]) -> list[tuple[str, list[int]]]:
    """Orders that scripts lose, with names: the row of the reference for each row of an answer."""
    orders = [("in reverse order", list(range(count))[::-1])]
    for shift in range(1, min(MAX_SHIFT, count // 2) + 1):
        plural = "s" if shift > 1 else ""
        for sign, when in ((1, "early"), (-1, "late")):
            rows = [(row + sign * shift) % count for row in range(count)]
            orders.append((f"{shift} row{plural} too {when}", rows))
    # Prompts that are not known are all empty, and have one length.
    if len(set(map(len, prompts))) >= MIN_ELSEWHERE / 2:
        by_length = sorted(range(count), key=lambda row: len(prompts[row]))
        orders.append(("sorted by the length of the prompt", by_length))
        longest_first = sorted(range(count), key=lambda row: -len(prompts[row]))
        orders.append(("sorted by the length of the prompt, the longest first", longest_first))
    for processes in range(2, min(MAX_PROCESSES, count // 2) + 1):
        name = f"as {processes} processes gave them"
        orders += [(name, order) for order in gathered_orders(count, processes)]
    return orders


def _format_ordinal(number: int) -> str:
    """A number as an English ordinal: `21st`."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{'th' if number % 100 in (11, 12, 13) else ending}"
