"""Repeats the tokens of pictures as often as the processor writes them.

A rendering has each run of a picture's equal tokens once, for 16,000 copies of a token need not go through the
tokenizer: the copies are made of ids.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from truetune.encoding.encoder import EncodedTexts
from truetune.render.rendering import Rendering


def repeat_picture_tokens(
    renderings: Sequence[Rendering],
    encoded: EncodedTexts,
    source: NDArray[np.uint8],
    supervised: NDArray[np.bool_],
) -> tuple[EncodedTexts, NDArray[np.uint8], NDArray[np.bool_]]:
    """The tokens of texts with those of pictures repeated.

    Args:
        renderings: n texts with their repeats.
        encoded: their tokens.
        source: (tokens,)
        supervised: (tokens,)

    Returns:
        The three with more tokens; as they are where nothing is repeated.
    """
    if not any(rendering.repeats for rendering in renderings):
        return encoded, source, supervised
    ids, offsets, starts = encoded
    counts = np.ones(len(ids), dtype=np.int64)
    for number, rendering in enumerate(renderings):
        if rendering.repeats:
            first, last = int(offsets[number]), int(offsets[number + 1])
            wanted = [repeat.start for repeat in rendering.repeats]
            # The token in which the character is: a picture's own token begins with it, as all special tokens do.
            tokens = first + np.searchsorted(starts[first:last], wanted, side="right") - 1
            counts[tokens] = [repeat.times for repeat in rendering.repeats]
    totals = np.concatenate(([0], np.cumsum(counts)))
    longer = EncodedTexts(np.repeat(ids, counts), totals[offsets], np.repeat(starts, counts))
    return longer, np.repeat(source, counts), np.repeat(supervised, counts)
