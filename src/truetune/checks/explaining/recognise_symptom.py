"""Recognises which symptom a question is about, by sentences that other users wrote on each
symptom.

A search over the guides finds the symptom where the user says what a guide says. People say it otherwise: `should fly`,
`half the tokens per second`. `symptom_sentences.tsv` has sixty sentences for each of twelve symptoms: those of nine
were written by someone who had not seen the guides, those on rewards and agents follow the words of public threads. A
naive Bayes classifier over the stems of their words says how likely each symptom is. Each symptom has as many
sentences, since one with fewer would be the likelier for each word that it does not have.

Measured by five-fold cross-validation on the sentences: this alone has the right symptom first in 64 % and among the
first two in 83 %, and together with the search (`rank_causes.choose_guides`) it has it first in 71 %. Many sentences
fit two symptoms.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from truetune.checks.explaining.stem_words import list_stems

SENTENCES = "symptom_sentences.tsv"
# Added to each count, as if every word stood in one more sentence of each symptom (Laplace). Measured as above: 0.3 has
# 60 %, 1 and 2 have 63 %.
SMOOTHING = 1.0


@dataclass(frozen=True, slots=True)
class WordCounts:
    """In how many sentences of each symptom a word stands."""

    sentences: Mapping[str, int]
    """Symptom -> its sentences"""
    by_symptom: Mapping[str, Counter[str]]
    """Symptom -> stem -> sentences with it"""

    def knows(self, stem: str) -> bool:
        """Does a word stem stand in any sentence?"""
        return any(stem in counts for counts in self.by_symptom.values())

    def log_chance(self, symptom: str, stem: str) -> float:
        """The logarithm of the chance that a sentence of the symptom has the word."""
        having = self.by_symptom[symptom][stem] + SMOOTHING
        return math.log(having / (self.sentences[symptom] + 2 * SMOOTHING))


def symptom_probabilities(question: str, counts: WordCounts | None = None) -> dict[str, float]:
    """Symptom -> how likely the question is about it; the values add up to 1. Empty where no word is known.

    Args:
        question: in the user's words.
        counts: the words of other sentences than those of the table, as a cross-validation needs them.

    Source: the naive Bayes classifier with word presence (McCallum and Nigam 1998), without the words that are absent:
    a short question lacks most of them by chance.
    """
    counts = counts or _count_words_of_table()
    known = [stem for stem in set(list_stems(question)) if counts.knows(stem)]
    if not known:
        return {}
    logs = {
        symptom: sum(counts.log_chance(symptom, stem) for stem in known)
        for symptom in counts.sentences
    }
    best = max(logs.values())
    weights = {symptom: math.exp(value - best) for symptom, value in logs.items()}
    total = sum(weights.values())
    return {symptom: weight / total for symptom, weight in weights.items()}


@cache
def _count_words_of_table() -> WordCounts:
    """The words of all sentences of the table, counted."""
    return count_words_of_sentences(read_symptom_sentences())


def read_symptom_sentences() -> list[tuple[str, str]]:
    """(symptom, sentence) of each line of the table."""
    text = files("truetune.checks.explaining").joinpath(SENTENCES).read_text(encoding="utf-8")
    pairs = []
    for line in text.splitlines():
        symptom, _, sentence = line.partition("\t")
        pairs.append((symptom, sentence))
    return pairs


def count_words_of_sentences(pairs: Iterable[tuple[str, str]]) -> WordCounts:
    """In how many sentences of each symptom each word stem stands.

    Args:
        pairs: (symptom, sentence).
    """
    sentences: Counter[str] = Counter()
    by_symptom: dict[str, Counter[str]] = defaultdict(Counter)
    for symptom, sentence in pairs:
        sentences[symptom] += 1
        by_symptom[symptom].update(set(list_stems(sentence)))
    return WordCounts(sentences, by_symptom)
