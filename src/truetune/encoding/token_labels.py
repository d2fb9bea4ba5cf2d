"""Labels from spans: which source each token has, and whether it is supervised."""

from __future__ import annotations

from itertools import chain

import numpy as np
from numpy.typing import NDArray

from truetune.encoding.encoder import Encoded
from truetune.encoding.engines import offsets_of
from truetune.render.rendering import Rendering, Source, Turn


def label_tokens(
    renderings: list[Rendering], encoded: Encoded
) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """((tokens,) source, (tokens,) supervised).

    A token belongs to the run or span that holds its first character; a stop token is taken whole.
    """
    bases = offsets_of([len(r.text) for r in renderings])
    places = encoded.starts.astype(np.int64) + np.repeat(bases[:-1], np.diff(encoded.offsets))
    counts = np.array([len(r.sources) for r in renderings], dtype=np.int64)
    sources = np.fromiter(
        chain.from_iterable(r.sources for r in renderings), dtype=np.uint8, count=counts.sum()
    )
    starts = np.fromiter(
        chain.from_iterable(r.starts[:-1] for r in renderings), dtype=np.int64, count=counts.sum()
    )
    first = np.searchsorted(places, starts + np.repeat(bases[:-1], counts))
    source = np.repeat(sources, np.diff(np.append(first, len(places))))

    spans = [
        (base + s.start, base + s.end)
        for r, base in zip(renderings, bases, strict=False)
        for s in r.spans
    ]
    stops = [
        (base + turn.stop_start, base + turn.end)
        for r, base in zip(renderings, bases, strict=False)
        for turn in _trained_turns(r)
        if turn.stop_start >= 0
    ]
    supervised = _covered_tokens(places, spans)
    for low, high in _stop_token_ranges(places, stops):
        source[low:high] = Source.STOP
        if high > low and (supervised[low:high].any() or (low and supervised[low - 1])):
            supervised[low:high] = True
    return source, supervised


def _trained_turns(rendering: Rendering) -> list[Turn]:
    trained = {span.turn for span in rendering.spans}
    return (
        rendering.turns
        if -1 in trained
        else [turn for turn in rendering.turns if turn.message in trained]
    )


def loss_weights(
    rendering: Rendering, starts: NDArray[np.int32], supervised: NDArray[np.bool_]
) -> NDArray[np.float32]:
    """(tokens,) of one example: the weight of the span that a supervised token belongs to, 0 for context."""
    begins = np.array([span.start for span in rendering.spans], dtype=np.int64)
    values = np.array([1.0, *(span.weight for span in rendering.spans)], dtype=np.float32)
    return np.where(
        supervised, values[np.searchsorted(begins, starts, side="right")], np.float32(0)
    )


def _covered_tokens(places: NDArray[np.int64], spans: list[tuple[int, int]]) -> NDArray[np.bool_]:
    if not spans:
        return np.zeros(len(places), dtype=np.bool_)
    edges = np.searchsorted(places, np.array(spans))
    change = np.zeros(len(places) + 1, dtype=np.int32)
    np.add.at(change, edges[:, 0], 1)
    np.add.at(change, edges[:, 1], -1)
    return np.cumsum(change[:-1]) > 0


def _stop_token_ranges(
    places: NDArray[np.int64], stops: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    """The tokens that a stop's characters lie in."""
    if not stops:
        return []
    edges = np.array(stops)
    low = np.searchsorted(places, edges[:, 0], side="right") - 1
    high = np.searchsorted(places, edges[:, 1])
    low = np.searchsorted(places, places[np.maximum(low, 0)]) if len(places) else low
    return list(zip(low.tolist(), high.tolist(), strict=True))
