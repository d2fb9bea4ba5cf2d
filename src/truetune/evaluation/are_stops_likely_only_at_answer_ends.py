"""Measures whether a model expects answers to end where the references do, and nowhere else.

The probability of any stop token is read at each supervised position: at the ends of reference answers it should be
high, inside of them low. A loss can't tell, for a stop is one token in a hundred. The trade-off: it is read along the
references, so it says nothing of answers that the model would take elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from truetune.encoding.make_documents_or_reject_rows import Document
from truetune.evaluation.confidence_intervals_over_rows import bootstrap_mean
from truetune.evaluation.held_out_token_losses import scored_positions_and_answer_starts
from truetune.generation.backends.backend import ScoredIds
from truetune.generation.evaluation_loss_and_score_types import CalibrationBin, StopCalibration
from truetune.render.rendering import Source

# The usual count for an expected calibration error (Guo et al. 2017 use 15). With 5 the middle bin hides opposite
# errors; with 20 most bins of a hundred answers are empty.
BIN_COUNT = 10
Floats = NDArray[np.float64]


def measure_stop_calibration(
    documents: Sequence[Document],
    scored: Sequence[ScoredIds],
    stops: Collection[int],
    token: Callable[[int], str] = str,
    *,
    seed: int = 0,
    confidence: float = 0.95,
) -> StopCalibration | None:
    """What P(stop) is where the references end and inside of them.

    Args:
        documents: the encoded rows.
        scored: what the model gave to each.
        stops: the ids that `scored` knows as stops.
        token: names an id.
        seed: of the interval.
        confidence: of the interval.

    Returns:
        None where it can't be told, or no reference has an end.
    """
    ends: list[Floats] = []
    inside: list[Floats] = []
    rows: list[int] = []
    unserved: Counter[str] = Counter()
    for document, score in zip(documents, scored, strict=True):
        if score.stop is None:
            return None
        end_positions = _first_tokens_of_supervised_stops(document)
        is_inside = scored_positions_and_answer_starts(document)[0] & (
            document.source != Source.STOP
        )
        ends.append(score.stop[end_positions].astype(np.float64))
        inside.append(score.stop[is_inside].astype(np.float64))
        rows.append(document.origin.row)
        end_ids = document.ids[end_positions].tolist()
        unserved.update(token(id) for id in end_ids if id not in stops)
    at_ends, within = np.concatenate(ends), np.concatenate(inside)
    if not len(at_ends):
        return None
    # A row may be several examples (one a turn); the interval is over rows.
    row_numbers = np.unique(rows, return_inverse=True)[1]
    expected_stops = [a.sum() + b.sum() for a, b in zip(ends, inside, strict=True)]
    expected = np.bincount(row_numbers, expected_stops)
    actual = np.bincount(row_numbers, [len(part) for part in ends])
    ratio, low, high = bootstrap_mean(expected, actual, seed=seed, confidence=confidence)
    bins = _calibration_bins(at_ends, within)
    # Each bin weighs as many positions as it holds.
    weighted_errors = sum(bin.places * abs(bin.mean - bin.ends / bin.places) for bin in bins)
    return StopCalibration(
        ends=len(at_ends),
        rows=int((actual > 0).sum()),
        mean=float(at_ends.mean()),
        median=float(np.median(at_ends)),
        # Above a half, a stop is likelier than everything else together: greedy decoding ends there.
        likely=int((at_ends > 0.5).sum()),
        inside=len(within),
        inside_mean=float(within.mean()) if len(within) else 0.0,
        false=int((within > 0.5).sum()),
        largest=float(within.max(initial=0.0)),
        expected=ratio,
        low=low,
        high=high,
        error=weighted_errors / (len(at_ends) + len(within)),
        bins=bins,
        unserved=dict(unserved.most_common()),
    )


def _first_tokens_of_supervised_stops(document: Document) -> NDArray[np.int64]:
    """The first token of each stop that is supervised."""
    stop = scored_positions_and_answer_starts(document)[0] & (document.source == Source.STOP)
    # Some templates end a turn with two tokens (`<|im_end|>\n`): only the first is a decision to stop.
    stop[1:] &= document.source[:-1] != Source.STOP
    return np.flatnonzero(stop)


def _calibration_bins(ends: Floats, inside: Floats) -> tuple[CalibrationBin, ...]:
    """Bins of equal width, those that hold positions."""
    probability = np.concatenate([ends, inside])
    is_end = np.concatenate([np.ones(len(ends)), np.zeros(len(inside))])
    # A probability of exactly 1 belongs to the last bin.
    bin_numbers = np.minimum((probability * BIN_COUNT).astype(np.int64), BIN_COUNT - 1)
    bins = []
    # A broken model's NaN falls into none of these.
    for number in range(BIN_COUNT):
        mask = bin_numbers == number
        if not mask.any():
            continue
        bins.append(
            CalibrationBin(
                low=number / BIN_COUNT,
                high=(number + 1) / BIN_COUNT,
                places=int(mask.sum()),
                mean=float(probability[mask].mean()),
                ends=int(is_end[mask].sum()),
            )
        )
    return tuple(bins)
