"""Verdicts on the measured strength of an adapter on a server: nothing of it is served, a part of
it, or it can't be told.

`AdapterStrength.factor` is the part of training's effect on log-probabilities that the server shows (a projection: 0 is
the base, 1 the tuned model), `distance` what is left in nats/token, `effect` the size of the whole effect. The three
rules on served weights share these verdicts, so that one server is never blamed twice. The trade-off: fixed limits for
all models, wide enough for the noise of few prompts.
"""

from __future__ import annotations

from math import isfinite

from truetune.checks.judgement import Unmet
from truetune.generation.server_observations import AdapterStrength

# Chosen, not measured: rounding and quantisation leave some percent of an effect that is not there. At 0.07 a noisy
# server without the adapter would count as one with a part of it; at 0.3 so would rsLoRA at an eighth count as none.
MAX_FACTOR_OF_BASE = 0.15
# What is not explained may be as large as the effect itself (it is, where the base is served) and some noise; beyond it
# other weights are served.
MAX_DISTANCE_IN_EFFECTS = 2
# Chosen: at one or two prompts the tuned model's own near ties may fall the base's way.
MIN_ANSWERS_AS_BASE = 3
# Chosen, not measured: factors of known mistakes (a half, an eighth, double) are far outside. Narrower limits would
# name what an int8 server loses; wider ones would miss an alpha that is off by a third.
FULL_STRENGTH = (0.8, 1.25)
# Cosine from which on it is the same effect, only weaker or stronger: below, other weights are more likely.
MIN_COSINE_OF_SAME_EFFECT = 0.8


def is_nothing_of_training_served(strength: AdapterStrength) -> bool:
    """Is nothing of the training served? By log-probabilities where they are known, else by greedy answers."""
    if (
        strength.factor is not None
        and strength.distance is not None
        and strength.effect is not None
    ):
        is_near_base = abs(strength.factor) < MAX_FACTOR_OF_BASE
        return is_near_base and strength.distance < MAX_DISTANCE_IN_EFFECTS * strength.effect
    answers_as_base = not strength.as_tuned and strength.as_base >= MIN_ANSWERS_AS_BASE
    return strength.by == "answers" and answers_as_base


def is_served_at_other_strength(strength: AdapterStrength) -> bool:
    """Is the served effect that of the adapter, weaker or stronger?

    A named scaling needs no cosine: strong ones turn the effect.
    """
    if (
        strength.factor is None
        or strength.cosine is None
        or is_nothing_of_training_served(strength)
    ):
        return False
    if strength.explained:
        return True
    lowest, highest = FULL_STRENGTH
    is_same_effect = strength.cosine >= MIN_COSINE_OF_SAME_EFFECT
    return is_same_effect and not lowest <= strength.factor <= highest


def describe_strength(strength: AdapterStrength) -> str:
    """How much of what training changed is served, in one line."""
    if strength.factor is not None and strength.distance is not None:
        return (
            f"{strength.factor:.0%} of the training's effect is served, over {strength.places:,} log-probabilities;"
            f" they differ by {strength.distance:.2g} per token"
        )
    if strength.distance is not None:
        return f"the log-probabilities of {strength.places:,} tokens differ by {strength.distance:.2g} each"
    return (
        f"of {strength.places:,} greedy answers {strength.as_tuned:,} are the tuned model's,"
        f" {strength.as_base:,} the base's"
    )


def explain_nan_logprobs(strength: AdapterStrength | None) -> Unmet | None:
    """Why log-probabilities that are no numbers say nothing of a strength; None where they are numbers."""
    if strength is None:
        return None
    measured = [value for value in (strength.factor, strength.distance) if value is not None]
    if all(isfinite(value) for value in measured):
        return None
    return Unmet("log-probabilities are not numbers, which served-weights-differ reports")
