"""Makes token views: an example with the text, source and label of each token; and which of them a limit leaves."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from truetune.checks.pairs.evidence.answer_ids_texts_and_cuts_of_pairs import pair_length_limit
from truetune.checks.reports import TokenView
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch
from truetune.encoding.token_bytes import TokenBytes
from truetune.settings.run_spec import RunSpec


def make_token_views(batch: Batch, vocabulary: TokenBytes) -> list[TokenView]:
    """One token view for each example of a batch."""
    views = []
    for i, example in enumerate(batch.examples):
        part = slice(int(batch.offsets[i]), int(batch.offsets[i + 1]))
        ids, starts = batch.ids[part], batch.starts[part]
        pieces = _text_of_each_token(example.rendering.text, ids, starts, vocabulary)
        views.append(
            TokenView(example, ids, batch.source[part], batch.supervised[part], starts, pieces)
        )
    return views


def range_of_tokens_kept_by_limit(
    length: int, row: Conversation, spec: RunSpec
) -> tuple[int, int] | None:
    """The tokens of a longer example that the run's limit leaves.

    Args:
        length: of the whole example, in tokens.
        row: the row that it was made of.
        spec: the run, with its `max_length`.

    Returns:
        The first token that is kept and the one after the last; None where nothing is cut.
    """
    most = spec.max_length
    if most is None or length <= most or _is_overflow_split_or_packed(row, spec):
        return None
    # Preference trainers may keep the end of a prompt instead of its beginning.
    from_end = row.is_preference and pair_length_limit(spec).from_end
    return (length - most, length) if from_end else (0, most)


def _is_overflow_split_or_packed(row: Conversation, spec: RunSpec) -> bool:
    """Are longer examples split over rows, or laid end to end, so that nothing is cut?"""
    strategy, plain = spec.training.packing_strategy, row.format == "text"
    return (
        spec.encode.overflow in ("split", "truncate-prompt")
        or strategy == "wrapped"
        or (strategy == "greedy" and plain)
    )


def _text_of_each_token(
    text: str, ids: NDArray[np.int32], starts: NDArray[np.int32], vocabulary: TokenBytes
) -> tuple[str, ...]:
    """The characters of each token; its own bytes where it begins or ends inside a character."""
    if not len(ids):
        return ()
    ends = [*starts[1:].tolist(), len(text)]
    shared = np.zeros(len(ids) + 1, dtype=np.bool_)
    # Two tokens that begin at one character share it: each is shown as its own bytes.
    shared[1:-1] = starts[1:] == starts[:-1]
    pieces = []
    spelled = {
        id: vocabulary.spell(id).decode("utf-8", "surrogateescape") for id in set(ids.tolist())
    }
    broken = {
        id for id, spelling in spelled.items() if any("\udc80" <= c <= "\udcff" for c in spelling)
    }
    inside = (shared[:-1] | shared[1:]).tolist()
    for i, (id, start, end) in enumerate(zip(ids.tolist(), starts.tolist(), ends, strict=True)):
        pieces.append(spelled[id] if inside[i] or id in broken else text[start:end])
    return tuple(pieces)
