"""Preferences: both sides of a pair, or an answer with its verdict, as documents that end with their stop token."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from truetune.data.conversation import Conversation
from truetune.encoding.documents import Document, DocumentMaker, DocumentsResult, Dropped
from truetune.encoding.stream import batch as one_batch

NO_PROMPT = "there is no prompt before its answer"
INTERRUPTED = (
    "its answer is not in one piece (turns of others stand inside), as TRL's trainers need it"
)
PROMPTS_DIFFER = "the prompts of its two sides differ as tokens"
ANSWERS_EQUAL = "both of its answers are the same tokens"


class PreferenceMaker(DocumentMaker):
    """Of each pair two documents, the chosen side first; of each verdict one. A pair is kept whole, or not at all.

    A document is the prompt and the answer to its stop token; text of the template behind that is left out.
    """

    def make(self, rows: list[Conversation]) -> DocumentsResult:
        """The documents of rows, in order. What is wrong with a row is in `rejected`. Raises FastPathError."""
        batch = one_batch(rows, self.renderer, self.encoder)
        made = self.made_of(rows, batch)
        sides = [made]
        if batch.other is not None:
            sides.append(
                self.made_of([example.row for example in batch.other.examples], batch.other)
            )
        rejected = {r.row.origin.row: r for side in reversed(sides) for r in side.rejected}
        dropped = {d.origin.row: d for side in reversed(sides) for d in side.dropped}
        documents: dict[int, list[Document]] = {}
        for side in sides:
            for document in side.documents:
                documents.setdefault(document.origin.row, []).append(document)
        made.documents = []
        for row in rows:
            number = row.origin.row
            if number in rejected or number in dropped:
                continue
            found = documents[number]
            labels = [row.label] if row.rejected is None else [True, False]
            if reason := _why_unfit(found, len(labels)):
                dropped[number] = Dropped(
                    row.origin, max(len(document.ids) for document in found), reason
                )
            else:
                made.documents += [
                    _through_answer(d)._replace(label=label)
                    for d, label in zip(found, labels, strict=True)
                ]
        made.rejected = [rejected[number] for number in sorted(rejected)]
        made.dropped = [dropped[number] for number in sorted(dropped.keys() - rejected.keys())]
        return made

    def misfit(self, row: Conversation) -> str | None:
        """Why a row is of no use in this kind of training."""
        if row.is_preference:
            return None
        return (
            f"a row of the format {row.format} is neither a pair of answers nor an answer with a"
            " verdict"
        )


def _why_unfit(found: Sequence[Document], sides: int) -> str | None:
    """Why these documents of a row can't be trained on."""
    if len(found) != sides or not all(
        document.supervised[_answer_tokens(document)].all() for document in found
    ):
        return INTERRUPTED
    starts = [_answer_tokens(document).start for document in found]
    if 0 in starts:
        return NO_PROMPT
    first, last = found[0], found[-1]
    if not np.array_equal(first.ids[: starts[0]], last.ids[: starts[-1]]):
        return PROMPTS_DIFFER
    if sides == 2 and np.array_equal(_through_answer(first).ids, _through_answer(last).ids):
        return ANSWERS_EQUAL
    return None


def _answer_tokens(document: Document) -> slice:
    """From its first supervised token to its last one."""
    places = np.flatnonzero(document.supervised)
    return slice(int(places[0]), int(places[-1]) + 1)


def _through_answer(document: Document) -> Document:
    return document.part(slice(_answer_tokens(document).stop))
