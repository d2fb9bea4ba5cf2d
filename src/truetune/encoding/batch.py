"""Batch: some rows of the data, rendered, encoded and labelled, as flat arrays.

Tokens of all examples lie end to end, with offsets, instead of a list of arrays: rules and counts run over a batch in
one numpy operation. The trade-off: what belongs to an example is found through `offsets`, and to a row through
`examples`, since a row may have none (rejected), one, or one for each turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truetune.data.conversation import Conversation
from truetune.data.count_media import NO_MEDIA, Media, count_media_of_row
from truetune.data.media_of_row import find_media_of_row
from truetune.encoding.row_fingerprints import (
    IS_CONTENT,
    Fingerprints,
    make_fingerprints,
    phrase_sketches_of_rejected_sides,
    word_sketches,
)
from truetune.render.rendering import Rendering


class Example(NamedTuple):
    """One training example: a row, or one turn of it."""

    row: Conversation
    rendering: Rendering


class Pairs(NamedTuple):
    """Both sides of some pairs; example i of the one belongs to example i of the other."""

    chosen: Batch
    rejected: Batch


class RejectedRow(NamedTuple):
    """A row that could not be rendered."""

    row: Conversation
    reason: str


@dataclass(frozen=True)
class Batch:
    """Rows in file order, and the tokens of their examples laid end to end.

    `ids[offsets[i]:offsets[i+1]]` are the tokens of `examples[i]`; `source`, `supervised` and
    `starts` are parallel to `ids`.
    """

    rows: list[Conversation]
    examples: list[Example]
    rejected: list[RejectedRow]
    ids: NDArray[np.int32]
    """(tokens,)"""
    offsets: NDArray[np.int64]
    """(examples + 1,)"""
    source: NDArray[np.uint8]
    """(tokens,) values of Source; a stop token that ends a trained turn is STOP, the BOS that opens an example BOS."""
    supervised: NDArray[np.bool_]
    """(tokens,)"""
    starts: NDArray[np.int32]
    """(tokens,) the character of the example's text that holds the token's first byte."""
    rejected_sides: Batch | None = None
    """The rejected sides of the examples that are pairs, in their order; None where there are none."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(examples,) the length of each example in tokens."""
        return np.diff(self.offsets)

    def count_true_per_example(self, mask: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Count the true entries of a token mask in each example: (tokens,) -> (examples,)."""
        # Differences of running totals: one pass over the tokens, however many examples there are.
        total = np.concatenate(([0], np.cumsum(mask)))
        return np.asarray(total[self.offsets[1:]] - total[self.offsets[:-1]], dtype=np.int64)

    @cached_property
    def chats(self) -> int:
        """How many of the rows are chats, not plain text."""
        return sum(row.is_chat for row in self.rows)

    @cached_property
    def media(self) -> Media:
        """The images, sound and video of the rows of which `ids` hold nothing but placeholders."""
        counted = {
            example.row.origin.row for example in self.examples if example.rendering.holds_pictures
        }
        total = NO_MEDIA
        for row in self.rows:
            media = find_media_of_row(row)
            if media:
                is_counted = row.origin.row in counted
                total += count_media_of_row(media, are_images_known=is_counted)
        return total

    @cached_property
    def contexts(self) -> NDArray[np.int64]:
        """(examples,) how many tokens stand before the first supervised one: all of them where there is none."""
        # The end of all tokens stands for "none", so that the search always hits something; the minimum below moves it
        # (and the first one of a later example) to the end of the example.
        learned = np.append(np.flatnonzero(self.supervised), len(self.ids))
        first = learned[np.searchsorted(learned, self.offsets[:-1])]
        return np.asarray(np.minimum(first, self.offsets[1:]) - self.offsets[:-1])

    @cached_property
    def pairs(self) -> Pairs | None:
        """Both sides of the pairs in the batch; None where no example is one side of a pair."""
        if self.rejected_sides is None:
            return None
        paired = [i for i, example in enumerate(self.examples) if example.row.rejected is not None]
        chosen = self if len(paired) == len(self.examples) else self.only(paired)
        return Pairs(chosen, self.rejected_sides)

    def only(self, examples: Sequence[int]) -> Batch:
        """These examples, in order, without what belongs to the rows."""
        chosen = np.zeros(len(self.examples), dtype=np.bool_)
        chosen[list(examples)] = True
        kept = np.repeat(chosen, self.lengths)
        return Batch(
            [],
            [self.examples[i] for i in np.flatnonzero(chosen).tolist()],
            [],
            self.ids[kept],
            np.concatenate(([0], np.cumsum(self.lengths[chosen]))),
            self.source[kept],
            self.supervised[kept],
            self.starts[kept],
        )

    @cached_property
    def fingerprints(self) -> Fingerprints:
        """The fingerprints of each row, for finding duplicates and neighbours."""
        chosen = make_fingerprints(
            self.rows, self._last_example_of_rows(self.rows), self.ids, self.offsets, self.source
        )
        if self.rejected_sides is None:
            return chosen
        # A pair is the set of both sides' phrases; the minimum of two sketches is the sketch of the union.
        other = self.rejected_sides
        rejected = phrase_sketches_of_rejected_sides(other.ids, other.offsets, other.supervised)
        numbers = [-1 if i is None else i for i in other._last_example_of_rows(self.rows)]
        return replace(chosen, phrases=np.minimum(chosen.phrases, rejected[numbers]))

    def word_sketches(self, left_out: NDArray[np.bool_]) -> NDArray[np.uint32]:
        """(rows, hashes) sketch of the contents' tokens; `left_out`: (vocabulary,) ids that do not count."""
        kept = IS_CONTENT[self.source] & ~left_out[self.ids]
        return word_sketches(self._last_example_of_rows(self.rows), self.ids, self.offsets, kept)

    def _last_example_of_rows(self, rows: list[Conversation]) -> list[int | None]:
        """The number of each row's last example, None where it has none."""
        # The last of several is the longest: with `history: as-served` each holds all turns of the one before.
        last = {example.row.origin.row: i for i, example in enumerate(self.examples)}
        return [last.get(row.origin.row) for row in rows]
