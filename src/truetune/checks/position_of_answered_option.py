"""Finds which position an option of a multiple choice question has that an answer names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

OPTION = re.compile(r"(?:^|[\n\s(])([A-Ha-h]|[1-8])[).:]\s+\S")
LABELS = ("ABCDEFGH", "abcdefgh", "12345678")
LABEL = re.compile(r"\(?([A-Ha-h]|[1-8])[).]?")
# Chosen, not measured: some questions of a file may be of another form.
MIN_SHARE = 0.8
"""Share of the questions that list the option which their answer names"""
LINE_OF_OPTION = re.compile(r"[\n]|(?:^|[\s(])(?:[A-Ha-h]|[1-8])[).:]\s")
"""What ends the text of an option"""
NAMED_ANSWER = re.compile(
    r"(?:\b(?:answer|option|choice|antwort|réponse|respuesta|risposta|resposta)|答案|正解)(?: is)?[\s:：*]{0,5}"
    r"(?:option )?[(\[]?([A-Ha-h1-8])(?![\w'])",
    re.IGNORECASE,
)
"""`The answer is B`, `Answer: (b)`"""
LABEL_IN_FRONT = re.compile(r"[\s*_(\[]{0,4}([A-Ha-h1-8])(?:[).:\]*]|\s*(?:\n|$))")
"""`B. Thomas Mann`, `**B**`, `(b) Thomas Mann`"""
# Chosen, not measured: of 30 rows with four options, 18 are of one place in one draw of 10,000. Published exams have
# 0.22 to 0.32 in their commonest place. With two options a share of three quarters is usual.
MIN_ANSWERED = 30
"""Rows whose answer names one of the listed options, from which their places are judged"""
MIN_SKEW, MIN_SKEW_OF_TWO = 0.6, 0.85
"""Share of one place among them; the same where two options are listed"""
MIN_DISTINCT = 0.5
"""Distinct texts of the right options for each of these rows: the options of a classification are always the same"""
PLACES = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")


def position_of_answered_option(questions: Sequence[str], answer: str) -> str:
    """`first` where nearly all questions list options and this answer names the first; empty where it names none."""
    label = LABEL.fullmatch(answer.strip())
    if label is None or not questions:
        return ""
    places = Counter(_position_among_options(question, label.group(1)) for question in questions)
    place, count = places.most_common(1)[0]
    return PLACES[place] if place >= 0 and count >= MIN_SHARE * len(questions) else ""


@dataclass(frozen=True, slots=True)
class PlaceOfRightOptions:
    """The place in which most right options stand."""

    label: str
    """As the answers name it"""
    place: str
    """`first`"""
    count: int
    """Rows whose right option stands there"""
    total: int
    """Rows whose answer names a listed option"""
    option_count: int
    """Options that most of them list"""


def position_overused_by_right_options(
    questions: Sequence[str], answers: Sequence[str]
) -> PlaceOfRightOptions | None:
    """The place in which far too many right options stand; None where they are spread, or the options are classes."""
    rows = zip(questions, answers, strict=True)
    answered = (_option_of_answer(question, answer) for question, answer in rows)
    options = [option for option in answered if option is not None]
    if len(options) < MIN_ANSWERED or _are_options_of_classification(options):
        return None
    (place, count), *_ = Counter(option.place for option in options).most_common(1)
    (option_count, _), *_ = Counter(option.option_count for option in options).most_common(1)
    min_skew = MIN_SKEW_OF_TWO if option_count == 2 else MIN_SKEW
    if count < min_skew * len(options):
        return None
    label = next(option.label for option in options if option.place == place)
    return PlaceOfRightOptions(label, PLACES[place], count, len(options), option_count)


@dataclass(frozen=True, slots=True)
class _AnsweredOption:
    """The option that an answer names."""

    label: str
    place: int
    text: str
    option_count: int


def _are_options_of_classification(options: Sequence[_AnsweredOption]) -> bool:
    """Do the right options have few different texts, as the classes of a classification do?"""
    return len({option.text for option in options}) < MIN_DISTINCT * len(options)


def _option_of_answer(question: str, answer: str) -> _AnsweredOption | None:
    """The listed option that an answer names by its label; None where it names none."""
    named = NAMED_ANSWER.findall(answer)
    # An answer that lists points itself begins with the first label of its own list.
    front = None if labels_and_texts_of_listed_options(answer) else LABEL_IN_FRONT.match(answer)
    # The label in front, else the last one that is called the answer: reasons may weigh others before.
    label = front[1] if front is not None else named[-1] if named else ""
    if not label:
        return None
    options = labels_and_texts_of_listed_options(question)
    place = next(
        (n for n, (one, _) in enumerate(options) if one.casefold() == label.casefold()), None
    )
    if place is None:
        return None
    return _AnsweredOption(options[place][0], place, options[place][1], len(options))


def labels_and_texts_of_listed_options(question: str) -> list[tuple[str, str]]:
    """(label, text) of the last options that a question lists from the first label on; empty for fewer than two."""
    matches = list(OPTION.finditer(question))
    for labels in LABELS:
        named = [match for match in matches if match[1] in labels]
        # Questions with examples list the options of the examples before their own.
        start = max((n for n, match in enumerate(named) if match[1] == labels[0]), default=None)
        if start is None:
            continue
        options = [
            (match[1], LINE_OF_OPTION.split(question[match.end() - 1 :], maxsplit=1)[0].strip())
            for match, label in zip(named[start:], labels, strict=False)
            if match[1] == label
        ]
        if len(options) >= 2:
            return options
    return []


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
