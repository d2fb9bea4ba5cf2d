"""Preferences: both sides of a pair, or an answer with its verdict, as documents that end with their stop token.

DPO and KTO compare log-probabilities of whole answers. That is right only if both sides have the same prompt as
tokens, and if each answer is one stretch: a pair that is not so is dropped with the reason. The trade-off: nothing is
shortened here, for cutting one side of a pair differently from the other would itself be a preference.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from truetune.data.conversation import Conversation
from truetune.encoding.batch import RejectedRow
from truetune.encoding.make_documents_or_reject_rows import (
    Document,
    DocumentMaker,
    DocumentsResult,
    Dropped,
)
from truetune.encoding.render_and_encode_in_two_threads import make_batch

NO_PROMPT = "there is no prompt before its answer"
INTERRUPTED = (
    "its answer is not in one piece (turns of others are inside), as TRL's trainers need it"
)
PROMPTS_DIFFER = "the prompts of its two sides differ as tokens"
ANSWERS_EQUAL = "both of its answers are the same tokens"


class PreferenceMaker(DocumentMaker):
    """Of each pair two documents, the chosen side first; of each verdict one. A pair is kept whole, or not at all.

    A document is the prompt and the answer to its stop token; text of the template behind that is left out.
    """

    def make(self, rows: list[Conversation]) -> DocumentsResult:
        """Make the documents of preference rows, in order: both sides of each pair, or the answer
        with its verdict. What is wrong with a row is in `rejected`. Raises FastPathError.
        """
        batch = make_batch(rows, self.renderer, self.encoder)
        result = self.documents_of_batch(rows, batch)
        sides = [result]
        if batch.rejected_sides is not None:
            other_rows = [example.row for example in batch.rejected_sides.examples]
            sides.append(self.documents_of_batch(other_rows, batch.rejected_sides))
        rejected, dropped = _rejected_and_dropped_by_row(sides)
        documents = _documents_by_row(sides)
        result.documents = []
        for row in rows:
            number = row.origin.row
            if number in rejected or number in dropped:
                continue
            of_row = documents[number]
            labels = [row.label] if row.rejected is None else [True, False]
            reason = _why_documents_unfit(of_row, len(labels))
            if reason:
                longest = max(len(document.ids) for document in of_row)
                dropped[number] = Dropped(row.origin, longest, reason)
            else:
                result.documents += [
                    _cut_behind_answer(document)._replace(label=label)
                    for document, label in zip(of_row, labels, strict=True)
                ]
        result.rejected = [rejected[number] for number in sorted(rejected)]
        result.dropped = [dropped[number] for number in sorted(dropped.keys() - rejected.keys())]
        return result

    def why_row_unfit_for_this_training(self, row: Conversation) -> str | None:
        """Why a row is of no use in training on preferences; None where it is of use."""
        if row.is_preference:
            return None
        return (
            f"a row of the format {row.format} is neither a pair of answers nor an answer with a"
            " verdict"
        )


def _rejected_and_dropped_by_row(
    sides: Sequence[DocumentsResult],
) -> tuple[dict[int, RejectedRow], dict[int, Dropped]]:
    """The rows of which any side is left out, by number: (rejected, dropped)."""
    rejected: dict[int, RejectedRow] = {}
    dropped: dict[int, Dropped] = {}
    # From the last side to the first: where both are left out, the reason of the chosen one is told.
    for side in reversed(sides):
        rejected.update({one.row.origin.row: one for one in side.rejected})
        dropped.update({one.origin.row: one for one in side.dropped})
    return rejected, dropped


def _documents_by_row(sides: Sequence[DocumentsResult]) -> dict[int, list[Document]]:
    """The documents of each row by its number, those of the first side (the chosen answers) first."""
    documents: dict[int, list[Document]] = {}
    for side in sides:
        for document in side.documents:
            documents.setdefault(document.origin.row, []).append(document)
    return documents


def _why_documents_unfit(documents: Sequence[Document], sides: int) -> str | None:
    """Why these documents of a row, of which there should be `sides`, can't be trained on; None where they can."""
    answers = [_answer_tokens(document) for document in documents]
    are_whole = all(
        document.supervised[answer].all()
        for document, answer in zip(documents, answers, strict=True)
    )
    if len(documents) != sides or not are_whole:
        return INTERRUPTED
    starts = [answer.start for answer in answers]
    if 0 in starts:
        return NO_PROMPT
    # Of a verdict, first and last are one document.
    first, last = documents[0], documents[-1]
    if not np.array_equal(first.ids[: starts[0]], last.ids[: starts[-1]]):
        return PROMPTS_DIFFER
    # Nothing can be learned from two equal answers: their difference is 0 whatever the model says.
    if sides == 2 and np.array_equal(_cut_behind_answer(first).ids, _cut_behind_answer(last).ids):
        return ANSWERS_EQUAL
    return None


def _answer_tokens(document: Document) -> slice:
    """The slice of the answer's tokens: from the first supervised token of a document to its last
    one.
    """
    supervised = np.flatnonzero(document.supervised)
    return slice(int(supervised[0]), int(supervised[-1]) + 1)


def _cut_behind_answer(document: Document) -> Document:
    """The document cut behind its answer: preference trainers would count a newline behind the stop
    token in.
    """
    return document.slice_tokens(slice(_answer_tokens(document).stop))
