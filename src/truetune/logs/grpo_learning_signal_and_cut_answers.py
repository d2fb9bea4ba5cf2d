"""Derives from the logs of GRPO and the like how many answers give a learning signal, and how many
are cut off.

GRPO and RLOO learn from the difference between an answer's reward and that of the other answers to its prompt. Where
all of them have the same reward, every advantage is 0 and nothing but the KL term has a gradient. The loss says
nothing about it: it is 0 in a healthy run too, whose answers are used once. Names are TRL's (GRPOTrainer, RLOOTrainer,
OnlineDPOTrainer), and verl's."""

from __future__ import annotations

import re

import numpy as np

from truetune.logs.run_log import EMPTY_CURVE, Curve, RunLog

MIN_EQUAL_LENGTHS = 5
"""Records in which a length must stay the same, to the token, to be a limit"""
# Means over many rows agree to the token only at a limit. Labels of two or three tokens agree too: "yes" and its EOS.
MIN_EQUAL_EVALUATIONS, MIN_LIMIT = 3, 16
EVALUATED_LENGTH = re.compile(
    r"(eval|test|predict|val)[_/](?!.*max).*(gen|generated|generation|prediction|pred)_?(len|length)",
    re.I,
)
"""Names under which metrics log the mean length of what an evaluation generates: `eval_gen_len`"""


def share_of_prompts_with_equal_rewards(log: RunLog) -> Curve:
    """The share of the prompts of each record whose answers all have the same reward, 0 to 1; empty
    if none is logged.
    """
    logged = log.curve("frac_reward_zero_std").finite()
    if logged:
        return logged
    # The spread of a whole batch mixes that between prompts into it: only 0 tells, and then of all its prompts.
    spread = log.curve("reward_std").finite()
    if not spread:
        spread = _advantage_spread(log)
    if not spread:
        spread = log.curve("objective/scores_margin").finite()
    return Curve(spread.step, (spread.value == 0).astype(np.float64)) if spread else EMPTY_CURVE


def _advantage_spread(log: RunLog) -> Curve:
    """The range of the advantages of each record (verl); empty if it is not logged."""
    low = log.curve("critic/advantages/min").finite()
    high = log.curve("critic/advantages/max").finite()
    return Curve(low.step, high.at(low.step) - low.value) if low and high else EMPTY_CURVE


def share_of_cut_off_answers(log: RunLog) -> Curve:
    """The share of the answers of each record that were cut off at the length limit; empty if none
    is logged.
    """
    logged = log.curve("completions/clipped_ratio").finite()
    if logged:
        return logged
    ended = log.curve("completions/ended").finite()
    if ended:
        return Curve(ended.step, 1 - ended.value)
    # PPO counts the EOS tokens of a batch of answers: 0 says that none ended, another number may be padding.
    stops = log.curve("completions/num_eos_tokens").finite()
    if stops:
        return Curve(stops.step, (stops.value == 0).astype(np.float64))
    # the mean length of answers that ended is 0 where none did: this shows records of all or of not all
    finished = log.curve("completions/mean_terminated_length").finite()
    if finished:
        return Curve(finished.step, (finished.value == 0).astype(np.float64))
    length = mean_answer_length(log)
    if length.step.size < MIN_EQUAL_LENGTHS:
        return EMPTY_CURVE
    # Means of answers that end by themselves differ. The same whole number each time is a limit that all of them hit.
    is_limit = np.ptp(length.value) == 0 and float(length.value[0]).is_integer()
    return Curve(length.step, np.ones(length.step.size)) if is_limit else EMPTY_CURVE


def constant_length_of_evaluation_answers(log: RunLog) -> tuple[str, Curve] | None:
    """The mean length of the answers that evaluations generate, with its name, if it is the same
    whole number each time; otherwise None.
    """
    for name, logged in log.curves.items():
        length = logged.finite()
        if length.step.size < MIN_EQUAL_EVALUATIONS or not EVALUATED_LENGTH.fullmatch(name):
            continue
        first = float(length.value[0])
        if np.ptp(length.value) == 0 and first.is_integer() and first >= MIN_LIMIT:
            return name, length
    return None


def mean_answer_length(log: RunLog) -> Curve:
    """Curve of the mean tokens of the answers; `completion_length` in TRL before 0.16."""
    return log.curve("completions/mean_length").finite() or log.curve("completion_length").finite()


def is_share_always_one(share: Curve) -> bool:
    """Is it all of them, in every record?"""
    return bool(share) and bool(share.value.min() >= 1)
