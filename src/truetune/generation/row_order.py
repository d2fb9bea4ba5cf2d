"""Row order: does each answer stand beside its own reference, or beside another row's?

Each answer is looked up among all references: it gives one where it is the same words, holds a short one whole, or
shares far more rare words with it than with any other. Answers that give the references of other rows, and hardly one
of them twice, were put out of order: a model that guesses among the references would name some of them often and
others never (the birthday problem). Where a few labels repeat each other no answer points at one row, so the orders
that scripts lose (shifted, reversed, sorted by length, gathered from several processes) are tried one by one.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from truetune.generation.answer_samples import Sample
from truetune.generation.split_words import DENSE, split_words

ENOUGH = 8
"""Answers that must point elsewhere: fewer may be confusions of a model"""
LOOKED_AT = 2_000
"""Answers that are looked up, spread over all rows; each costs as much as there are rows with a rare word of it"""
MOST_ROWS = 0.1
"""Share of the references that may hold a word that still tells them apart"""
TELLING = 4
"""Letters and digits that a reference needs to be no chance hit: `B` and `12` are given by guessing"""
SHORT = 5
"""Words of a reference that an answer may hold whole in a sentence of its own"""
ALIKE, TIMES = 0.3, 2.0
"""Share of the rare words that an answer and its reference have in common, at least, and how many times that of the
next best: answers of one fine-tune to other questions share below 0.15 (Alpaca's rows among each other)"""
WHOLE = 0.5
"""Share of the answers that belong elsewhere, from which the order of all is lost"""
PART = 0.05
"""The same where all of them are off by the same number of rows"""
CHANCE = 0.01
"""Probability below which guessing does not explain that hardly a reference is given twice"""
SAME = 0.8
"""Share of the answers that follow one order, where it is named"""
SORTED = 0.9
"""Rank correlation, and share of neighbours in order, from which rows are sorted by a key that is known roughly"""
BETTER, SURE = 0.3, 5.0
"""By how much labels must agree better in another order, and by how many standard deviations of chance: some 60 orders
are tried"""
EXPLAINED = 0.15
"""How much less another meaning of the labels must explain than another order does"""
SHIFTS, PROCESSES = 16, 16
"""Orders of labels that are tried: rows too early or too late, processes whose answers were put together"""


@dataclass(frozen=True, slots=True)
class RowOrder:
    """Answers that belong to other rows."""

    targets: Mapping[int, int]
    """Row of an answer -> the row whose reference it gives"""
    elsewhere: int
    at_home: int
    """Answers that give their own reference"""
    looked_at: int
    order: str
    """What the order is like; empty where it is like none that is known"""


def row_order_of(samples: Sequence[Sample]) -> RowOrder | None:
    """`find_row_order` of the samples of one look."""
    return find_row_order(
        [sample.answer.text for sample in samples],
        [sample.prompt.reference for sample in samples],
        [sample.prompt.question for sample in samples],
    )


def find_row_order(
    answers: Sequence[str], references: Sequence[str], prompts: Sequence[str]
) -> RowOrder | None:
    """The order of answers that belong to other rows; None where they stand in theirs, or that can't be told.

    The three are as long as each other; a reference or prompt that is not known is empty.
    """
    rows = [row for row, reference in enumerate(references) if reference.strip()]
    if len(rows) < ENOUGH:
        return None
    said, wanted, asked = ([texts[row] for row in rows] for texts in (answers, references, prompts))
    found = _by_texts(said, wanted, asked) or _by_labels(said, wanted, asked)
    if found is None:
        return None
    targets = {rows[at]: rows[target] for at, target in found.targets.items()}
    return RowOrder(targets, found.elsewhere, found.at_home, found.looked_at, found.order)


class ReferenceIndex:
    """References by their texts and by their rare words."""

    def __init__(self, references: Sequence[str]) -> None:
        self.keys = [" ".join(split_words(reference)) for reference in references]
        self.rows = defaultdict[str, list[int]](list)
        self.word_sets = [frozenset(key.split()) for key in self.keys]
        self._postings = defaultdict[str, list[int]](list)
        for row, key in enumerate(self.keys):
            self.rows[key].append(row)
            for word in self.word_sets[row]:
                self._postings[word].append(row)
        self._longest_posting = max(2.0, MOST_ROWS * len(references))
        self._unknown = math.log(1 + len(references))
        self._weights = [sum(map(self._weight, found)) for found in self.word_sets]
        self.unique = sum(map(self.tells_row, range(len(self.keys))))
        """References that tell their row"""

    def tells_row(self, row: int) -> bool:
        """Is a reference long enough, and the only one of its kind?"""
        key = self.keys[row]
        letters = sum(2 if _is_dense(c) else 1 for c in key if c.isalnum())
        return letters >= TELLING and len(self.rows[key]) == 1

    def given_row(self, answer: str, own: int) -> int | None:
        """The row whose reference an answer gives; `own` where that is as good; None where it is none."""
        key = " ".join(split_words(answer))
        if key in self.rows:
            found = self.rows[key]
            return own if own in found else (found[0] if self.tells_row(found[0]) else None)
        if self._holds(key, own):
            return own
        return self._likeliest_row(frozenset(key.split()), own, key)

    def _holds(self, key: str, row: int) -> bool:
        reference = self.keys[row]
        return bool(reference) and f" {reference} " in f" {key} "

    def _likeliest_row(self, answer: frozenset[str], own: int, key: str) -> int | None:
        """By the rare words that both have."""
        shared, hits = defaultdict[int, float](float), Counter[int]()
        for word in answer:
            rows = self._postings.get(word, ())
            if len(rows) <= self._longest_posting:
                weight = self._weight(word)
                for row in rows:
                    shared[row] += weight
                    hits[row] += 1
        whole = sum(map(self._weight, answer))
        likeness = {row: self._likeness(row, value, whole) for row, value in shared.items()}
        best = sorted(likeness, key=likeness.__getitem__, reverse=True)[:2]
        if not best:
            return None
        first = best[0]
        rival = likeness[best[1]] if best[1:] else 0.0
        if likeness[first] < ALIKE or likeness[first] < TIMES * rival:
            return None
        if hits[first] > 1 or (len(self.word_sets[first]) <= SHORT and self._holds(key, first)):
            return first if first == own or self.tells_row(first) else None
        return None

    def _likeness(self, row: int, shared: float, whole: float) -> float:
        """Share of the weights of the words of both, or all of a short reference that is held whole."""
        mine = self._weights[row]
        least = mine if len(self.word_sets[row]) <= SHORT else (mine + whole) / 2
        return shared / least if least else 0.0

    def _weight(self, word: str) -> float:
        """What a word tells of the row that it is from, in nats."""
        rows = self._postings.get(word)
        return self._unknown if rows is None else self._unknown - math.log(len(rows))


def _is_dense(character: str) -> bool:
    """Does a character say as much as some letters?"""
    return any(low <= character <= high for low, high in zip(DENSE[::3], DENSE[2::3], strict=False))


def _by_texts(
    answers: Sequence[str], references: Sequence[str], prompts: Sequence[str]
) -> RowOrder | None:
    """By references that tell their row."""
    index = ReferenceIndex(references)
    unique = index.unique
    if unique < ENOUGH:
        return None
    step = max(1, math.ceil(len(answers) / LOOKED_AT))
    looked_at = range(0, len(answers), step)
    targets, at_home = dict[int, int](), 0
    for row in looked_at:
        target = index.given_row(answers[row], row)
        at_home += target == row
        if target is not None and target != row and not _is_in(answers[row], prompts[row]):
            targets[row] = target
    elsewhere = len(targets)
    if elsewhere < ENOUGH:
        return None
    repeated = elsewhere - len(set(targets.values()))
    order = _name_of_order(targets, len(answers), prompts, references)
    shifted, count = Counter(target - row for row, target in targets.items()).most_common(1)[0]
    telling = len(looked_at) * unique / len(answers)
    is_whole = elsewhere >= WHOLE * telling and _is_no_guess(elsewhere, repeated, unique)
    is_part = count >= SAME * elsewhere and elsewhere >= PART * len(looked_at)
    if not (is_whole or is_part):
        return None
    first = min(row for row, target in targets.items() if target - row == shifted)
    if is_part and at_home >= ENOUGH and first >= ENOUGH:
        order = f"{order}, from the {_ordinal(first + 1)} row on"
    return RowOrder(targets, elsewhere, at_home, len(looked_at), order)


def _is_in(answer: str, prompt: str) -> bool:
    """Is the answer copied from its own prompt? Then the rows need not be exchanged: a model that says the last value
    of a series gives the reference of the row before."""
    said = " ".join(split_words(answer))
    return f" {said} " in f" {' '.join(split_words(prompt))} "


def _is_no_guess(drawn: int, repeated: int, of: int) -> bool:
    """Would guessing among so many references name more of them twice? The pairs that are alike are nearly Poisson
    (Feller 1968, An Introduction to Probability Theory, II.3)."""
    expected = drawn * (drawn - 1) / (2 * of)
    chance = sum(
        math.exp(k * math.log(expected) - expected - math.lgamma(k + 1))
        for k in range(repeated + 1)
    )
    return chance < CHANCE


def _name_of_order(
    targets: Mapping[int, int], count: int, prompts: Sequence[str], references: Sequence[str]
) -> str:
    """What takes the rows of the answers to those of their references; empty where nothing that is known does."""
    shift, rows = Counter(target - row for row, target in targets.items()).most_common(1)[0]
    if rows >= SAME * len(targets):
        plural = "s" if abs(shift) > 1 else ""
        return f"{abs(shift)} row{plural} too {'early' if shift > 0 else 'late'}"
    if _share(targets, lambda row: count - 1 - row) >= SAME:
        return "in reverse order"
    for processes in range(2, PROCESSES + 1):
        for order in _gathered(count, processes):
            if _share(targets, order.__getitem__) >= SAME:
                return f"as {processes} processes gave them"
    return _name_of_sorting(targets, prompts, references)


def _share(targets: Mapping[int, int], order: Callable[[int], int]) -> float:
    return sum(order(row) == target for row, target in targets.items()) / len(targets)


def _gathered(count: int, processes: int) -> tuple[list[int], list[int], list[int]]:
    """Rows of the references by rows of the answers.

    Where each of some processes took every nth row and their answers were put one behind the other; the same where a
    sampler filled the last round with rows from the beginning, as torch's DistributedSampler does; and where each took
    one block and their answers took turns.
    """
    dealt = [row for process in range(processes) for row in range(process, count, processes)]
    rounds = math.ceil(count / processes)
    filled = [(row % rounds * processes + row // rounds) % count for row in range(count)]
    blocks = [0] * count
    for row, target in enumerate(dealt):
        blocks[target] = row
    return dealt, filled, blocks


def _name_of_sorting(
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
        if len(set(values)) < ENOUGH / 2:
            continue
        if sign := _direction(values):
            return f"sorted by {name}" + (", the longest first" if sign < 0 else "")
    return ""


def _direction(values: Sequence[float | str]) -> int:
    """1 where the values rise, -1 where they fall, nearly always or by their ranks; else 0."""
    ranks = _ranks(values)
    steps = np.diff(ranks)
    correlation = float(np.corrcoef(ranks, np.arange(len(ranks)))[0, 1])
    for sign in (1, -1):
        if sign * correlation >= SORTED or (sign * steps >= 0).mean() >= SORTED:
            return sign
    return 0


def _ranks(values: Sequence[float | str]) -> np.ndarray:
    """(values,) their ranks, 0 for the least; equal ones have one rank."""
    order = {value: rank for rank, value in enumerate(sorted(set(values)))}
    return np.array([order[value] for value in values], dtype=float)


def _by_labels(
    answers: Sequence[str], references: Sequence[str], prompts: Sequence[str]
) -> RowOrder | None:
    """By labels that repeat each other: does one of the orders that scripts lose agree far better?"""
    said = [" ".join(split_words(answer)) for answer in answers]
    wanted = [" ".join(split_words(reference)) for reference in references]
    in_place = _agreement(said, wanted)
    changes = sum(a != b for a, b in pairwise(wanted))
    if len(set(wanted)) < 2 or changes < ENOUGH:
        return None
    expected = _agreement_by_chance(said, wanted)
    orders = _usual_orders(len(said), prompts)
    name, order = max(orders, key=lambda one: _agreement(said, [wanted[row] for row in one[1]]))
    agreed = _agreement(said, [wanted[row] for row in order])
    deviation = math.sqrt(expected * (1 - expected) / min(changes, len(said)))
    if agreed < in_place + BETTER or agreed < expected + SURE * deviation:
        return None
    if _agreement_of_any_map(said, wanted) > agreed - EXPLAINED:
        return None
    targets = {
        row: target
        for row, target in enumerate(order)
        if said[row] == wanted[target] and said[row] != wanted[row]
    }
    at_home = round(in_place * len(said))
    return RowOrder(targets, round(agreed * len(said)), at_home, len(said), name)


def _agreement(said: Sequence[str], wanted: Sequence[str]) -> float:
    return sum(a == b for a, b in zip(said, wanted, strict=True)) / len(said)


def _agreement_by_chance(said: Sequence[str], wanted: Sequence[str]) -> float:
    """Of labels as frequent as these, drawn apart from each other."""
    mine, theirs = Counter(said), Counter(wanted)
    return sum(mine[label] * theirs[label] for label in theirs) / len(said) ** 2


def _agreement_of_any_map(said: Sequence[str], wanted: Sequence[str]) -> float:
    """Of the labels as they stand, were each reference taken for the answer that it gets most: exchanged names of
    classes, and not rows, are behind what that explains."""
    pairs = defaultdict[str, Counter[str]](Counter)
    for answer, reference in zip(said, wanted, strict=True):
        pairs[reference][answer] += 1
    return sum(max(answers.values()) for answers in pairs.values()) / len(said)


def _usual_orders(count: int, prompts: Sequence[str]) -> list[tuple[str, list[int]]]:
    """Orders that scripts lose, with names: the row of the reference for each row of an answer."""
    orders = [("in reverse order", list(range(count))[::-1])]
    for shift in range(1, min(SHIFTS, count // 2) + 1):
        plural = "s" if shift > 1 else ""
        for sign, when in ((1, "early"), (-1, "late")):
            rows = [(row + sign * shift) % count for row in range(count)]
            orders.append((f"{shift} row{plural} too {when}", rows))
    if len(set(map(len, prompts))) >= ENOUGH / 2:
        by_length = sorted(range(count), key=lambda row: len(prompts[row]))
        orders.append(("sorted by the length of the prompt", by_length))
        longest_first = sorted(range(count), key=lambda row: -len(prompts[row]))
        orders.append(("sorted by the length of the prompt, the longest first", longest_first))
    for processes in range(2, min(PROCESSES, count // 2) + 1):
        name = f"as {processes} processes gave them"
        orders += [(name, order) for order in _gathered(count, processes)]
    return orders


def _ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{'th' if number % 100 in (11, 12, 13) else ending}"
