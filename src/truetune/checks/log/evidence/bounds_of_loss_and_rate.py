"""Bounds by which several rules judge a loss against that of guessing, and a learning rate."""

from __future__ import annotations

MIN_TIMES_GUESSING = 1.2
"""Of guessing. Chosen, not measured: an untrained head begins a little above ln(vocabulary), a sum of two at twice"""


MAX_VOCABULARY = 1_000_000
"""Above that of any published model: a loss beyond its guessing is wrong whatever the vocabulary is"""
HIGH_RATE = 1e-3
"""Learning rates from which they are told: published ones are lower, but for small models and some adapters"""


# Of the peak: schedules end at 0 or at a tenth of it; what is less than a millionth is a rounded 0.
IDLE_RATE = 1e-6
