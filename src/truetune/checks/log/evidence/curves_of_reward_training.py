"""Curves of trainings by rewards under one name, whoever wrote them, and what they do from beginning to end.

TRL, verl, open-instruct and slime log the same quantities under other names. `canonical_metric_names` renames what
means the same thing everywhere; what depends on the question is chosen here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from truetune.logs.run_log import EMPTY_CURVE, Curve, RunLog

END_SHARE = 0.2
"""Share of the records at each end of a run. A tenth of a run of 50 steps would be one record for each evaluation"""
FIFTHS = 5
MIN_REWARD_GAIN, MAX_FALL_FROM_BEST = 0.1, 0.1
"""Of the first and of the best reward: a run whose reward rises and stays up is learning, whatever else moves"""
LOGP_DIFFERENCES = (
    "sampling/sampling_logp_difference/mean",
    "vllm_vs_local_logprob_diff_mean",
    "train_rollout_logprob_abs_diff",
    "train/train_rollout_logprob_abs_diff",
)
"""Mean difference of the log-probabilities of sampler and trainer, in nats per token: TRL, open-instruct, slime"""
SAMPLER_KLS = (
    "mismatch_kl/mean",
    "gen_kl_error",
    "rollout_corr/k3_kl",
    "rollout_corr/kl",
    "mismatch/mismatch_k3_kl",
    "mismatch/mismatch_kl",
)
"""KL divergence between sampler and trainer, in nats per token: prime-rl, NeMo-RL, verl. It grows as the square of the
difference of the log-probabilities"""
PROBABILITY_DIFFERENCES = ("training/rollout_probs_diff_mean",)
"""Mean difference of the probabilities of sampler and trainer, from 0 to 1 per token: verl, where no correction is
set. It is at most the difference of the log-probabilities"""
SAMPLER_DIFFERENCES = (*LOGP_DIFFERENCES, *SAMPLER_KLS, *PROBABILITY_DIFFERENCES)
"""All of them, the exact ones first"""
SAMPLER_CORRELATION = "training/rollout_actor_probs_pearson_corr"
"""Correlation of the probabilities of sampler and trainer, which verl logs beside their difference"""
IMPORTANCE_RATIOS = (
    "sampling/importance_sampling_ratio/mean",
    "rollout_corr/rollout_is_mean",
    "rollout_is_mean",
)
"""Mean importance ratio of trainer and sampler: TRL, verl"""
CLIPPED_SHARES = (
    "clip_ratio/region_mean",
    "clip_ratio",
    "actor/pg_clipfrac",
    "policy/clipfrac_avg",
    "masked_fraction/mean",
)
"""Share of the tokens whose ratio was clipped: TRL, earlier TRL, verl, TRL's PPO; prime-rl masks what others clip"""
ENTROPIES = ("entropy", "actor/entropy", "actor/entropy_loss", "policy/entropy_avg")
"""Entropy of the policy, in nats per token"""


class Ends(NamedTuple):
    """The medians of the first and of the last records of a curve."""

    first: float
    last: float


def first_known_curve(log: RunLog, names: tuple[str, ...], min_records: int) -> tuple[str, Curve]:
    """The first of these curves that is logged, with its name; an empty one if none has enough records.

    Args:
        log: of the run.
        names: best first.
        min_records: finite records that it has to have.
    """
    for name in names:
        curve = log.curve(name).finite()
        if curve.step.size >= min_records:
            return name, curve
    return "", EMPTY_CURVE


def ends_of_curve(curve: Curve) -> Ends:
    """The medians of the first and of the last fifth of a curve's records."""
    size = max(1, int(END_SHARE * curve.value.size))
    return Ends(float(np.median(curve.value[:size])), float(np.median(curve.value[-size:])))


def does_reward_rise(log: RunLog) -> bool:
    """Does the reward end a tenth above its beginning, and near its best? False where it is not logged.

    Compared are the medians of the fifths of the run: a reward that rises and collapses later does not rise.
    """
    values = log.curve("reward").finite().value
    if values.size < FIFTHS:
        return False
    medians = [float(np.median(part)) for part in np.array_split(values, FIFTHS)]
    first, last, best = medians[0], medians[-1], max(medians)
    has_gained = last - first > MIN_REWARD_GAIN * abs(first)
    return has_gained and best - last <= MAX_FALL_FROM_BEST * max(abs(best), abs(first))
