r"""A reward function returns something else than one score for each completion.

## What it does
Calls the function as TRL does and looks at what it returns. It fires for None, a bare number, a list of another
length, and scores that are texts or lists.

## Why it is bad
TRL raises at the first step, or, in releases before it checked, gives a single score to all completions in silence.

## Example
```yaml
reward: |
  def correct(completions, answer, **kwargs):
      return [1.0 if completions[0] == answer[0] else 0.0]
rows:
  - {prompt: "What is 5 + 7?", answer: "12"}
  - {prompt: "What is 30 * 41?", answer: "1230"}
```

## Use instead
```yaml
reward: |
  def correct(completions, answer, **kwargs):
      return [1.0 if text.strip() == gold else 0.0 for text, gold in zip(completions, answer)]
rows:
  - {prompt: "What is 5 + 7?", answer: "12"}
  - {prompt: "What is 30 * 41?", answer: "1230"}
```

## Fix safety
There is no automatic fix.

## References
- huggingface/trl#6533
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import RewardRule


class RewardReturnsNoScores(RewardRule):
    code = "RWD018"
    fault = Fault.REWARD_FUNCTION_FAILS
    severity = "error"
    symptoms = ("reward-does-not-rise",)

    def unmet(self) -> Unmet | None:
        """Unmet where no call returned anything."""
        if self.subject.raised_always:
            return Unmet("each call raised")
        return None if self.subject.calls else Unmet("the function was not called")

    def measurement_if_clean(self) -> Measurement:
        """How many calls returned something else than scores."""
        return make_count_measurement(
            "calls without one score for each completion", 0, self.subject.calls
        )

    def findings(self) -> Iterator[Finding]:
        """The finding on what was returned instead."""
        returned = self.subject.returned
        if returned:
            yield self.finding(
                f"{self.subject.name} returns {returned[0]}; TRL takes a list with one number, or None, for each"
                " completion",
                "return [score, ...], one for each of `completions`, in their order",
            )
