"""Finds which position an option of a multiple choice question has that an answer names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

OPTION = re.compile(r"(?:^|[\n\s(])([A-Ha-h]|[1-8])[).:]\s+\S")
LABELS = ("ABCDEFGH", "abcdefgh", "12345678")
LABEL = re.compile(r"\(?([A-Ha-h]|[1-8])[).]?")
# Chosen, not measured: some questions of a file may be of another form.
MIN_SHARE = 0.8
"""Share of the questions that list the option which their answer names"""
PLACES = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")


def position_of_answered_option(questions: Sequence[str], answer: str) -> str:
    """`first` where nearly all questions list options and this answer names the first; empty where it names none."""
    label = LABEL.fullmatch(answer.strip())
    if label is None or not questions:
        return ""
    places = Counter(_position_among_options(question, label.group(1)) for question in questions)
    place, count = places.most_common(1)[0]
    return PLACES[place] if place >= 0 and count >= MIN_SHARE * len(questions) else ""


def _position_among_options(question: str, label: str) -> int:
    """The place of a label among the options that a question lists in order; -1 where it lists none of that name."""
    labels = next(one for one in LABELS if label in one)
    named = [one for one in OPTION.findall(question) if one in labels]
    # Two options at least, in the order of the alphabet from its beginning.
    count = next(
        (n for n, one in enumerate(named) if n >= len(labels) or one != labels[n]), len(named)
    )
    place = labels.index(label)
    return place if count >= 2 and place < count else -1
