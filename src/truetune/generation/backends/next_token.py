"""Logits in numpy: log-probabilities, the next token, and what they say of stopping."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from truetune.generation.answer_samples import Prompt
from truetune.generation.backends.backend import Decoding, Ids

Floats = NDArray[np.float32]


def log_softmax(logits: Floats) -> Floats:
    """Over the last axis"""
    shifted = logits - logits.max(-1, keepdims=True)
    found: Floats = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return found


def choose_token(logits: Floats, decoding: Decoding, random: np.random.Generator) -> int:
    """The next token: the likeliest, or drawn at a temperature among the fewest that hold `top_p` of it."""
    if decoding.temperature <= 0:
        return int(logits.argmax())
    share = np.exp(log_softmax(logits.astype(np.float64) / decoding.temperature))  # type: ignore[arg-type]
    order = np.argsort(-share, kind="stable")
    held = share[order]
    kept = (
        max(1, int(np.searchsorted(np.cumsum(held), decoding.top_p)) + 1)
        if decoding.top_p < 1
        else len(held)
    )
    return int(random.choice(order[:kept], p=held[:kept] / held[:kept].sum()))


def stop_probability(logits: Floats, ends: Iterable[int]) -> tuple[float, int]:
    """Probability that any of `ends` is next, and the rank of the likeliest of them, 0 = first."""
    places = sorted(ends)
    probability = float(np.exp(log_softmax(logits)[places]).sum())
    return probability, int((logits > logits[places].max()).sum())


def reference_before_stop(prompt: Prompt, ends: Iterable[int]) -> Ids:
    """The reference up to its stop token."""
    reference, stops = prompt.reference_ids, set(ends)
    while reference and reference[-1] in stops:
        reference = reference[:-1]
    return reference
