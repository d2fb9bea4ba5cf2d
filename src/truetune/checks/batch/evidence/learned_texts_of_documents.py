"""Splits each document of a line into the text that is learned and the text that is only read, and measures how alike
the learned texts are.

The text under the labels is taken as it stands, whatever column it is from: so it is seen as well where the wrong one
is trained. Template and stop tokens are left out, which would make short answers look alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truetune.auditing.audit import NO_DOCUMENT, Sample
from truetune.checks.answer_diversity import AnswerDiversity
from truetune.errors import format_name_list
from truetune.render.rendering import Source

# As for `few-distinct-answers`: of fewer documents two classes at even odds look like one by
# chance.
MIN_DOCUMENTS = 20
"""Documents from which answers that are not all one text are counted"""
# Chosen, not measured: batches are a draw of the rows. At 0.9 one draw of 13 of 20 rows, from rows
# of which 95 % are alike, would fall below; at 0.5 batches of other rows would pass for these.
MIN_COMMON_SHARE = 0.8
"""Share of the documents that have the commonest answer of the given rows, from which the batches are of these rows"""
SHOWN_CHARACTERS = 60
TEXT_SOURCES = (
    Source.ASSISTANT,
    Source.REASONING,
    Source.TOOL_CALL,
    Source.TEXT,
    Source.OTHER,
    Source.USER,
)


class LearnedDocument(NamedTuple):
    """One document in a line."""

    sample: Sample
    answer: str
    """The text under its labels, without the template's and without stop tokens"""
    context: str
    """Its text that has no labels; that of the whole line where the batch parts no documents"""


def documents_in_line(sample: Sample) -> Iterator[LearnedDocument]:
    """The documents of a line, in their order."""
    is_text = np.isin(sample.source, TEXT_SOURCES)
    for number in np.unique(sample.documents[sample.documents != NO_DOCUMENT]).tolist():
        own = sample.documents == number
        learned = own & sample.supervised & is_text
        read = ~sample.supervised & ~sample.padding
        # Documents that the batch does not part are told by the rows they are from, and an answer
        # that many rows have may be placed in another row than its prompt: the whole line is its
        # prompt then.
        context = _text_of_tokens(sample, own & read if sample.separated_by else read)
        yield LearnedDocument(sample, _text_of_tokens(sample, learned), context)


def line_text(sample: Sample) -> str:
    """All text of a line, template and special tokens included."""
    return sample.text(0, len(sample.ids))


def measure_answer_diversity(answers: Iterable[str]) -> AnswerDiversity:
    """How different some answers are."""
    counts = Counter(answers)
    return AnswerDiversity.of(counts, counts.total())


def are_row_answers_alike(answers: Sequence[str], spread: AnswerDiversity) -> bool:
    """Are nearly all answers of the given rows one text, which those in the batches, that are fewer, mostly are too?"""
    if len(answers) < MIN_DOCUMENTS or spread.commonest_share < MIN_COMMON_SHARE:
        return False
    of_rows = measure_answer_diversity(answer.strip() for answer in answers)
    return of_rows.kind == "alike" and of_rows.common[0][0] == spread.common[0][0]


def describe_learned_answers(spread: AnswerDiversity) -> str:
    """How many answers in the loss are which text."""
    answer, rows = spread.common[0]
    if rows == spread.total:
        return f"all {rows} answers in the loss are {answer[:SHOWN_CHARACTERS]!r}"
    if spread.commonest_share >= MIN_COMMON_SHARE or spread.kind == "repeated":
        return f"{rows} of {spread.total} answers in the loss are {answer[:SHOWN_CHARACTERS]!r}"
    rows = sum(count for _, count in spread.common)
    texts = format_name_list(repr(text[:SHOWN_CHARACTERS]) for text, _ in spread.common)
    return (
        f"{rows} of {spread.total} answers in the loss are one of {len(spread.common)} texts:"
        f" {texts}"
    )


def _text_of_tokens(sample: Sample, chosen: NDArray[np.bool_]) -> str:
    """The text of some tokens of a line; the bytes of a letter that is cut through become U+FFFD."""
    whole = "".join(sample.pieces[i] for i in np.flatnonzero(chosen).tolist())
    return whole.encode("utf-8", "surrogateescape").decode("utf-8", "replace").strip()
