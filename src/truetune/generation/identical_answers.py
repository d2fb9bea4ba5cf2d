"""Tells whether different questions get one and the same answer, though their references differ.

Chance decides what that proves. A text that is one answer to three questions is no chance. A label (one of a few
references that repeat each other, a letter, a word or two where there are no references) may fit several rows, and
needs more of them.

The trade-off: all answers must be the same, white space aside. A model that gives two answers to everything is missed
here, and no model that answers rightly is blamed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from truetune.generation.answer_samples import Sample
from truetune.generation.split_words import count_words_of_units, split_units

# Chosen, not measured: two may rightly have one answer; of three it would be a coincidence.
MIN_QUESTIONS = 3
"""Different questions, where all get one answer and most have a reference of their own"""
MAX_LABEL_WORDS = 3
"""Words of an answer that may be a label"""
MIN_QUESTIONS_OF_A_LABEL = 7
"""Questions that chance gives one of two labels with a probability of 1 in 64"""


def mark_identical_answers(samples: Sequence[Sample]) -> tuple[Sample, ...]:
    """The samples of one sampling_pass, with `Scores.alike` where all got one answer."""
    if not are_answers_wrongly_identical(samples):
        return tuple(samples)
    return tuple(replace(sample, scores=replace(sample.scores, alike=True)) for sample in samples)


def are_answers_wrongly_identical(samples: Sequence[Sample]) -> bool:
    """Do all of these different questions get one answer, of which they should have several?"""
    answers = {normalise_spaces(sample.answer.text) for sample in samples}
    if len(answers) != 1 or answers == {""}:
        return False
    (answer,) = answers
    questions = {normalise_spaces(sample.prompt.question) for sample in samples}
    asked = len(samples) if questions == {""} else len(questions)
    if asked < MIN_QUESTIONS:
        return False
    references = [
        reference for sample in samples if (reference := normalise_spaces(sample.prompt.reference))
    ]
    # Without all references a short answer may be right of many rows ("yes"), a long one of one only.
    if len(references) < len(samples):
        return (
            count_words_of_units(split_units(answer)) > MAX_LABEL_WORDS
            or asked >= MIN_QUESTIONS_OF_A_LABEL
        )
    # At most two thirds of the rows may want this one answer: else a model that learned the data gives it too.
    commonest = max(Counter(references).values())
    return 3 * commonest <= 2 * len(references) and not _is_one_of_few_labels(answer, references)


def normalise_spaces(text: str) -> str:
    """A text with single spaces instead of all white space."""
    return " ".join(text.split())


def _is_one_of_few_labels(answer: str, references: Sequence[str]) -> bool:
    """Is the answer one of a few labels? They repeat each other, or are letters: chance may give one to some rows."""
    letters = all(len(text.strip("().*")) == 1 for text in (answer, *references))
    labels = {reference.casefold() for reference in references}
    return letters or (2 * len(labels) <= len(references) + 1 and answer.casefold() in labels)
