r"""A reward function does not end on some completion.

## What it does
Gives each call a limit (`--call-seconds`, 3 s for one completion) and scores texts of up to 3,000 characters as of a
model that does not stop: repeated words, brackets, digits, and answers. It fires where one completion alone reaches
the limit, and names the line that was executed.

## Why it is bad
All GPUs wait for the function. A pattern with nested repetition (`(\w+\s?)*$`) takes time that doubles with each
character; parsers of mathematics compute towers of powers.

## Example
```yaml
reward: |
  import re

  def form(completions, **kwargs):
      return [1.0 if re.match(r"^(\w+\s?)*$", text) else 0.0 for text in completions]
rows:
  - {prompt: "What is 5 + 7?", answer: "12"}
  - {prompt: "What is 30 * 41?", answer: "1230"}
```

## Use instead
```yaml
reward: |
  import re

  def form(completions, **kwargs):
      return [1.0 if re.match(r"^[\w\s]*$", text) else 0.0 for text in completions]
rows:
  - {prompt: "What is 5 + 7?", answer: "12"}
  - {prompt: "What is 30 * 41?", answer: "1230"}
```

## Fix safety
There is no automatic fix.

## References
- huggingface/Math-Verify#65
- huggingface/open-r1#420
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.reward.cases_of_scored_completions import quote_completion
from truetune.checks.rule import RewardRule


class RewardHangs(RewardRule):
    code = "RWD017"
    fault = Fault.REWARD_FUNCTION_FAILS
    severity = "error"
    symptoms = ("reward-does-not-rise",)

    def unmet(self) -> Unmet | None:
        """Unmet where it was never called; a function that gives no score may have hung."""
        return None if self.subject.calls else Unmet("the function was not called")

    def measurement_if_clean(self) -> Measurement:
        """How many calls were ended at their limit."""
        return make_count_measurement("calls that were ended at their limit", 0, self.subject.calls)

    def findings(self) -> Iterator[Finding]:
        """The finding on a call that did not end."""
        hung = self.subject.hung
        if hung is None:
            return
        line = f" ({hung.line})" if hung.line else ""
        yield self.finding(
            f"{self.subject.name} did not score one completion of {len(hung.completion):,} characters within"
            f" {hung.seconds:g} s{line}",
            "let no part of a pattern repeat what repeats inside of it, bound loops, and give slow parsers a"
            " time limit",
            evidence=["completions that come after this one were not tried"],
            cases=[Case(quote_completion(hung.completion))],
        )
