"""Token views: one example, token by token."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from truetune.checks.report import TokenView
from truetune.encode.batch import Batch
from truetune.encode.vocabulary import Vocabulary


def views_of(batch: Batch, vocabulary: Vocabulary) -> list[TokenView]:
    """One view an example."""
    views = []
    for i, example in enumerate(batch.examples):
        part = slice(int(batch.offsets[i]), int(batch.offsets[i + 1]))
        pieces = _pieces(example.rendering.text, batch.ids[part], batch.starts[part], vocabulary)
        views.append(TokenView(example, batch.ids[part], batch.source[part], batch.supervised[part], pieces))
    return views


def _pieces(text: str, ids: NDArray[np.int32], starts: NDArray[np.int32], vocabulary: Vocabulary) -> tuple[str, ...]:
    """The characters of each token; where several share one character, the bytes of each."""
    if not len(ids):
        return ()
    ends = [*starts[1:].tolist(), len(text)]
    shared = np.zeros(len(ids) + 1, dtype=np.bool_)
    shared[1:-1] = starts[1:] == starts[:-1]
    pieces = []
    for i, (id, start, end) in enumerate(zip(ids.tolist(), starts.tolist(), ends, strict=True)):
        fragment = shared[i] or shared[i + 1]
        spelling = "".join(f"\\x{byte:02x}" for byte in vocabulary.spell(id)) if fragment else text[start:end]
        pieces.append(spelling)
    return tuple(pieces)
