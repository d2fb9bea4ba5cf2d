"""Makes documents of rows: training examples, each short enough, as arrays that are ready to be written.

Between a batch and a file stand the decisions about single examples: is a row refused (a field that the template does
not write, a control token in a content), is an example too long, does it teach anything. Each row comes out as
documents, as dropped examples or as rejected, and nothing is left out without one of the three.

The trade-off: these run row by row in Python, while rendering and encoding work on batches. They look at arrays for the
whole batch first (`_find_forged_tokens`), so that the usual row costs a dictionary look-up.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truetune.data.conversation import Conversation, Origin
from truetune.encoding.batch import Batch, Example, RejectedRow
from truetune.encoding.drop_turns_of_long_rows import (
    cut_beginning_of_last_question,
    cut_row_after_example_training_only_it,
    drop_oldest_turns_until_fits,
    split_by_turns,
)
from truetune.encoding.encoder import Encoder
from truetune.encoding.find_forged_tokens_in_keys_and_roles import find_first_forged_control_token
from truetune.encoding.render_and_encode_in_two_threads import make_batch
from truetune.encoding.split_at_added_tokens import pattern_of_longest_word
from truetune.encoding.token_labels_from_character_spans import label_tokens, loss_weights
from truetune.errors import DataError
from truetune.render.renderer import Renderer
from truetune.render.rendering import Rendering, Source
from truetune.render.row_fields_lost_in_rendering import FieldTracker, LostField
from truetune.render.text_origins_in_file import text_origins
from truetune.render.tokenizer import Tokenizer
from truetune.settings.run_spec import RunSpec

# (sources,) is it a text of the row, where a control token is a forgery? Those of the template itself are none.
IS_FROM_ROW = np.ones(len(Source), dtype=np.bool_)
IS_FROM_ROW[[Source.TEMPLATE, Source.BOS, Source.STOP, Source.IMAGE]] = False
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

    def slice_tokens(self, tokens: slice) -> Document:
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
    rejected: list[RejectedRow] = field(default_factory=list)
    shortened: int = 0
    """documents with fewer turns, or a shorter question, than their rows have"""
    lost_tokens: int = 0
    """supervised tokens of rows that are written without them, for they were too long"""
    lost_fields: Counter[str] = field(default_factory=Counter)
    """rows by the fields of theirs that no token comes from"""

    def add(self, more: DocumentsResult) -> None:
        """Add what became of more rows, or of more examples of a row."""
        self.rows += more.rows
        self.documents += more.documents
        self.dropped += more.dropped
        self.rejected += more.rejected
        self.shortened += more.shortened
        self.lost_tokens += more.lost_tokens
        self.lost_fields += more.lost_fields


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
        self._controls = re.compile(
            pattern_of_longest_word(tokens) if tokens else "(?!)"
        )  # `(?!)` never matches

    def make(self, rows: list[Conversation]) -> DocumentsResult:
        """The documents of rows, in order. What is wrong with a row is in `rejected`. Raises FastPathError."""
        return self.documents_of_batch(rows, make_batch(rows, self.renderer, self.encoder))

    def documents_of_batch(self, rows: list[Conversation], batch: Batch) -> DocumentsResult:
        """The documents of the examples in a batch, which was made of `rows`; a row is taken whole or not at all."""
        result = DocumentsResult(len(rows), rejected=list(batch.rejected))
        forged_tokens = self._find_forged_tokens(batch)
        lost_fields = self._lost_fields_by_row(batch)
        with_result = {rejected.row.origin.row for rejected in batch.rejected}
        # The examples of a row stand side by side.
        for number, examples in groupby(
            range(len(batch.examples)), lambda i: batch.examples[i].row.origin.row
        ):
            with_result.add(number)
            own_examples = list(examples)
            row = batch.examples[own_examples[0]].row
            try:
                of_row = self._documents_of_row(
                    batch, own_examples, forged_tokens, lost_fields[number]
                )
            except DataError as error:
                result.rejected.append(RejectedRow(row, str(error)))
            else:
                result.add(of_row)
        # A chat of which no turn is learned has no example.
        result.dropped += [
            Dropped(row.origin, 0, UNSUPERVISED)
            for row in rows
            if row.origin.row not in with_result
        ]
        return result

    def _documents_of_row(
        self,
        batch: Batch,
        examples: list[int],
        forged_tokens: dict[int, int],
        lost_fields: list[LostField],
    ) -> DocumentsResult:
        """What becomes of one row. Raises DataError where it is rejected: it, or one of its examples.

        Args:
            batch: holds its examples.
            examples: their numbers in the batch.
            forged_tokens: the first forged control token of each example that has one, by the example's number.
            lost_fields: what of the row reaches no token.
        """
        row = batch.examples[examples[0]].row
        refusal = self._why_refused_though_rendered(row, lost_fields)
        if refusal:
            raise DataError(refusal)
        result = DocumentsResult()
        for i in examples:
            self._add_example(result, batch, i, forged_tokens.get(i))
        if row.problems and _has_only_unsupervised_examples(result):
            # It was not read as its owner meant it: that is why nothing of it is supervised.
            raise DataError("; ".join(problem.text for problem in row.problems))
        if result.documents:
            result.lost_fields.update(_names_of_lost_fields_but_notes(lost_fields))
        return result

    def _lost_fields_by_row(self, batch: Batch) -> defaultdict[int, list[LostField]]:
        """What of each row, by its number, reaches no token."""
        renderings: dict[int, tuple[Conversation, list[Rendering]]] = {}
        for row, rendering in batch.examples:
            renderings.setdefault(row.origin.row, (row, []))[1].append(rendering)
        lost: defaultdict[int, list[LostField]] = defaultdict(list)
        for number, (row, own) in renderings.items():
            lost[number] = self._tracker.fields_lost_from_training_examples(row, own)
        return lost

    def _why_refused_though_rendered(
        self, row: Conversation, lost_fields: list[LostField]
    ) -> str | None:
        """Why a row can't be encoded though it renders; None where it can."""
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
        if wrong_kind := self.why_row_unfit_for_this_training(row):
            return wrong_kind
        if self.settings.content_specials == "keep":
            return None
        try:
            forged = find_first_forged_control_token(row, self._controls)
        except RecursionError:
            return "it is nested too deeply"
        if forged is None:
            return None
        return (
            f"{forged}, where it looks like one that the template writes; drop or correct the row"
        )

    def why_row_unfit_for_this_training(self, row: Conversation) -> str | None:
        """Why a row is of no use in this kind of training; None where it is of use."""
        if not row.is_preference:
            return None
        return (
            f"a row of the format {row.format} is no example of supervised fine-tuning; name its"
            " answer with --data-format and --map, or use the data with a preference trainer"
        )

    def _find_forged_tokens(self, batch: Batch) -> dict[int, int]:
        """The first control token inside a content of each example that has one."""
        if self.settings.content_specials == "keep":
            return {}
        is_forged = self._control[batch.ids] & IS_FROM_ROW[batch.source]  # (tokens,)
        # From the last to the first: of several in one example, the first is the one that stays in the dict.
        tokens = np.flatnonzero(is_forged)[::-1]
        examples = np.searchsorted(batch.offsets, tokens, side="right") - 1
        return dict(zip(examples.tolist(), tokens.tolist(), strict=True))

    def _add_example(
        self, result: DocumentsResult, batch: Batch, i: int, forged: int | None
    ) -> None:
        """Put what becomes of one example into `result`. Raises DataError where its row can't be encoded.

        Args:
            result: of the example's row.
            batch: holds the example.
            i: its number in the batch.
            forged: the number of its first forged control token; None where it has none.
        """
        document = self._make_document(batch, i, forged)
        parts = [document]
        if self.limit is not None and len(document.ids) > self.limit:
            parts = self._shorten_or_drop(result, batch.examples[i], document, self.limit)
        for part in parts:
            if part.supervised.any():
                result.documents.append(part)
            else:
                result.dropped.append(Dropped(part.origin, len(part.ids), UNSUPERVISED))

    def _shorten_or_drop(
        self, result: DocumentsResult, example: Example, document: Document, limit: int
    ) -> list[Document]:
        """The parts of a document that is too long which fit; what does not fit is noted in `result` as dropped.

        Raises DataError where `overflow` says that nothing may be cut.
        """
        if self.settings.overflow == "error":
            raise DataError(
                f"an example of {len(document.ids):,} tokens is longer than max_length"
                f" ({limit:,}); raise it, or choose what to do with --overflow"
            )
        row, rendering = example
        shorter = self._documents_of_shorter_rows(row, rendering, document)
        parts = [part for part in shorter if len(part.ids) <= limit]
        result.shortened += len(parts)
        if parts:
            remaining = sum(int(part.supervised.sum()) for part in parts)
            result.lost_tokens += int(document.supervised.sum()) - remaining
        too_long = [part for part in shorter if len(part.ids) > limit]
        if not shorter:
            too_long = [document]
        reason = f"it is longer than max_length ({limit:,})"
        result.dropped += [Dropped(row.origin, len(part.ids), reason) for part in too_long]
        return parts

    def _make_document(self, batch: Batch, i: int, forged: int | None) -> Document:
        """The document of one example; with a forged control token, it is encoded again or refused."""
        if forged is not None:
            # The rest of the batch keeps its tokens: this example becomes a batch of its own.
            batch, i = self._encode_example_control_tokens_as_text(batch, i, forged), 0
        part = slice(int(batch.offsets[i]), int(batch.offsets[i + 1]))
        row, rendering = batch.examples[i]
        supervised = batch.supervised[part]
        weights = (
            loss_weights(rendering, batch.starts[part], supervised)
            if self.settings.loss_weights
            else None
        )
        return Document(row.origin, batch.ids[part], batch.source[part], supervised, weights)

    def _encode_example_control_tokens_as_text(self, batch: Batch, i: int, forged: int) -> Batch:
        """The example alone, with the control tokens of its contents encoded as text."""
        example = batch.examples[i]
        if self.settings.content_specials == "error":
            named = self._describe_forged_token(batch, i, forged)
            raise DataError(f"{named}; drop the row, or choose --content-specials text or keep")
        ranges = [
            (run.start, run.end)
            for run in example.rendering.runs_of_text_by_origin
            if IS_FROM_ROW[run.source]
        ]
        encoded = self.encoder.encode_control_tokens_in_content_as_text(
            example.rendering.text, ranges
        )
        if encoded is None:
            named = self._describe_forged_token(batch, i, forged)
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

    def _describe_forged_token(self, batch: Batch, i: int, forged: int) -> str:
        """A control token, and where in the file it is."""
        row, rendering = batch.examples[i]
        exact = next(
            one
            for one in self.renderer.render_by_template_with_offsets(row)
            if one.turn == rendering.turn
        )
        at = int(batch.starts[forged])
        path = next(place.path for place in reversed(text_origins(row, exact)) if place.start <= at)
        return f"the control token {self._token(int(batch.ids[forged]))} is in {path}"

    def _documents_of_shorter_rows(
        self, row: Conversation, rendering: Rendering, document: Document
    ) -> list[Document]:
        """What overflow makes of an example that is too long; its parts may be too long still."""
        overflow = self.settings.overflow
        if overflow == "drop" or (row.text is not None and overflow == "truncate-prompt"):
            return []
        if row.text is not None:
            return self._split_plain_text_by_max_length(document)
        documents: list[Document] = []
        for part in self._shorter_rows_of_example(row, rendering):
            batch = make_batch([part], self.renderer, self.encoder)
            controls = self._find_forged_tokens(batch)
            numbers = range(len(batch.examples))
            documents += [self._make_document(batch, i, controls.get(i)) for i in numbers]
        return documents

    def _shorter_rows_of_example(
        self, row: Conversation, rendering: Rendering
    ) -> list[Conversation]:
        """The rows that an example which is too long becomes; none where no cut makes it short enough."""
        overflow = self.settings.overflow
        shorter = None
        if row.is_chat:
            row = cut_row_after_example_training_only_it(row, rendering)
            # An example of one turn (`history: as-served`) can't be shared out: its other turns are context.
            if overflow == "split" and rendering.turn is None:
                return split_by_turns(row, self._are_all_examples_short_enough)
            shorter = drop_oldest_turns_until_fits(row, self._are_all_examples_short_enough)
        if shorter is None and overflow == "truncate-prompt":
            shorter = cut_beginning_of_last_question(row, self._are_all_examples_short_enough)
        return [] if shorter is None else [shorter]

    def _are_all_examples_short_enough(self, row: Conversation) -> bool:
        """Are all examples of a row short enough? False where the template refuses it."""
        batch = make_batch([row], self.renderer, self.encoder)
        return (
            self.limit is not None
            and bool(batch.examples)
            and int(batch.lengths.max()) <= self.limit
        )

    def _split_plain_text_by_max_length(self, document: Document) -> list[Document]:
        """Plain text in parts of max_length tokens."""
        size = self.limit or len(document.ids)
        return [
            document.slice_tokens(slice(start, start + size))
            for start in range(0, len(document.ids), size)
        ]


def _names_of_lost_fields_but_notes(lost: list[LostField]) -> set[str]:
    """The names of lost fields, but for keys that may be a note of their owner."""
    return {field.field for field in lost if field.is_known}


def _has_only_unsupervised_examples(of_row: DocumentsResult) -> bool:
    """Did a row give no document, for the only reason that nothing of it is supervised?"""
    if of_row.documents:
        return False
    return all(dropped.reason == UNSUPERVISED for dropped in of_row.dropped)
