"""Which causes of a symptom are likely in a project, before anything of it is proved.

Each guide lists the causes of one symptom with what tells them apart. A cause is likely where it says what the user
says, and where what it takes is in the project: `share` of its words that stand in the user's files. Rare words count
more, as in a search (`checks.explaining.search_topics`).

Measured on the 88 starts of `bench.starts` whose rule stands in a cause of their guide, with no rule asked: the true
cause is among the first five of some twenty in 32 by the guides' own order, in 58 by the words of the user, in 61 by
those of the files, and in 65 by both. The guides were written with most of these starts in sight, so that a new project
fares worse.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from truetune.checks.explaining.guides import GUIDES, Cause, Guide
from truetune.checks.explaining.search_topics import list_guide_topics, search_topics
from truetune.checks.explaining.stem_words import NEAR_STEMS, list_stems

# How much the words of the files count beside those of the user. Measured on the starts above, with plain words
# instead of near ones: 1 has 63, 2 has 65, 4 has 68, 8 has 66 among the first five.
FILES_WEIGHT = 4.0
# How far a word that is said for another answers for it, as in the search.
NEAR_MATCH = 0.5
# Of the best guide's score: a guide that fits nearly as well is about the same symptom, said in another way.
MIN_GUIDE_SHARE = 0.6
# Chosen, not measured: causes of guides below it are still ranked, but a reader is not sent to read them whole.
MIN_NAMED_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class LikelyCause:
    """A cause of a symptom, and how well it fits what the user says and has."""

    cause: Cause
    guide: str
    """The guide's name"""
    fit: float
    """Higher is likelier; comparable within one question only"""


def choose_guides(question: str) -> tuple[tuple[Guide, float], ...]:
    """The guides that a question is about, the best first, each with its share of the best one's score; all guides with
    equal shares where none fits."""
    by_name = {guide.name: guide for guide in GUIDES}
    hits = search_topics(question, list_guide_topics(), most=len(GUIDES))
    if not hits:
        return tuple((guide, 1.0) for guide in GUIDES)
    best = max(hit.score for hit in hits)
    return tuple(
        (by_name[hit.topic.name], hit.score / best)
        for hit in sorted(hits, key=lambda hit: -hit.score)
        if hit.score >= MIN_GUIDE_SHARE * best
    )


def rank_causes(
    guides: tuple[tuple[Guide, float], ...], question: str, project_words: frozenset[str]
) -> list[LikelyCause]:
    """The causes of some guides, the likeliest first.

    Args:
        guides: with their shares (`choose_guides`).
        question: the symptom in the user's words.
        project_words: stems of the user's files (`read_project_words`).
    """
    question_stems = frozenset(list_stems(question))
    causes = [
        LikelyCause(cause, guide.name, share * _fit(cause, question_stems, project_words))
        for guide, share in guides
        for cause in guide.causes
    ]
    # Python's sort keeps the guides' own order, which is that of likelihood, where two fit equally.
    return sorted(causes, key=lambda likely: -likely.fit)


def _fit(cause: Cause, question_stems: frozenset[str], project_words: frozenset[str]) -> float:
    """How well a cause fits the user's words and the words of the files."""
    words = _words_of_cause(cause)
    total = sum(_rarity(word) for word in words) or 1.0
    asked = sum(_rarity(word) * _match(word, question_stems) for word in words)
    in_files = sum(_rarity(word) for word in words & project_words)
    # The root: a cause that is told at length has more of the user's words by chance, and a share alone would prefer
    # the shortest.
    return asked / math.sqrt(total) + FILES_WEIGHT * in_files / total


def _match(word: str, stems: frozenset[str]) -> float:
    """1 where a word is among stems, a part where one that is said for it is, else 0."""
    if word in stems:
        return 1.0
    return NEAR_MATCH if NEAR_STEMS.get(word, frozenset()) & stems else 0.0


@cache
def _words_of_cause(cause: Cause) -> frozenset[str]:
    return frozenset(list_stems(f"{cause.text} {cause.seen}"))


@cache
def _causes_with_word() -> Mapping[str, int]:
    """Stem -> in how many causes of all guides it stands."""
    causes = [cause for guide in GUIDES for cause in guide.causes]
    return Counter(word for cause in causes for word in _words_of_cause(cause))


def _rarity(word: str) -> float:
    """The inverse document frequency of a word among all causes."""
    count = sum(len(guide.causes) for guide in GUIDES)
    having = _causes_with_word().get(word, 0)
    return math.log(1 + (count - having + 0.5) / (having + 0.5))
