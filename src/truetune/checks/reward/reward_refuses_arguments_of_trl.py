r"""A reward function does not take all arguments that TRL hands to it.

## What it does
Compares the function's parameters with what TRL calls it by: `prompts`, `completions`, `completion_ids`,
`trainer_state`, `log_extra`, `log_metric`, and each column of the rows but `prompt`. It fires where one is missing
and there is no `**kwargs`.

## Why it is bad
The training ends at its first step, after the model was loaded and the first completions were generated.

## Example
```yaml
reward: |
  def correct(completions, answer):
      return [1.0 if text == gold else 0.0 for text, gold in zip(completions, answer)]
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
Adding `**kwargs` is safe.

## References
- https://huggingface.co/docs/trl/grpo_trainer (custom reward functions)
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import RewardRule


class RewardRefusesArgumentsOfTrl(RewardRule):
    code = "RWD024"
    fault = Fault.REWARD_FUNCTION_FAILS
    severity = "error"
    symptoms = ("reward-does-not-rise",)

    def unmet(self) -> Unmet | None:
        """Unmet where its arguments are not known, and of functions that verl calls."""
        return (
            None
            if self.subject.given_arguments
            else Unmet("TRL does not call it: it is one of verl's, or was not loaded")
        )

    def measurement_if_clean(self) -> str:
        """How many arguments it takes."""
        return f"it takes all {self.subject.given_arguments} arguments of TRL"

    def findings(self) -> Iterator[Finding]:
        """The finding on arguments that it does not take."""
        missing = self.subject.missing_arguments
        if missing:
            yield self.finding(
                f"{self.subject.name} takes no {', '.join(missing)}, which TRL hands to it: the first step raises"
                " TypeError",
                "add **kwargs to its parameters",
                evidence=["it was called without them"],
            )
