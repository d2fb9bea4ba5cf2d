r"""A reward function gives NaN or infinity.

## What it does
Looks at each score of all completions that are tried. An error for infinity, a warning for NaN.

## Why it is bad
An infinite reward makes the advantages of its whole group NaN, and with them the weights. NaN means None to TRL:
the completion is judged by the other functions alone; with `scale_rewards="gdpo"` of ms-swift all advantages become
NaN.

## Example
```yaml
reward: |
  def short(completions, **kwargs):
      return [1 / len(text.split()) if text.split() else float("nan") for text in completions]
rows:
  - {prompt: "What is 5 + 7?", answer: "12"}
  - {prompt: "What is 30 * 41?", answer: "1230"}
```

## Use instead
```yaml
reward: |
  def short(completions, **kwargs):
      return [1 / (1 + len(text.split())) for text in completions]
rows:
  - {prompt: "What is 5 + 7?", answer: "12"}
  - {prompt: "What is 30 * 41?", answer: "1230"}
```

## Fix safety
There is no automatic fix.

## References
- modelscope/ms-swift#8123
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.reward.cases_of_scored_completions import quote_completion
from truetune.checks.rule import RewardRule


class RewardIsNotFinite(RewardRule):
    code = "RWD019"
    fault = Fault.REWARD_FUNCTION_FAILS
    severity = "warning"
    symptoms = ("reward-does-not-rise",)

    def measurement_if_clean(self) -> Measurement:
        """How many scores are no finite number."""
        return make_count_measurement(
            "scores that are no finite number", 0, self.subject.completions
        )

    def findings(self) -> Iterator[Finding]:
        """The finding on NaN and infinity."""
        scores_and_completions = sorted(
            set(self.subject.not_finite), key=lambda one: (len(one[1]), one)
        )
        if not scores_and_completions:
            return
        is_infinite = any("inf" in score for score, _ in scores_and_completions)
        yield self.finding(
            f"{self.subject.name} gives {scores_and_completions[0][0]} for some completions",
            "guard the division or the logarithm that makes it",
            severity="error" if is_infinite else "warning",
            evidence=[]
            if is_infinite
            else ["TRL takes NaN for None, and leaves it out of the sum of rewards"],
            cases=[
                Case(f"{quote_completion(text)} gets {score}")
                for score, text in scores_and_completions
            ],
        )
