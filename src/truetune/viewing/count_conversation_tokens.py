"""Counts the tokens of conversations for the filters of `truetune view`, by the engine of a check.

What counts as supervised is what the page underlines: by the settings' mask, without what
max_length cuts off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from truetune.checks.check_data import load_tokenizer_and_template
from truetune.checks.reports import TokenView
from truetune.checks.tokens_with_text_source_and_label import range_of_tokens_kept_by_limit
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch
from truetune.encoding.encoder import Encoder
from truetune.encoding.render_and_encode_in_two_threads import make_batch
from truetune.report.page.masks_by_marker_or_generation_tags import TrainerMasks
from truetune.settings.run_spec import RunSpec
from truetune.viewing.row_index import SourcedRecords
from truetune.viewing.token_counts_of_rows import RowCounts, count_tokens

ReadConversations = Callable[[int, SourcedRecords], Iterator[Conversation]]
"""Of the number of the first record, and records: the conversations among them"""


class ConversationTokenCounter:
    """Counts the tokens of records; for one thread."""

    def __init__(self, spec: RunSpec, read: ReadConversations, *, only_reference: bool) -> None:
        """Prepare the engine. Raises SpecError, TokenizerError or TemplateError.

        Args:
            spec: the settings of the run.
            read: reads conversations.
            only_reference: take no shortcuts.
        """
        setup = load_tokenizer_and_template(spec, only_reference=only_reference)
        self._spec, self._read = spec, read
        self._renderer = setup.probes.renderer()
        self._encoder = Encoder(setup.tokenizer.backend, only_reference=only_reference)
        self._masks = None if spec.mask_by == "contract" else TrainerMasks(setup)

    def count(self, first: int, records: SourcedRecords) -> RowCounts:
        """The figures of records; one that can't be read or rendered has no tokens."""
        rows = list(self._read(first, records))
        # Masks of trainers are read off the places of tokens in the text; shortcuts leave them out.
        exact = self._masks is not None
        batch = make_batch(rows, self._renderer, self._encoder, exact=exact)
        sides = [side for side in (batch, batch.rejected_sides) if side is not None]
        row_of_token = [_row_number_of_each_token(side) - first for side in sides]
        return count_tokens(
            len(records),
            np.concatenate(row_of_token),
            np.concatenate([side.source for side in sides]),
            np.concatenate([self._uncut_supervised_token_mask(side) for side in sides]),
        )

    def prove(self) -> None:
        """Check the renderer's shortcuts. Raises FastPathError."""
        self._renderer.prove()

    def _uncut_supervised_token_mask(self, batch: Batch) -> NDArray[np.bool_]:
        """(tokens,) what is supervised and not cut off."""
        learned = self._supervised_token_mask(batch)
        lengths: Sequence[int] = batch.lengths.tolist()
        for number, length in enumerate(lengths):
            kept = range_of_tokens_kept_by_limit(length, batch.examples[number].row, self._spec)
            if kept is not None:
                start = int(batch.offsets[number])
                learned[start : start + kept[0]] = False
                learned[start + kept[1] : start + length] = False
        return learned

    def _supervised_token_mask(self, batch: Batch) -> NDArray[np.bool_]:
        """(tokens,) what the settings' mask supervises."""
        supervised = batch.supervised.copy()
        if self._masks is None:
            return supervised
        for number, example in enumerate(batch.examples):
            part = slice(int(batch.offsets[number]), int(batch.offsets[number + 1]))
            arrays = (batch.ids[part], batch.source[part], supervised[part], batch.starts[part])
            mask = self._masks.trainer_mask_if_unlike_contract(TokenView(example, *arrays, ()))
            if mask is not None:
                supervised[part] = mask
        return supervised


def _row_number_of_each_token(batch: Batch) -> NDArray[np.int64]:
    """(tokens,) the number of each token's row over all files."""
    rows = np.array([example.row.origin.row for example in batch.examples], np.int64)
    return np.repeat(rows, batch.lengths)
