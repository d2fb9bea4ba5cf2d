"""Answers grow until the length limit cuts them, and the reward does not rise with them.

## What it does
Compares both ends of a training by rewards. It warns if the share of answers that are cut rises from below 30 % by 30
points or more, while the reward does not rise by a tenth, or falls by a tenth from its best; or if 80 % are cut in the
end, whatever the reward does. `completions-always-cut` is about runs that are cut from the start.

## Why it is bad
An answer that is cut has no end to grade. With a loss that divides by each answer's length, long wrong answers are
punished less per token than short ones, so wrong answers get longer and longer; or the policy has lost its stop token
and continues with anything. Each step also takes longer.

## Example
```yaml
curve:
  reward: {from: 0.5, to: 0.48, steps: 60, noise: 0.01}
  completions/mean_length: {from: 300, to: 1000, steps: 60, noise: 10}
  completions/clipped_ratio: {from: 0.02, to: 0.6, steps: 60, noise: 0.01}
```

## Use instead
```yaml
curve:
  reward: {from: 0.5, to: 0.8, steps: 60, noise: 0.01}
  completions/mean_length: {from: 300, to: 600, steps: 60, noise: 10}
  completions/clipped_ratio: {from: 0.02, to: 0.08, steps: 60, noise: 0.01}
```

## Fix safety
Reading cut answers tells whether they reason on (then a higher limit helps) or repeat themselves (then it does not). A
penalty on length alone may cut right answers short.

## References
- HarryHsing/EchoInk#5 (unrelated text up to the limit late in training), verl-project/verl#7412,
  sail-sg/understand-r1-zero#25; Yu et al. 2025 (DAPO), arXiv 2503.14476, section 3.4
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.log.evidence.curves_of_reward_training import (
    does_reward_rise,
    ends_of_curve,
)
from truetune.checks.rule import LogRule
from truetune.logs.grpo_learning_signal_and_cut_answers import (
    mean_answer_length,
    share_of_cut_off_answers,
)

MIN_RECORDS = 10
# Chosen, not measured: recipes of long reasoning live with 5 to 20 % of cut answers.
MAX_FIRST_SHARE, MIN_RISE = 0.3, 0.3
MIN_LAST_SHARE = 0.8
"""Where nearly all are cut in the end, no reward tells a whole answer. `completions-always-cut` has the same limit"""


class AnswersGrowIntoTheLimit(LogRule):
    code = "LOG183"
    fault = Fault.ANSWERS_CUT_AT_TOKEN_LIMIT
    symptoms = ("reward-rises-model-is-worse", "never-stops")
    severity = "warning"
    kinds = ("reinforcement",)

    def unmet(self) -> Unmet | None:
        """Also unmet where the log does not say how many answers are cut."""
        if (unmet := super().unmet()) is not None:
            return unmet
        if share_of_cut_off_answers(self.subject).step.size >= MIN_RECORDS:
            return None
        return Unmet(f"the log has no {MIN_RECORDS} records of the share of answers that are cut")

    def measurement_if_clean(self) -> str:
        """The share at both ends."""
        share = share_of_cut_off_answers(self.subject)
        return "the share of cut answers goes from {:.1%} to {:.1%}".format(*ends_of_curve(share))

    def findings(self) -> Iterator[Finding]:
        """The finding on answers that grow into the limit."""
        log = self.subject
        share = share_of_cut_off_answers(log)
        if log.kind != "reinforcement" or share.step.size < MIN_RECORDS:
            return
        ends = ends_of_curve(share)
        if ends.first >= MAX_FIRST_SHARE or ends.last - ends.first < MIN_RISE:
            return
        reward = log.curve("reward").finite()
        evidence = []
        # a run whose reward rises with the length is learning to reason, as long as most answers have an end
        rises = reward.step.size >= MIN_RECORDS and does_reward_rise(log)
        if rises and ends.last < MIN_LAST_SHARE:
            return
        if reward.step.size >= MIN_RECORDS:
            evidence.append("the reward goes from {:.3g} to {:.3g}".format(*ends_of_curve(reward)))
        length = mean_answer_length(log)
        if length:
            evidence.append(
                "the mean length goes from {:,.0f} to {:,.0f} tokens".format(*ends_of_curve(length))
            )
        yield self.finding(
            f"the share of answers that are cut off rises from {ends.first:.0%} to {ends.last:.0%}"
            + ("" if rises else ", and the reward does not rise with it"),
            "read cut answers of the last steps; if they repeat themselves, go back to a checkpoint before the rise,"
            " set a loss without division by each answer's length (loss_type: dapo or dr_grpo), and mask or penalise"
            " cut answers",
            evidence=evidence,
            total=int(share.step.size),
            figure=draw_curves("answers cut off", {"share": share}),
        )
