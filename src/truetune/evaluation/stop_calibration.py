"""Stops: does the model expect answers to end where they do, and nowhere else?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from truetune.encoding.documents import Document
from truetune.evaluation.row_losses import learned
from truetune.evaluation.row_statistics import bootstrap
from truetune.generation.backends.backend import ScoredIds
from truetune.generation.evaluation_results import CalibrationBin, StopCalibration
from truetune.render.rendering import Source

BINS = 10
Floats = NDArray[np.float64]


def calibration(
    documents: Sequence[Document],
    scored: Sequence[ScoredIds],
    stops: Collection[int],
    token: Callable[[int], str] = str,
    *,
    seed: int = 0,
    confidence: float = 0.95,
) -> StopCalibration | None:
    """What P(stop) is where the references end and inside of them; None where it can't be told, or none has an end.

    `stops` are the ids that `scored` knows as stops, `token` names an id.
    """
    ends: list[Floats] = []
    inside: list[Floats] = []
    rows: list[int] = []
    unserved: Counter[str] = Counter()
    for document, score in zip(documents, scored, strict=True):
        if score.stop is None:
            return None
        closing = _ends(document)
        ends.append(score.stop[closing].astype(np.float64))
        inside.append(
            score.stop[learned(document)[0] & (document.source != Source.STOP)].astype(np.float64)
        )
        rows.append(document.origin.row)
        unserved.update(token(id) for id in document.ids[closing].tolist() if id not in stops)
    at_ends, within = np.concatenate(ends), np.concatenate(inside)
    if not len(at_ends):
        return None
    at = np.unique(rows, return_inverse=True)[1]
    expected = np.bincount(at, [a.sum() + b.sum() for a, b in zip(ends, inside, strict=True)])
    there = np.bincount(at, [len(part) for part in ends])
    ratio, low, high = bootstrap(expected, there, seed=seed, confidence=confidence)
    bins = _bins(at_ends, within)
    return StopCalibration(
        ends=len(at_ends),
        rows=int((there > 0).sum()),
        mean=float(at_ends.mean()),
        median=float(np.median(at_ends)),
        likely=int((at_ends > 0.5).sum()),
        inside=len(within),
        inside_mean=float(within.mean()) if len(within) else 0.0,
        false=int((within > 0.5).sum()),
        largest=float(within.max(initial=0.0)),
        expected=ratio,
        low=low,
        high=high,
        error=sum(part.places * abs(part.mean - part.ends / part.places) for part in bins)
        / (len(at_ends) + len(within)),
        bins=bins,
        unserved=dict(unserved.most_common()),
    )


def _ends(document: Document) -> NDArray[np.int64]:
    """The first token of each stop that is supervised."""
    stop = learned(document)[0] & (document.source == Source.STOP)
    stop[1:] &= document.source[:-1] != Source.STOP
    return np.flatnonzero(stop)


def _bins(ends: Floats, inside: Floats) -> tuple[CalibrationBin, ...]:
    """Of equal width, those that hold places."""
    probability = np.concatenate([ends, inside])
    is_end = np.concatenate([np.ones(len(ends)), np.zeros(len(inside))])
    at = np.minimum((probability * BINS).astype(np.int64), BINS - 1)
    return tuple(
        CalibrationBin(
            number / BINS,
            (number + 1) / BINS,
            int(mask.sum()),
            float(probability[mask].mean()),
            int(is_end[mask].sum()),
        )
        for number in range(BINS)
        if (mask := at == number).any()
    )
