"""The reward rises in training, while the score on held-out rows falls.

## What it does
Compares the reward of trainings by rewards with the scores of their evaluations: `eval_reward`, verl's
`val-core/.../mean@N` and `val/test_score/...`, prime-rl's `eval/.../avg@N`, accuracies. It warns if the reward rises by
a tenth and more than by chance, and one of the scores falls by a tenth from its best, at the end of three evaluations
or more.

## Why it is bad
The policy has found what the reward pays and the task does not ask for: a format, a length, a hole in the parser, or
memorised training prompts. The training curve looks like success; the model gets worse with each step.

## Example
```yaml
curve:
  reward: {from: 0.3, to: 0.7, steps: 60, noise: 0.01}
  eval_reward: {values: [0.5, 0.52, 0.4, 0.3], steps: 60, every: 10}
```

## Use instead
```yaml
curve:
  reward: {from: 0.3, to: 0.7, steps: 60, noise: 0.01}
  eval_reward: {values: [0.5, 0.52, 0.55, 0.56], steps: 60, every: 10}
```

## Fix safety
Take the checkpoint of the best evaluation. Reading twenty answers with a high reward shows what it pays; changing the
reward without reading them may close the wrong hole.

## References
- verl-project/verl#5038 ("the training reward is increasing, but the actual evaluation performance is declining"),
  allenai/open-instruct#534, AgentR1/Agent-R1#8
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.log.evidence.curves_of_reward_training import ends_of_curve
from truetune.checks.rule import LogRule
from truetune.logs.robust_statistics import fit_robust_trend, noise_sigma
from truetune.logs.run_log import Curve

EVALUATED_SCORE = re.compile(
    r"eval_reward|eval_rewards/[^/]*(accura|correct)[^/]*/mean|val-core/.*/(mean|acc)@\d+"
    r"|val-core/.*/(?:mean|maj|best)@\d+/mean|(?:val|eval)[/_](?:test_score/.*|.*accuracy)"
    r"|eval[/_].*(?:avg|pass|mean)@\d+|eval[/_](?:all/)?reward/mean|eval[/_].+/reward/mean",
    re.I,
)
"""Names of scores on held-out rows that are better the higher they are"""
MIN_RECORDS, MIN_EVALUATIONS = 10, 3
# Chosen, not measured: held-out sets of a few hundred rows vary by 2 to 3 points of 50.
MIN_RISE, MIN_FALL = 0.1, 0.1
MIN_TREND_Z = 3.3
"""p < 0.001 (Mann-Kendall)"""


class RewardRisesWhileEvaluationFalls(LogRule):
    code = "LOG181"
    fault = Fault.REWARD_RISES_WITHOUT_THE_TASK
    severity = "warning"
    symptoms = ("reward-rises-model-is-worse",)
    kinds = ("reinforcement",)

    def unmet(self) -> Unmet | None:
        """Also unmet where the log has no reward, or too few scores on held-out rows."""
        if (unmet := super().unmet()) is not None:
            return unmet
        if self._reward().step.size >= MIN_RECORDS and self._scores():
            return None
        return Unmet(
            f"the log has no {MIN_EVALUATIONS} evaluations on held-out rows beside the reward",
            "set eval_strategy: steps and give an eval_dataset",
        )

    def measurement_if_clean(self) -> str:
        """The reward and the scores at both ends."""
        curves = {"reward": self._reward(), **self._scores()}
        figures = (
            "{}: {:.3g} to {:.3g}".format(name, *ends_of_curve(one)) for name, one in curves.items()
        )
        return "; ".join(list(figures)[:3])

    def findings(self) -> Iterator[Finding]:
        """The finding on a score that falls while the reward rises."""
        reward = self._reward()
        if self.subject.kind != "reinforcement" or reward.step.size < MIN_RECORDS:
            return
        if not _rises(reward):
            return
        falling = {
            name: curve for name, curve in self._scores().items() if _falls_from_its_best(curve)
        }
        if not falling:
            return
        name, score = next(iter(falling.items()))
        ends = ends_of_curve(reward)
        yield self.finding(
            f"the reward rises from {ends.first:.3g} to {ends.last:.3g}, while {name} falls from"
            f" {score.value.max():.3g} to {score.value[-1]:.3g}: the policy learns what the reward pays, not the task",
            f"use the checkpoint near step {score.step[int(score.value.argmax())]:,.0f}; read answers with a high"
            " reward from the end of the run, and take out of the reward what they get it for",
            evidence=tuple(f"{one} falls, too" for one in list(falling)[1:4]),
            total=int(score.step.size),
            figure=draw_curves("reward and evaluation", {"reward": reward, name: score}),
        )

    def _reward(self) -> Curve:
        """The reward in training."""
        return self.subject.curve("reward").finite()

    def _scores(self) -> dict[str, Curve]:
        """The scores on held-out rows that were logged often enough."""
        finite = {
            name: curve.finite()
            for name, curve in self.subject.curves.items()
            if EVALUATED_SCORE.fullmatch(name)
        }
        return {name: one for name, one in finite.items() if one.step.size >= MIN_EVALUATIONS}


def _rises(curve: Curve) -> bool:
    """Does a reward rise by a tenth, and more than by chance?"""
    ends = ends_of_curve(curve)
    clear = ends.last - ends.first > max(MIN_RISE * abs(ends.first), 5 * noise_sigma(curve.value))
    return clear and fit_robust_trend(curve).z > MIN_TREND_Z


def _falls_from_its_best(score: Curve) -> bool:
    """Do the last two evaluations lie a tenth and more below the best one, and below the first?"""
    best, last = float(score.value.max()), float(np.max(score.value[-2:]))
    return best > 0 and last <= (1 - MIN_FALL) * best and last < float(score.value[0])
