"""All answers to a prompt get the same reward: there is nothing to learn from.

## What it does
Reads, in logs of GRPO, RLOO and OnlineDPO (TRL's names, and verl's), the share of prompts whose answers all have the
same reward. That is `frac_reward_zero_std`; else `reward_std`, the spread of the advantages, or
`objective/scores_margin`, of which only an exact 0 counts. It fires if that is every prompt in every record. It warns
if it is 80 % or more, in the median of the first quarter and of the whole run. It is an error too if no reward was ever
a number. Runs that had a signal and lost it as their reward rose are not reported. If only one of several reward
functions gives 0 in every record, that is a warning; one whose name contains penalty may rightly do so.

## Why it is bad
The advantage of an answer is its reward minus that of the other answers to the same prompt. If all are equal, it is 0,
so no weight changes, or the KL term only moves weights back to the reference. The loss does not show it: it is near 0
in healthy runs too.

## Example
```yaml
curve:
  loss: {from: 0.0, steps: 20}
  reward: {from: 0.0, steps: 20}
  reward_std: {from: 0.0, steps: 20}
  frac_reward_zero_std: {from: 1.0, steps: 20}
  grad_norm: {from: 0.0, steps: 20}
```

## Use instead
```yaml
curve:
  loss: {from: 0.0, steps: 20}
  reward: {from: 0.1, to: 0.6, steps: 20, noise: 0.02}
  reward_std: {from: 0.3, steps: 20, noise: 0.02}
  frac_reward_zero_std: {from: 0.3, steps: 20, noise: 0.02}
  grad_norm: {from: 0.4, steps: 20, noise: 0.02}
```

## Fix safety
Call the reward functions on logged answers (`log_completions=True`) before you change anything. If the reward is 0 for
every answer to every prompt, more samples or a higher temperature change nothing: the reward functions are at fault.

## References
- Shao et al. 2024 (GRPO), arXiv 2402.03300, section 4.1; Yu et al. 2025 (DAPO), arXiv 2503.14476, section 3.2
- huggingface/trl#2703
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.reasons_rules_cannot_judge import explain_too_short_curve
from truetune.checks.rule import LogRule
from truetune.logs.grpo_learning_signal_and_cut_answers import (
    is_share_always_one,
    share_of_cut_off_answers,
    share_of_prompts_with_equal_rewards,
)
from truetune.logs.run_log import Curve

# Chosen, not measured: with one prompt in five that teaches, a run learns at a fifth of its speed; at 0.4, most tasks
# that are easy or hard for the model would fire.
MIN_DEAD_SHARE = 0.8
# Chosen, not measured: a reward that is rare at first has come up once in a run of this many records.
MIN_RECORDS_WITHOUT_REWARD = 20
MIN_EQUAL_SCORES = 5
"""Records in which PPO's mean score has to be one value: a mean over other answers differs in its digits"""
MIN_STEPS = 2
"""Steps. Chosen by hand: the first record can hold the answers of one prompt; from two on it is the run"""


class NoRewardSignal(LogRule):
    code = "LOG027"
    fault = Fault.COMPLETIONS_GET_EQUAL_REWARDS
    severity = "error"
    symptoms = ("reward-does-not-rise",)
    kinds = ("reinforcement",)

    def findings(self) -> Iterator[Finding]:
        log = self.subject
        if log.kind != "reinforcement" or log.last_step < MIN_STEPS:
            return
        reward = log.curve("reward")
        if reward and not np.isfinite(reward.value).any():
            yield self.finding(
                f"no reward is a number in any of {reward.step.size:,} records: no answer was"
                " scored",
                "call the reward functions on logged answers (log_completions=True), and fix those that return"
                " None or nan",
                count=int(reward.step.size),
                total=int(reward.step.size),
            )
            return
        share = share_of_prompts_with_equal_rewards(log)
        scores = log.curve("objective/scores").finite()
        if not share and scores.step.size >= MIN_EQUAL_SCORES and np.ptp(scores.value) == 0:
            yield self._finding_on_constant_mean_score(scores)
        elif not share and _is_one_value_throughout(reward):
            yield self._finding_on_constant_reward(reward)
        elif is_share_always_one(share):
            yield self._finding_on_equal_rewards_per_prompt(
                share, f"in every one of {share.step.size:,} records"
            )
        elif self._is_share_large_from_the_start(share):
            yield self._finding_on_equal_rewards_per_prompt(
                share,
                f"for {np.median(share.value):.0%} of the prompts, from the start on",
                sure=False,
            )
        else:
            yield from self._findings_on_reward_functions_always_zero()

    def _finding_on_constant_mean_score(self, scores: Curve) -> Finding:
        """The finding that PPO's mean score is one value throughout: no answer differs from another."""
        value = float(scores.value[0])
        return self.finding(
            f"the mean score of the answers is exactly {value:.4g} in every one of"
            f" {scores.step.size:,} records: all answers have the same score, and nothing is learned",
            "call the reward model on two answers that you wrote; if all answers lack an EOS, the penalty"
            " (missing_eos_penalty) replaces each score: raise response_length so that answers can end",
            count=int(scores.step.size),
            total=int(scores.step.size),
            figure=draw_curves("objective/scores", {"objective/scores": scores}),
        )

    def _finding_on_constant_reward(self, reward: Curve) -> Finding:
        """The finding that the mean reward is one value throughout, where its spread is not logged."""
        return self.finding(
            f"the reward is exactly {reward.value[0]:.4g} in every one of {reward.step.size:,} records: all answers get"
            " the same, and nothing is learned",
            self._remedy(reward),
            evidence=tuple(self._evidence(reward)),
            count=int(reward.step.size),
            total=int(reward.step.size),
            figure=draw_curves("reward", {"reward": reward}),
        )

    def _findings_on_reward_functions_always_zero(self) -> Iterator[Finding]:
        """One finding for the reward functions that gave 0 throughout, where others gave something."""
        functions = {
            name: curve.finite()
            for name, curve in self.subject.curves.items()
            if name.startswith("rewards/") and name.endswith("/mean")
        }
        silent = [
            name.removeprefix("rewards/").removesuffix("/mean")
            for name, curve in functions.items()
            if curve.value.size >= MIN_RECORDS_WITHOUT_REWARD
            and not curve.value.any()
            and "penal" not in name.casefold()
        ]
        if not silent or len(silent) == len(functions):
            return
        yield self.finding(
            f"{len(silent)} of {len(functions)} reward functions gave 0 in every record:"
            f" {', '.join(silent)}",
            "call it on an answer that should get its reward, written as the model writes it: for example, does its"
            " pattern require a line break after the last tag?",
            severity="warning",
            count=len(silent),
            total=len(functions),
        )

    def _is_share_large_from_the_start(self, share: Curve) -> bool:
        """Have most prompts answers with equal rewards, in the whole run and in its beginning?"""
        if not share or float(np.median(share.value)) < MIN_DEAD_SHARE:
            return False
        return self._early_share_of_prompts_without_spread(share) >= MIN_DEAD_SHARE

    def _early_share_of_prompts_without_spread(self, share: Curve) -> float:
        """The median share of prompts without a spread of rewards, over the first quarter of the
        records.
        """
        return float(np.median(share.value[: max(1, share.value.size // 4)]))

    def _finding_on_equal_rewards_per_prompt(
        self, share: Curve, where: str, *, sure: bool = True
    ) -> Finding:
        """The finding that all answers to a prompt have one reward; a warning where it is not sure
        that all prompts do.
        """
        log = self.subject
        reward = log.curve("reward").finite()
        return self.finding(
            f"all answers to a prompt have the same reward {where}: every advantage is 0, so"
            " nothing is learned" + ("" if sure else " from these"),
            self._remedy(reward),
            severity="error" if sure else "warning",
            evidence=tuple(self._evidence(reward)),
            count=int((share.value >= 1).sum()),
            total=int(share.step.size),
            figure=draw_curves(
                "reward", {"all equal": share, **({"reward": reward} if reward else {})}
            ),
        )

    def _remedy(self, reward: Curve) -> str:
        """The remedy, by what the reward is throughout: cut answers, always full, always 0, or one
        value of another kind.
        """
        if is_share_always_one(share_of_cut_off_answers(self.subject)):
            return (
                "first raise max_completion_length: all answers are cut off, so none can be graded"
            )
        if reward and np.ptp(reward.value) == 0 and reward.value[0] != 0:
            return (
                "use harder prompts, or check that the reward functions tell answers apart: each answer"
                " gets the full reward"
            )
        if reward and not reward.value.any():
            # More samples, or hotter ones, of what is never rewarded are not rewarded either.
            return (
                "call the reward functions on the rows' own references, written as an answer: if these get 0 too, no"
                " answer can ever be right. Check that the column arrives (print its first value), that the final"
                " result is extracted from the reference as from the answer (`... #### 42` is not `42`), that both"
                " have the same type ('42' == 42 is False), and that the pattern fits the form that the prompt asks for"
            )
        return (
            "call the reward functions on logged answers (log_completions=True); if they tell answers apart, raise"
            " num_generations or temperature"
        )

    def _evidence(self, reward: Curve) -> Iterator[str]:
        """Evidence: the range of the reward, the reward functions that give one value, and gradient
        norms of 0.
        """
        log = self.subject
        if reward:
            yield f"the reward is between {reward.value.min():.4g} and {reward.value.max():.4g}"
        for name, curve in log.curves.items():
            if (
                name.startswith("rewards/")
                and name.endswith("/mean")
                and curve
                and np.ptp(curve.value) == 0
            ):
                yield f"{name} is {curve.value[0]:.4g} throughout"
        norm = log.curve("grad_norm").finite()
        if norm and not norm.value.any():
            yield "every gradient norm is 0 as well"

    def unmet(self) -> Unmet | None:
        """Also unmet where the log has neither rewards nor their spread, or too few steps."""
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        log = self.subject
        scores = log.curve("objective/scores")
        if not (share_of_prompts_with_equal_rewards(log) or log.curve("reward") or scores):
            return Unmet(
                "the log does not say rewards and their spread",
                "log reward and reward_std (TRL does)",
            )
        return (
            explain_too_short_curve(1, MIN_STEPS, "the rewards")
            if self.subject.last_step < MIN_STEPS
            else None
        )

    def measurement_if_clean(self) -> str:
        """The share of prompts whose answers all have one reward, and the range of the reward."""
        share, reward = (
            share_of_prompts_with_equal_rewards(self.subject).value,
            self.subject.curve("reward").finite().value,
        )
        between = (
            f"the reward is between {reward.min():.4g} and {reward.max():.4g}"
            if reward.size
            else ""
        )
        if not share.size:
            return f"{between}; its spread over the answers to one prompt is not logged"
        same = (
            f"all answers have the same reward for {np.median(share):.0%} of the prompts (median)"
        )
        return f"{same}; {between}" if between else same


def _is_one_value_throughout(reward: Curve) -> bool:
    """Is a mean reward the same in all of many records? Means over other answers differ in their digits."""
    return reward.step.size >= MIN_RECORDS_WITHOUT_REWARD and np.ptp(reward.finite().value) == 0
