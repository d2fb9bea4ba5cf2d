"""Chooses the next token in numpy: log-probabilities of logits, the choice of a token, and how likely a stop is.

For engines that give logits to this process (llama.cpp). Models of transformers do the same in torch, on their device
(`generate_batch_with_transformers`); the two are not shared, as the one must run without torch.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from truetune.generation.answer_samples import Prompt
from truetune.generation.backends.backend import Decoding, Ids

Floats = NDArray[np.float32] | NDArray[np.float64]


def log_softmax(logits: Floats) -> Floats:
    """Log-probabilities in nats over the last axis, of the shape and type of `logits`."""
    # Less the largest first: exp of a logit of 100 is no float32 any more.
    shifted = logits - logits.max(-1, keepdims=True)
    logprobs: Floats = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return logprobs


def choose_token(logits: Floats, decoding: Decoding, random: np.random.Generator) -> int:
    """The next token: the likeliest, or drawn at a temperature among those that `top_p` and `min_p` both leave.

    Args:
        logits: (vocabulary,).
        decoding: the temperature, 0 for the likeliest, top_p and min_p.
        random: draws once, where there is a temperature.
    """
    if decoding.temperature <= 0:
        return int(logits.argmax())
    # In float64: `random.choice` wants a sum of 1 to within 1e-8, which float32 misses over a vocabulary.
    probabilities = np.exp(log_softmax(logits.astype(np.float64) / decoding.temperature))
    # A stable order, so that equal tokens are drawn alike on every machine.
    order = np.argsort(-probabilities, kind="stable")
    ordered = probabilities[order]
    count = len(ordered)
    if decoding.top_p < 1:
        # The token that crosses top_p belongs to the set, so that there is always one.
        count = max(1, int(np.searchsorted(np.cumsum(ordered), decoding.top_p)) + 1)
    if decoding.min_p > 0:
        # The likeliest always belongs to them: min_p is 1 at most.
        count = min(count, int(np.count_nonzero(ordered >= decoding.min_p * ordered[0])))
    shares = ordered[:count] / ordered[:count].sum()
    return int(random.choice(order[:count], p=shares))


def stop_probability_and_best_rank(logits: Floats, stops: Iterable[int]) -> tuple[float, int]:
    """Probability that any of `stops` is next, and the rank of the likeliest of them, 0 = first.

    `logits` are (vocabulary,).
    """
    ids = sorted(stops)
    probability = float(np.exp(log_softmax(logits)[ids]).sum())
    return probability, int((logits > logits[ids].max()).sum())


def reference_ids_before_stop(prompt: Prompt, stops: Iterable[int]) -> Ids:
    """The reference answer of a prompt up to its stop token; () without a reference."""
    reference, stop_ids = prompt.reference_ids, set(stops)
    while reference and reference[-1] in stop_ids:
        reference = reference[:-1]
    return reference
