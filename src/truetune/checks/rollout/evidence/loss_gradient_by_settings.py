"""How much each token should count in the loss, by its settings: the gradient of the loss by the token's
log-probability.

The value of a loss of GRPO says little: the advantages of a group add up to 0, so it is near 0 whatever divides it. Its
gradient by the log-probabilities holds all of it, token by token: which tokens are in the loss, the advantage and its
sign, what divides it (the tokens of a completion, of the batch, a constant), the clipping, and the KL term. It is
computed here for one micro-batch from what was recorded, and compared with the recorded gradient.

Formulas: GRPO, arXiv 2402.03300, equation 3; DAPO, arXiv 2503.14476, equation 8; Dr. GRPO, arXiv 2503.20783, section
3.2; GSPO's ratio of sequences, arXiv 2507.18071, equation 7; CISPO, arXiv 2506.13585, equation 4; RLOO, arXiv
2402.14740. The KL term is the estimator k3 (Schulman 2020, "Approximating KL divergence").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from truetune.probe.rollout_step import LossPass, RolloutSettings, RolloutStep

Floats = NDArray[np.floating]
# Beside the largest value of a micro-batch. Of float32 the two computations differ by 1e-6; with bfloat16 the
# log-probabilities are rounded to 8 bits, and so is what is multiplied by their ratio.
MAX_DIFFERENCE = {"float32": 1e-3, "float64": 1e-3}
MAX_DIFFERENCE_ELSE = 3e-2
# A ratio at the edge of the clip range is inside for one computation and outside for the other.
EDGE = 1e-4
WEIGHTS: dict[str, Callable[[RolloutStep, LossPass], Floats]] = {}
"""By loss type: (completions, 1) what each token of a completion is multiplied by"""


def unknown_reason(step: RolloutStep, one: LossPass) -> str:
    """Why the gradient of a micro-batch can't be computed; empty where it can."""
    settings = step.settings
    if settings.loss_type not in WEIGHTS:
        return f"loss_type={settings.loss_type!r} is not computed here"
    if settings.unknown_to_loss:
        return f"{', '.join(settings.unknown_to_loss)} changes the loss"
    if one.logp_gradient is None:
        return "the gradient of the log-probabilities was not recorded"
    if settings.beta and one.reference_logps is None:
        return "the log-probabilities of the reference were not recorded"
    if settings.loss_type in ("dapo", "cispo") and not one.items:
        return "the number of tokens in the whole batch was not recorded"
    return ""


def max_difference(settings: RolloutSettings) -> float:
    """Up to which two gradients are the same, beside their largest value."""
    return MAX_DIFFERENCE.get(settings.precision, MAX_DIFFERENCE_ELSE)


def expected_gradient(step: RolloutStep, one: LossPass) -> Floats:
    """(completions, tokens) gradient of the loss by the log-probabilities, as the settings say."""
    return _policy_term(step, one) + _kl_term(step, one)


def is_same_gradient(step: RolloutStep, one: LossPass, other: Floats) -> bool:
    """Is the recorded gradient of a micro-batch this one, within rounding?"""
    assert one.logp_gradient is not None
    scale = max(float(np.abs(other).max()), _usual_size(step, one))
    differs = np.abs(one.logp_gradient - other) > max_difference(step.settings) * scale
    return not (differs & ~_at_edge_of_clip_range(step, one)).any()


def _usual_size(step: RolloutStep, one: LossPass) -> float:
    """How large a gradient is where the ratio is 1 and the KL divergence of the size of 1.

    Rounding is beside it: a KL term at the start is a difference of equal numbers, and all of it is rounding.
    """
    advantage = float(np.abs(one.advantages).max(initial=0.0)) + step.settings.beta
    weights = WEIGHTS[step.settings.loss_type](step, one)
    return advantage * float(weights.max(initial=0.0))


def name_form_of_gradient(step: RolloutStep, passes: list[LossPass]) -> str:
    """What the recorded gradients are, in words, where they are of another known form; empty where of none.

    Where several forms fit, as for completions of one length, the first is named.
    """
    for words, form in _other_forms(step):
        if all(is_same_gradient(step, one, form(one)) for one in passes):
            return words
    factor = _common_factor(step, passes)
    if factor is None:
        return ""
    return f"each token counts {factor:.4g} times what it should"


def _other_forms(step: RolloutStep) -> Iterator[tuple[str, Callable[[LossPass], Floats]]]:
    """Other forms, each in words."""
    settings = step.settings

    def by(changed: RolloutSettings) -> Callable[[LossPass], Floats]:
        other = replace(step, settings=changed)
        return lambda one: expected_gradient(other, one)

    def times(factor: float) -> Callable[[LossPass], Floats]:
        return lambda one: expected_gradient(step, one) * factor

    yield "the whole loss has the opposite sign: rewarded answers become less likely", times(-1.0)
    if settings.beta:
        yield "the KL term is not in it", by(replace(settings, beta=0.0))
        yield (
            "the KL term has the opposite sign: it pushes away from the reference",
            by(replace(settings, beta=-settings.beta)),
        )
    for name in WEIGHTS:
        if name not in (settings.loss_type, "rloo", "cispo"):
            yield (
                f"the tokens are divided as in loss_type={name!r}",
                by(replace(settings, loss_type=name)),
            )
    accumulated = {one.accumulated for one in step.passes} - {1}
    for count in accumulated:
        yield (
            f"it is divided by the {count} micro-batches of a step twice",
            times(1 / count),
        )
        yield (
            f"it is not divided by the {count} micro-batches of a step",
            times(count),
        )


def _common_factor(step: RolloutStep, passes: list[LossPass]) -> float | None:
    """The one number by which all gradients differ from the expected ones; None where there is none."""
    expected = np.concatenate([expected_gradient(step, one).ravel() for one in passes])
    recorded = np.concatenate([np.asarray(one.logp_gradient).ravel() for one in passes])
    square = float((expected**2).sum())
    if not square:
        return None
    factor = float((expected * recorded).sum()) / square
    if not factor:
        return None
    fits = all(is_same_gradient(step, one, factor * expected_gradient(step, one)) for one in passes)
    return factor if fits else None


def tokens_outside_mask_with_gradient(one: LossPass) -> int:
    """Tokens that are not meant to be in the loss, and are."""
    if one.logp_gradient is None:
        return 0
    return int(((one.logp_gradient != 0) & ~one.in_loss).sum())


def _ratios(step: RolloutStep, one: LossPass) -> Floats:
    """(completions, tokens or 1) policy by the policy that sampled."""
    logps = one.logps.astype(np.float64)
    if one.old_logps is None:
        log_ratio = np.zeros_like(logps)
    elif one.old_logps.ndim == 1:
        sums = (logps * one.in_loss).sum(axis=1)
        return np.asarray(np.exp(sums - one.old_logps)[:, None])
    else:
        log_ratio = logps - one.old_logps
    if step.settings.importance_sampling_level == "sequence":
        log_ratio = (log_ratio * one.in_loss).sum(axis=1) / _lengths(one)
        log_ratio = log_ratio[:, None]
    return np.asarray(np.exp(log_ratio))


def _policy_term(step: RolloutStep, one: LossPass) -> Floats:
    """The gradient of the policy's term: - advantage x ratio where the ratio is not clipped."""
    settings = step.settings
    advantages = one.advantages if one.advantages.ndim == 2 else one.advantages[:, None]
    ratios = _ratios(step, one)
    if settings.loss_type == "cispo":
        factor = np.minimum(ratios, settings.epsilon_high)
    else:
        clipped = ((advantages > 0) & (ratios > 1 + settings.epsilon_high)) | (
            (advantages < 0) & (ratios < 1 - settings.epsilon_low)
        )
        if settings.delta is not None:
            clipped |= ratios > settings.delta
        factor = np.where(clipped, 0.0, ratios)
    if one.sampler_ratio is not None:
        factor = factor * one.sampler_ratio
    weights = WEIGHTS[settings.loss_type](step, one)
    return np.asarray(-advantages * factor * weights * one.in_loss)


def _kl_term(step: RolloutStep, one: LossPass) -> Floats:
    """The gradient of beta x KL by the estimator k3, which is exp(d) - d - 1 with d = reference - policy."""
    settings = step.settings
    if not settings.beta or one.reference_logps is None:
        return np.zeros_like(one.logps)
    difference = one.reference_logps.astype(np.float64) - one.logps
    slope = 1.0 - np.exp(difference)
    weights = WEIGHTS[settings.loss_type](step, one) * one.in_loss
    if not settings.is_kl_times_ratio:
        return np.asarray(settings.beta * slope * weights)
    # By the product's rule: the ratio of a token, or of its sequence, changes with the token too.
    ratios, divergence = _ratios(step, one), np.exp(difference) - difference - 1.0
    if ratios.shape[1] > 1:
        return np.asarray(settings.beta * ratios * (slope + divergence) * weights)
    of_sequence = (divergence * weights).sum(axis=1, keepdims=True) / _lengths(one)[:, None]
    return np.asarray(settings.beta * ratios * (slope * weights + of_sequence * one.in_loss))


def _at_edge_of_clip_range(step: RolloutStep, one: LossPass) -> NDArray[np.bool_]:
    """(completions, tokens or 1) is a ratio so near to the edge that rounding says on which side it is?"""
    ratios, settings = _ratios(step, one), step.settings
    edges = [1 - settings.epsilon_low, 1 + settings.epsilon_high, settings.epsilon_high]
    if settings.delta is not None:
        edges.append(settings.delta)
    near = np.zeros(ratios.shape, np.bool_)
    for edge in edges:
        near |= np.abs(ratios - edge) < EDGE
    return near


def _lengths(one: LossPass) -> Floats:
    """(completions,) tokens in the loss, at least 1."""
    return np.asarray(np.maximum(one.in_loss.sum(axis=1), 1.0))


def _by_completion(step: RolloutStep, one: LossPass) -> Floats:
    """Each completion counts as one, whatever its length."""
    return np.asarray(1.0 / (_lengths(one) * len(one.logps) * one.accumulated)[:, None])


def _by_tokens_of_micro_batch(step: RolloutStep, one: LossPass) -> Floats:
    """Each token of a micro-batch counts the same."""
    total = max(float(one.in_loss.sum()), 1.0)
    return np.full((len(one.logps), 1), 1.0 / (total * one.accumulated))


def _by_constant(step: RolloutStep, one: LossPass) -> Floats:
    """Each token counts the same, whatever the lengths are."""
    total = len(one.logps) * max(step.settings.max_completion_length, 1) * one.accumulated
    return np.full((len(one.logps), 1), 1.0 / total)


def _by_tokens_of_batch(step: RolloutStep, one: LossPass) -> Floats:
    """Each token of all micro-batches and processes of a step of the optimizer counts the same."""
    settings = step.settings
    total = max(float(one.items or 0.0), 1.0) / settings.processes
    total *= one.accumulated / settings.steps_per_generation
    return np.full((len(one.logps), 1), 1.0 / total)


def _by_sequence(step: RolloutStep, one: LossPass) -> Floats:
    """Each completion counts by the sum of its tokens."""
    return np.full((len(one.logps), 1), 1.0 / (len(one.logps) * one.accumulated))


WEIGHTS |= {
    "grpo": _by_completion,
    "bnpo": _by_tokens_of_micro_batch,
    "dr_grpo": _by_constant,
    "dapo": _by_tokens_of_batch,
    "cispo": _by_tokens_of_batch,
    "rloo": _by_sequence,
}
