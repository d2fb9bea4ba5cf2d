"""Finds labels that stand some rows away from their texts, or that mean another class in a part of the rows.

The words of a text say which label it has (naive Bayes, each row judged by the others). If they say nothing of a row's
own label, and much of the label some rows away, the labels were moved against the texts. If rows outside of a stretch
say which label its texts have, and the stretch has another one for each of them, its labels were numbered by another
list. Both need a difference of many standard errors, so that labels that no word tells are never reported.

The trade-off: labels that come in a fixed order (`a b c a b c`) are told as well by any other row, and are not judged.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from truetune.checks.answer_diversity import MOST_LABELS, ROWS_A_LABEL

STRETCH, MIN_STRETCH = 120, 60
"""Rows that are judged by themselves: labels that were moved from some row on are moved in whole stretches"""
MAX_ROWS = 1_200
"""Rows that are judged: a row and a label take 5 us"""
FARTHEST = 3
"""Rows by which labels may be away: a dropped or doubled row makes one, a header two"""
# One in 20 million by chance, as for the lengths of answers; a file is tried 60 times.
MIN_ERRORS = 5.5
"""Standard errors between the two shares of rows that are told right"""
OWN_AT_MOST = 0.5
"""Share of it that the rows' own labels have"""
MIN_TOLD_SHARE = 0.35
"""Of the rows whose label the words tell"""
MAX_LABEL = 60
"""Characters of a label: names of intents have up to 50"""
MAX_WORDS = 60
"""Words of a text that are counted"""
WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class LabelShift:
    """A stretch of rows whose labels stand at other rows."""

    first: int
    count: int
    offset: int
    """Rows from a text to its label; positive behind it"""
    own: float
    """Share of the rows whose own label the words tell"""
    other: float
    """The same for the labels `offset` rows away"""


@dataclass(frozen=True, slots=True)
class RenamedLabels:
    """A stretch of rows whose labels mean other classes than those of the other rows."""

    first: int
    count: int
    own: float
    """Share of the rows whose label is the one that the other rows tell"""
    renamed: float
    """The same, if each label is read as the one that it usually stands for"""
    example: tuple[str, str]
    """A label of the stretch, and the label that the other rows have for such texts"""


def find_label_shift(texts: Sequence[str], labels: Sequence[str]) -> LabelShift | None:
    """The stretch whose labels most surely stand some rows away; None where there is none.

    Args:
        texts: of the rows in file order.
        labels: of the same rows.
    """
    ids = _label_ids(labels)
    if ids is None or len(texts) < MIN_STRETCH:
        return None
    words = _word_ids(texts)
    found: list[tuple[float, LabelShift]] = []
    rows = min(len(ids), MAX_ROWS)
    for first in range(0, rows - MIN_STRETCH + 1, STRETCH):
        # To the end as well: more rows tell more, and a dropped row moves all that follow.
        for last in sorted({min(first + STRETCH, rows), rows}):
            found += _shifts_of_stretch(first, words[first:last], ids[first:last])
    return max(found, key=lambda one: one[0])[1] if found else None


def find_renamed_labels(texts: Sequence[str], labels: Sequence[str]) -> RenamedLabels | None:
    """The stretch whose labels stand for other classes than in the rest; None where there is none."""
    ids = _label_ids(labels)
    if ids is None or len(texts) < 2 * MIN_STRETCH:
        return None
    rows = min(len(ids), MAX_ROWS)
    ids, words = ids[:rows], _word_ids(texts[:rows])
    for first in range(0, rows - MIN_STRETCH + 1, STRETCH):
        stretch = np.zeros(rows, dtype=bool)
        stretch[first : first + STRETCH] = True
        # The stretch after it may have the same fault, the one before it not: that is where a second file begins.
        predicted = _predict(
            words, ids, ~stretch & (np.arange(rows) < max(first, STRETCH)), stretch
        )
        renamed = _renamed(predicted, ids[stretch], first, labels)
        if renamed is not None:
            return renamed
    return None


def _label_ids(labels: Sequence[str]) -> NDArray[np.int64] | None:
    """The labels as numbers; None where the answers are no labels."""
    names = sorted(set(labels))
    is_short = all(len(name) <= MAX_LABEL and "\n" not in name for name in names)
    if not is_short or not 2 <= len(names) <= min(MOST_LABELS, len(labels) // ROWS_A_LABEL):
        return None
    number = {name: index for index, name in enumerate(names)}
    return np.array([number[label] for label in labels])


def _word_ids(texts: Sequence[str]) -> list[list[int]]:
    """The different words of each text as numbers, without words that nearly all texts have."""
    split = [list(dict.fromkeys(WORD.findall(text.lower())))[-MAX_WORDS:] for text in texts]
    counts = Counter(word for words in split for word in words)
    kept = {word for word, count in counts.items() if 1 < count < 0.8 * len(texts)}
    number = {word: index for index, word in enumerate(sorted(kept))}
    return [[number[word] for word in words if word in number] for words in split]


def _log_odds(
    words: list[list[int]], ids: NDArray[np.int64], rows: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(words, labels) rows that have a word and a label, and (labels,) rows of each label."""
    size = 1 + max((word for one in words for word in one), default=0)
    counts = np.zeros((size, int(ids.max()) + 1))
    for row in rows:
        counts[words[row], ids[row]] += 1
    return counts, np.bincount(ids[rows], minlength=counts.shape[1]).astype(float)


def _predict(
    words: list[list[int]],
    ids: NDArray[np.int64],
    known: NDArray[np.bool_],
    asked: NDArray[np.bool_],
) -> NDArray[np.int64]:
    """The labels that the words of some rows have in others."""
    counts, per_label = _log_odds(words, ids, np.flatnonzero(known))
    prior = np.log(per_label + 1)
    table = np.log(counts + 0.5) - np.log(per_label + 1)
    return np.array(
        [int((prior + table[words[row]].sum(axis=0)).argmax()) for row in np.flatnonzero(asked)]
    )


def _told_share(words: list[list[int]], ids: NDArray[np.int64]) -> float:
    """Share of the rows whose label the words of the other rows tell."""
    counts, per_label = _log_odds(words, ids, np.arange(len(ids)))
    right = 0
    for row, label in enumerate(ids):
        own = counts[words[row]].copy()
        own[:, label] -= 1
        others = per_label.copy()
        others[label] -= 1
        score = np.log(others + 1) + (np.log(own + 0.5) - np.log(others + 1)).sum(axis=0)
        right += int(score.argmax()) == label
    return right / len(ids)


def _shifts_of_stretch(
    first: int, words: list[list[int]], ids: NDArray[np.int64]
) -> list[tuple[float, LabelShift]]:
    """The distances at which the labels of a stretch fit far better than at their own rows."""
    own = _told_share(words, ids)
    if own > OWN_AT_MOST:
        return []
    found = []
    for offset in (*range(-FARTHEST, 0), *range(1, FARTHEST + 1)):
        begin, end = max(0, -offset), len(ids) - max(0, offset)
        other = _told_share(words[begin:end], ids[begin + offset : end + offset])
        errors = _standard_errors_apart(own, other, end - begin)
        if other >= MIN_TOLD_SHARE and own <= OWN_AT_MOST * other and errors >= MIN_ERRORS:
            found.append((errors, LabelShift(first, end - begin, offset, own, other)))
    return found


def _renamed(
    predicted: NDArray[np.int64], given: NDArray[np.int64], first: int, labels: Sequence[str]
) -> RenamedLabels | None:
    """Have the labels of a stretch other meanings? Each is read as the label that is most often told beside it."""
    own = float((predicted == given).mean())
    meaning = {
        label: Counter(predicted[given == label].tolist()).most_common(1)[0]
        for label in set(given.tolist())
    }
    renamed = sum(count for _, count in meaning.values()) / len(given)
    is_one_to_one = len({label for label, _ in meaning.values()}) >= 0.75 * len(meaning)
    errors = _standard_errors_apart(own, renamed, len(given))
    is_far = own <= OWN_AT_MOST * renamed and errors >= MIN_ERRORS
    if len(meaning) < 2 or not is_one_to_one or renamed < MIN_TOLD_SHARE or not is_far:
        return None
    names = sorted(set(labels))
    label, (other, _) = max(meaning.items(), key=lambda one: (one[1][0] != one[0], one[1][1]))
    return RenamedLabels(first, len(given), own, renamed, (names[label], names[other]))


def _standard_errors_apart(own: float, other: float, rows: int) -> float:
    """How many standard errors two shares of so many rows are apart."""
    middle = (own + other) / 2
    return (other - own) / math.sqrt(max(1e-9, 2 * middle * (1 - middle) / rows))
