"""Measures what training did to the log-probabilities of given tokens, and how much of it is there in another form.

All forms are asked the same thing, the log-probability of each token of the same answers, since that is what a server
tells too. With b, t and s for base, tuned and the form in question, and d over all places, the part that is kept is the
least-squares factor of (s - b) along (t - b), and the direction their cosine.

The trade-off: two numbers over all tokens. A fault in a few tokens alone hardly moves them; `largest` is there for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Chosen, not measured: wider than 4-bit quantization and half precision move the factor, narrower than a scaling that
# is wrong by half or double.
MAX_FACTOR_ERROR = 0.25
"""How much more or less of the effect than all of it is still the adapter's"""
# Chosen, not measured: noise of a quantized form lowers the cosine; another adapter's effect has one near 0.
MIN_COSINE = 0.9
"""Cosine between an effect and the adapter's"""
# The rounding of float32 log-probabilities lies near it; below, factor and cosine are noise over noise.
MIN_EFFECT_NATS = 1e-4
"""Nats (root mean square) below which there is no effect"""

SequenceLogprobs = Sequence[NDArray[np.float32]]
"""Log-probabilities of some sequences, in nats, at the places that are compared"""


@dataclass(frozen=True, slots=True)
class AdapterEffect:
    """How much of the adapter's effect on log-probabilities is there in another form of the model."""

    kept: float
    """1 where it is all there, 0 where it is the base; nan where there is none to compare"""
    cosine: float
    size: float
    """Root mean square of the effect that should be there, in nats"""
    largest: float
    """The largest difference to it, in nats"""
    places: int

    @property
    def is_lost_or_changed(self) -> bool:
        """Is the effect lost: is it less than all, or something else than the adapter's?"""
        # Written with `not`, so that nan (nothing to compare) counts as lost.
        is_full = abs(self.kept - 1) <= MAX_FACTOR_ERROR
        return self.size < MIN_EFFECT_NATS or not is_full or not self.cosine >= MIN_COSINE


def measure_effect(
    base: SequenceLogprobs, tuned: SequenceLogprobs, measured: SequenceLogprobs
) -> AdapterEffect:
    """Measure how much of the effect, tuned - base, is there in another form of the model.

    Args:
        base: log-probabilities (nats) by the base, one (tokens,) array a sequence.
        tuned: the same by the tuned model.
        measured: the same by the form in question.

    Returns:
        The effect over all tokens that each of the three has a value for; nan where one can't tell.
    """
    base_values, tuned_values, measured_values = (
        np.concatenate([np.asarray(row, np.float64) for row in rows])
        for rows in (base, tuned, measured)
    )
    is_finite = np.isfinite(base_values) & np.isfinite(tuned_values) & np.isfinite(measured_values)
    expected = (tuned_values - base_values)[is_finite]
    observed = (measured_values - base_values)[is_finite]
    expected_square, observed_square = expected @ expected, observed @ observed
    projection = expected @ observed
    # float64, and sums over all tokens at once: a long sequence counts by its tokens.
    count = int(is_finite.sum())
    cosine = 0.0
    if expected_square and observed_square:
        cosine = float(projection / np.sqrt(expected_square * observed_square))
    return AdapterEffect(
        kept=float(projection / expected_square) if expected_square else np.nan,
        cosine=cosine,
        size=float(np.sqrt(expected_square / max(1, count))),
        largest=float(np.abs(observed - expected).max(initial=0.0)),
        places=count,
    )
