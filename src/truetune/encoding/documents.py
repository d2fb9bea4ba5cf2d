"""Documents: the training examples of rows, each short enough, as arrays that are ready to be written."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truetune.data.conversation import Conversation, Origin
from truetune.encoding.batch import Batch, Rejected
from truetune.encoding.encoder import Encoder
from truetune.encoding.forged_tokens import find_forged_token
from truetune.encoding.shorten_rows import (
    pin_trained_turns,
    split_by_turns,
    with_later_question,
    without_oldest,
)
from truetune.encoding.stream import batch as one_batch
from truetune.encoding.text_pieces import any_of
from truetune.encoding.token_labels import label_tokens, loss_weights
from truetune.errors import DataError
from truetune.render.lost_fields import FieldTracker, LostField
from truetune.render.renderer import Renderer
from truetune.render.rendering import Rendering, Source
from truetune.render.text_origins import text_origins
from truetune.render.tokenizer import Tokenizer
from truetune.spec.run import RunSpec

CONTENT = np.ones(len(Source), dtype=np.bool_)
CONTENT[[Source.TEMPLATE, Source.BOS, Source.STOP]] = False
HARMLESS = frozenset(("unknown-role", "mixed-formats", "lone-surrogate", "empty", "no-format"))
"""Problems of a row that leave nothing out of what it trains: the template judges a role, another format is read as
what it is, half a character is replaced, and what has no turns has no example. With any other, a value of the row was
left out or a default stands for it, so that the row is refused: a new kind of problem too, until it is known to be
harmless."""
UNSUPERVISED = "nothing of it is supervised"


class Document(NamedTuple):
    """One training example; the arrays are (tokens,)."""

    origin: Origin
    ids: NDArray[np.int32]
    source: NDArray[np.uint8]
    supervised: NDArray[np.bool_]
    weights: NDArray[np.float32] | None
    label: bool | None = None
    """Of preference data: is it the wanted answer?"""

    def part(self, tokens: slice) -> Document:
        """Some of its tokens."""
        weights = None if self.weights is None else self.weights[tokens]
        return Document(
            self.origin,
            self.ids[tokens],
            self.source[tokens],
            self.supervised[tokens],
            weights,
            self.label,
        )


class Dropped(NamedTuple):
    """An example that is not written."""

    origin: Origin
    tokens: int
    reason: str


@dataclass(slots=True)
class DocumentsResult:
    """What became of some rows."""

    rows: int = 0
    documents: list[Document] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    shortened: int = 0
    """documents with fewer turns, or a shorter question, than their rows have"""
    lost: int = 0
    """supervised tokens of rows that are written without them"""
    lost_fields: Counter[str] = field(default_factory=Counter)
    """rows by the fields of theirs that no token comes from"""


class DocumentMaker:
    """Makes the documents of one run."""

    def __init__(
        self, spec: RunSpec, tokenizer: Tokenizer, renderer: Renderer, encoder: Encoder
    ) -> None:
        self.spec = spec
        self.settings = spec.encode
        self.limit = spec.max_length
        self.renderer, self.encoder = renderer, encoder
        self._control: NDArray[np.bool_] = np.zeros(tokenizer.vocabulary, dtype=np.bool_)
        self._control[list(tokenizer.control)] = True
        self._tracker = FieldTracker(renderer)
        self._token = tokenizer.backend.id_to_token
        tokens = sorted(str(self._token(id)) for id in tokenizer.control)
        self._controls = re.compile(any_of(tokens) if tokens else "(?!)")

    def make(self, rows: list[Conversation]) -> DocumentsResult:
        """The documents of rows, in order. What is wrong with a row is in `rejected`. Raises FastPathError."""
        return self.made_of(rows, one_batch(rows, self.renderer, self.encoder))

    def made_of(self, rows: list[Conversation], batch: Batch) -> DocumentsResult:
        """The documents of the examples in a batch."""
        made = DocumentsResult(len(rows), rejected=list(batch.rejected))
        controls = self._forged(batch)
        lost = self._lost_fields(batch)
        refused = {
            row.origin.row: reason
            for row in rows
            if (reason := self._refusal(row, lost[row.origin.row]))
        }
        seen = {rejected.row.origin.row for rejected in batch.rejected}
        for number, examples in groupby(
            range(len(batch.examples)), lambda i: batch.examples[i].row.origin.row
        ):
            seen.add(number)
            found = DocumentsResult()
            try:
                for i in examples:
                    if reason := refused.get(number):
                        raise DataError(reason)
                    self._add(found, batch, i, controls.get(i))
            except DataError as error:
                made.rejected.append(Rejected(batch.examples[i].row, str(error)))
                continue
            row = batch.examples[i].row
            if (
                row.problems
                and not found.documents
                and all(d.reason == UNSUPERVISED for d in found.dropped)
            ):
                made.rejected.append(
                    Rejected(row, "; ".join(problem.text for problem in row.problems))
                )
                continue
            made.documents += found.documents
            made.dropped += found.dropped
            made.shortened += found.shortened
            made.lost += found.lost
            if found.documents:
                made.lost_fields.update({field.field for field in lost[number] if field.is_known})
        made.dropped += [
            Dropped(row.origin, 0, UNSUPERVISED) for row in rows if row.origin.row not in seen
        ]
        return made

    def _lost_fields(self, batch: Batch) -> defaultdict[int, list[LostField]]:
        """What of each row, by its number, reaches no token."""
        renderings: dict[int, tuple[Conversation, list[Rendering]]] = {}
        for row, rendering in batch.examples:
            renderings.setdefault(row.origin.row, (row, []))[1].append(rendering)
        lost: defaultdict[int, list[LostField]] = defaultdict(list)
        for number, (row, own) in renderings.items():
            lost[number] = self._tracker.lost(row, own)
        return lost

    def _refusal(self, row: Conversation, lost_fields: list[LostField]) -> str | None:
        """Why a row can't be encoded though it renders."""
        unwritten = next((field for field in lost_fields if field.effect != "loses"), None)
        if unwritten is not None:
            return (
                f"the {unwritten.field} of turn {unwritten.message} reach no token, and the turn is"
                " learned without them: this template does not write them; choose one that does"
                " (--template), or write them into the content"
            )
        lost = [problem.text for problem in row.problems if problem.kind not in HARMLESS]
        if lost:
            return "; ".join(lost)
        if misfit := self.misfit(row):
            return misfit
        try:
            found = (
                None
                if self.settings.content_specials == "keep"
                else find_forged_token(row, self._controls)
            )
        except RecursionError:
            return "it is nested too deeply"
        return (
            found
            and f"{found}, where it can't be told from the template's own; drop or correct the row"
        )

    def misfit(self, row: Conversation) -> str | None:
        """Why a row is of no use in this kind of training."""
        if not row.is_preference:
            return None
        return (
            f"a row of the format {row.format} is no example of supervised fine-tuning; name its"
            " answer with --data-format and --map, or use the data with a preference trainer"
        )

    def _forged(self, batch: Batch) -> dict[int, int]:
        """The first control token inside a content of each example that has one."""
        if self.settings.content_specials == "keep":
            return {}
        places = np.flatnonzero(self._control[batch.ids] & CONTENT[batch.source])[::-1]
        examples = np.searchsorted(batch.offsets, places, side="right") - 1
        return dict(zip(examples.tolist(), places.tolist(), strict=True))

    def _add(self, made: DocumentsResult, batch: Batch, i: int, forged: int | None) -> None:
        """Put what becomes of one example into `made`. Raises DataError where its row can't be encoded."""
        row, rendering = batch.examples[i]
        document = self._document(batch, i, forged)
        parts = [document]
        if self.limit is not None and len(document.ids) > self.limit:
            if self.settings.overflow == "error":
                raise DataError(
                    f"an example of {len(document.ids):,} tokens is longer than max_length"
                    f" ({self.limit:,}); raise it, or choose what to do with --overflow"
                )
            shorter = self._shorter(row, rendering, document)
            parts = [part for part in shorter if len(part.ids) <= self.limit]
            made.shortened += len(parts)
            if parts:
                made.lost += int(document.supervised.sum()) - sum(
                    int(part.supervised.sum()) for part in parts
                )
            reason = f"it is longer than max_length ({self.limit:,})"
            too_long = (
                [part for part in shorter if len(part.ids) > self.limit] if shorter else [document]
            )
            made.dropped += [Dropped(row.origin, len(part.ids), reason) for part in too_long]
        for part in parts:
            if part.supervised.any():
                made.documents.append(part)
            else:
                made.dropped.append(Dropped(row.origin, len(part.ids), UNSUPERVISED))

    def _document(self, batch: Batch, i: int, forged: int | None) -> Document:
        if forged is not None:
            batch, i = self._as_text(batch, i, forged), 0
        part = slice(int(batch.offsets[i]), int(batch.offsets[i + 1]))
        row, rendering = batch.examples[i]
        supervised = batch.supervised[part]
        weights = (
            loss_weights(rendering, batch.starts[part], supervised)
            if self.settings.loss_weights
            else None
        )
        return Document(row.origin, batch.ids[part], batch.source[part], supervised, weights)

    def _as_text(self, batch: Batch, i: int, forged: int) -> Batch:
        """The example alone, with the control tokens of its contents encoded as text."""
        example = batch.examples[i]
        if self.settings.content_specials == "error":
            named = self._named(batch, i, forged)
            raise DataError(f"{named}; drop the row, or choose --content-specials text or keep")
        ranges = [(run.start, run.end) for run in example.rendering.runs if CONTENT[run.source]]
        encoded = self.encoder.as_text(example.rendering.text, ranges)
        if encoded is None:
            named = self._named(batch, i, forged)
            raise DataError(
                f"{named}; this tokenizer can't encode it as text, choose --content-specials keep"
            )
        source, supervised = label_tokens([example.rendering], encoded)
        return Batch(
            [example.row],
            [example],
            [],
            encoded.ids,
            encoded.offsets,
            source,
            supervised,
            encoded.starts,
        )

    def _named(self, batch: Batch, i: int, forged: int) -> str:
        """A control token, and where in the file it stands."""
        row, rendering = batch.examples[i]
        exact = next(one for one in self.renderer.exact(row) if one.turn == rendering.turn)
        at = int(batch.starts[forged])
        path = next(place.path for place in reversed(text_origins(row, exact)) if place.start <= at)
        return f"the control token {self._token(int(batch.ids[forged]))} stands in {path}"

    def _shorter(
        self, row: Conversation, rendering: Rendering, document: Document
    ) -> list[Document]:
        """What overflow makes of an example that is too long; its parts may be too long still."""
        overflow = self.settings.overflow
        if overflow == "drop" or (row.text is not None and overflow == "truncate-prompt"):
            return []
        if row.text is not None:
            return self._windows(document)
        parts: list[Conversation | None]
        if not row.is_chat:
            parts = [
                with_later_question(row, self._fits) if overflow == "truncate-prompt" else None
            ]
        else:
            row = pin_trained_turns(row, rendering)
            if overflow == "split" and rendering.turn is None:
                parts = [*split_by_turns(row, self._fits)]
            else:
                parts = [without_oldest(row, self._fits)]
                if parts == [None] and overflow == "truncate-prompt":
                    parts = [with_later_question(row, self._fits)]
        found = []
        for batch in (
            one_batch([part], self.renderer, self.encoder) for part in parts if part is not None
        ):
            controls = self._forged(batch)
            found += [self._document(batch, i, controls.get(i)) for i in range(len(batch.examples))]
        return found

    def _fits(self, row: Conversation) -> bool:
        """Are all examples of a row short enough? False where the template refuses it."""
        batch = one_batch([row], self.renderer, self.encoder)
        return (
            self.limit is not None
            and bool(batch.examples)
            and int(batch.lengths.max()) <= self.limit
        )

    def _windows(self, document: Document) -> list[Document]:
        """Plain text in parts of max_length tokens."""
        size = self.limit or len(document.ids)
        return [
            document.part(slice(start, start + size)) for start in range(0, len(document.ids), size)
        ]
