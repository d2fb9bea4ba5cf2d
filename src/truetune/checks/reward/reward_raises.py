r"""A reward function raises an exception.

## What it does
Scores empty texts, texts without any mark, unclosed tags and boxes, `1/0`, `nan`, numbers of 5,000 digits, digits
of other scripts, and broken JSON. It fires where the function raises. Exceptions of what is kept from it here (the
network, files outside of the temporary folder) don't count.

## Why it is bad
One such completion ends the training, after hours.

## Example
```yaml
reward: |
  import re

  def correct(completions, answer, **kwargs):
      return [1.0 if re.search(r"\d+", text)[0] == gold else 0.0 for text, gold in zip(completions, answer)]
rows:
  - {prompt: "What is 5 + 7?", answer: "12"}
  - {prompt: "What is 30 * 41?", answer: "1230"}
```

## Use instead
```yaml
reward: |
  import re

  def correct(completions, answer, **kwargs):
      found = [re.search(r"\d+", text) for text in completions]
      return [1.0 if one and one[0] == gold else 0.0 for one, gold in zip(found, answer)]
rows:
  - {prompt: "What is 5 + 7?", answer: "12"}
  - {prompt: "What is 30 * 41?", answer: "1230"}
```

## Fix safety
There is no automatic fix.

## References
- 2U1/Qwen-VL-Series-Finetune#234
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.reward.cases_of_scored_completions import quote_completion
from truetune.checks.rule import RewardRule
from truetune.generation.reward_trial import RaisedError


def _length(one: RaisedError) -> int:
    """The length of the completion."""
    return len(one.completion)


def _case_of_error(one: RaisedError) -> Case:
    """An exception with the completion that it is raised for."""
    line = f" ({one.line})" if one.line else ""
    return Case(f"row {one.row}, {quote_completion(one.completion)}: {one.error}{line}")


class RewardRaises(RewardRule):
    code = "RWD016"
    fault = Fault.REWARD_FUNCTION_FAILS
    severity = "error"
    symptoms = ("reward-does-not-rise",)

    def unmet(self) -> Unmet | None:
        """Unmet where it was never called; a function that gives no score may have raised each time."""
        return None if self.subject.calls else Unmet("the function was not called")

    def measurement_if_clean(self) -> Measurement:
        """How many completions it raises on."""
        return make_count_measurement("completions that it raises on", 0, self.subject.completions)

    def findings(self) -> Iterator[Finding]:
        """The finding on exceptions: of each kind and line there is the shortest completion."""
        trial = self.subject
        if not trial.raised:
            return
        message = f"{trial.name} raises on completions that a policy may write"
        if trial.raised_always:
            message = f"{trial.name} raises on each completion"
        yield self.finding(
            message,
            "give 0 where a completion can't be read: an exception ends the training",
            cases=[_case_of_error(one) for one in sorted(trial.raised, key=_length)],
        )
