"""Finds answers that are no sentence: their words are those of the references, in an order that no reference has.

Salad of known words passes each test on characters, and that on function words where marks break its rows. With
references there is a better measure: which pairs of words follow each other. In data of a form (letters of a
help desk, reports) a reference shares most of its pairs with the others; a fluent answer does too, or it brings words
of its own. An answer whose words are nearly all known, and whose pairs are nearly all new, has lost their order.

Measured on 240 answers of a model that was asked in right-padded batches: salad has up to 0.12 of its pairs from
references or prompts, loops of a whole sentence 0.9 and more of their distinct pairs, all others 0.4 and more. The
trade-off: without some twenty references of one form nothing is told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median

from truetune.generation.split_words import split_units

Pair = tuple[str, str]
MIN_REFERENCES, MIN_WORDS, MIN_DISTINCT = 20, 12, 8
"""References that show a form, and the words of an answer, and different ones of them, that show an order"""
MIN_SHARED_PAIR_SHARE = 0.6
"""Median share of a reference's pairs that others have too, from which there is a form"""
MIN_KNOWN_WORD_SHARE, MAX_KNOWN_PAIR_SHARE = 0.9, 0.2
"""Shares of an answer: of its words that stand in references or prompts, and of its pairs below which it is salad"""


def find_answers_with_lost_word_order(
    answers: Sequence[str], references: Sequence[str], prompts: Sequence[str]
) -> set[int]:
    """Numbers of the answers whose words are those of references and prompts, out of order.

    Args:
        answers: what the model wrote.
        references: of each answer; empty where there is none.
        prompts: of each answer, because answers may quote them.
    """
    written = [split_units(reference) for reference in references if reference.strip()]
    if len(written) < MIN_REFERENCES:
        return set()
    times = Counter(pair for units in written for pair in set(pairwise(units)))
    if not _do_references_share_word_pairs(written, times):
        return set()
    quoted = [split_units(prompt) for prompt in prompts]
    pairs = set(times) | {pair for units in quoted for pair in pairwise(units)}
    words = {word for units in (*written, *quoted) for word in units}
    return set(_answers_with_words_out_of_order(answers, pairs, words))


def _do_references_share_word_pairs(
    written: Sequence[Sequence[str]], times: Mapping[Pair, int]
) -> bool:
    """Do most references share their pairs of words with others, as texts of one form do?

    Args:
        written: the words of each reference.
        times: pair -> the references that hold it.
    """
    shares = [
        _share_of_pairs_among(units, {pair for pair in pairwise(units) if times[pair] > 1})
        for units in written
    ]
    return median(shares) >= MIN_SHARED_PAIR_SHARE


def _answers_with_words_out_of_order(
    answers: Sequence[str], pairs: set[Pair], words: set[str]
) -> Iterator[int]:
    """Numbers of the answers of known words and new pairs."""
    for number, answer in enumerate(answers):
        units = split_units(answer)
        if len(units) < MIN_WORDS or len(set(units)) < MIN_DISTINCT:
            continue  # one word again and again is a loop
        known = sum(unit in words for unit in units) / len(units)
        if (
            known >= MIN_KNOWN_WORD_SHARE
            and _share_of_pairs_among(units, pairs) < MAX_KNOWN_PAIR_SHARE
        ):
            yield number


def _share_of_pairs_among(units: Sequence[str], pairs: set[Pair]) -> float:
    """Share of the distinct pairs of a text that are among some; 1 where it has none."""
    own = set(pairwise(units))
    return len(own & pairs) / len(own) if own else 1.0
