"""Labels tokens from spans of characters: which source each token has, and whether it is supervised.

Spans and sources are characters of a text; labels are of tokens. Since each token has the character that it begins at,
both are binary searches in those starts, for all texts of a batch at once: the texts count as one, laid end to end.

The trade-off is in tokens that lie across a border (`.\\n` where the answer ends behind `.`). A token belongs to where
it begins; only stop tokens are taken whole, so that none is ever half learned. Nothing here looks at ids: a label can't
be lost because some id is also the pad.
"""

from __future__ import annotations

from itertools import chain

import numpy as np
from numpy.typing import NDArray

from truetune.encoding.encoder import EncodedTexts
from truetune.encoding.proved_tokenizer_engines import offsets_of
from truetune.render.rendering import Rendering, Source, Turn


def label_tokens(
    renderings: list[Rendering], encoded: EncodedTexts
) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """The source of each token, and whether it is learned.

    A token belongs to the run or span that holds its first character; a stop token is taken whole.

    Args:
        renderings: n texts with their sources, spans and turns.
        encoded: their tokens, of the same n texts.

    Returns:
        source: (tokens,) values of Source.
        supervised: (tokens,)
    """
    # (texts + 1,) where each text begins in all characters; (tokens,) where each token begins in them.
    text_offsets = offsets_of([len(rendering.text) for rendering in renderings])
    tokens_per_text = np.diff(encoded.offsets)
    token_starts = encoded.starts.astype(np.int64)
    token_starts += np.repeat(text_offsets[:-1], tokens_per_text)

    source = _token_sources(renderings, text_offsets, token_starts)
    spans: list[tuple[int, int]] = []
    stops: list[tuple[int, int]] = []
    for rendering, offset in zip(renderings, text_offsets.tolist(), strict=False):
        spans += [(offset + span.start, offset + span.end) for span in rendering.spans]
        stops += [
            (offset + turn.stop_start, offset + turn.end)
            for turn in _turns_with_spans(rendering)
            if turn.stop_start >= 0
        ]
    supervised = _covered_tokens(token_starts, spans)
    for low, high in _stop_token_ranges(token_starts, stops):
        source[low:high] = Source.STOP
        # Learned where any of it is, or what stands before it is: a stop token that begins inside the answer's last
        # token would else be left out, and the model would never learn to stop.
        if high > low and (supervised[low:high].any() or (low and supervised[low - 1])):
            supervised[low:high] = True
    return source, supervised


def _token_sources(
    renderings: list[Rendering], text_offsets: NDArray[np.int64], token_starts: NDArray[np.int64]
) -> NDArray[np.uint8]:
    """(tokens,) the source that each token begins in.

    Args:
        renderings: n texts.
        text_offsets: (n + 1,) where each begins in all characters.
        token_starts: (tokens,) where each token begins in all characters, rising.
    """
    counts = np.array([len(rendering.sources) for rendering in renderings], dtype=np.int64)
    all_sources = chain.from_iterable(rendering.sources for rendering in renderings)
    sources = np.fromiter(all_sources, dtype=np.uint8, count=counts.sum())
    all_starts = chain.from_iterable(rendering.starts[:-1] for rendering in renderings)
    source_starts = np.fromiter(all_starts, dtype=np.int64, count=counts.sum())
    source_starts += np.repeat(text_offsets[:-1], counts)
    # A source has all tokens from the first that begins in it to the first that begins in the next one; none where it
    # is shorter than a token.
    first_tokens = np.searchsorted(token_starts, source_starts)
    tokens_per_source = np.diff(np.append(first_tokens, len(token_starts)))
    return np.repeat(sources, tokens_per_source)


def _turns_with_spans(rendering: Rendering) -> list[Turn]:
    """The turns that some span belongs to; all of them where a span is of the whole text (-1)."""
    trained = {span.turn for span in rendering.spans}
    if -1 in trained:
        return rendering.turns
    return [turn for turn in rendering.turns if turn.message in trained]


def loss_weights(
    rendering: Rendering, starts: NDArray[np.int32], supervised: NDArray[np.bool_]
) -> NDArray[np.float32]:
    """(tokens,) of one example: the weight of the span that a supervised token belongs to, 0 for context."""
    span_starts = np.array([span.start for span in rendering.spans], dtype=np.int64)
    # Before the first span there is weight 1.0: a stop token is learned whole, and may begin just before its span.
    values = np.array([1.0, *(span.weight for span in rendering.spans)], dtype=np.float32)
    spans_begun = np.searchsorted(span_starts, starts, side="right")  # (tokens,)
    return np.where(supervised, values[spans_begun], np.float32(0))


def _covered_tokens(
    token_starts: NDArray[np.int64], spans: list[tuple[int, int]]
) -> NDArray[np.bool_]:
    """(tokens,) does each begin in one of the spans? Spans are (start, end) in all characters."""
    if not spans:
        return np.zeros(len(token_starts), dtype=np.bool_)
    edges = np.searchsorted(token_starts, np.array(spans))  # (spans, 2) in tokens
    # +1 where a span begins and -1 where one ends; their running sum is how many spans a token is in. `add.at`, for
    # several may begin or end at one token, and `change[i] += 1` would count them once.
    change = np.zeros(len(token_starts) + 1, dtype=np.int32)
    np.add.at(change, edges[:, 0], 1)
    np.add.at(change, edges[:, 1], -1)
    return np.cumsum(change[:-1]) > 0


def _stop_token_ranges(
    token_starts: NDArray[np.int64], stops: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    """(first, one past the last) of the tokens that each stop's characters lie in. Stops are in all characters."""
    if not stops:
        return []
    edges = np.array(stops)  # (stops, 2)
    # The token that holds the first character is the last one that begins at it or before it.
    low = np.searchsorted(token_starts, edges[:, 0], side="right") - 1
    high = np.searchsorted(token_starts, edges[:, 1])
    if len(token_starts):
        # Several tokens may begin at that character (bytes of one emoji): take the first of them.
        low = np.searchsorted(token_starts, token_starts[np.maximum(low, 0)])
    return list(zip(low.tolist(), high.tolist(), strict=True))
