r"""A reward function takes -12 for 12, 1 2 for 12, or 3.9 for 3.

## What it does
Scores the right number with its sign turned, with spaces between its digits, and (for numbers below 5) one that is cut
to the same whole number. It fires where they score as high. Numbers of four digits and more are not spaced, since
`1 234` is a spelling of 1234; nor are those within a formula of LaTeX (`\boxed{1 2}`), where spaces mean nothing.

## Why it is bad
Cleaning that removes all but digits makes one of several answers. The policy never learns the sign. `int(float(text))`
and `round(...)` do the same to fractions.

## Example
```yaml
reward: |
  import re

  def correct(completions, answer, **kwargs):
      return [1.0 if re.sub(r"\D", "", text) == gold else 0.0 for text, gold in zip(completions, answer)]
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
- databricks/officeqa#23
"""

from __future__ import annotations

from truetune.checks.base_of_rules_on_paid_completions import PaidCompletionRule
from truetune.checks.faults import Fault


class RewardPaysNearMisses(PaidCompletionRule):
    code = "RWD008"
    fault = Fault.REWARD_PAID_FOR_WRONG_ANSWER
    severity = "warning"
    symptoms = ("reward-rises-model-is-worse",)
    kinds = ("near miss",)
    what_it_pays_for = (
        "numbers that differ from the right one by their sign, by their fraction, or by spaces"
        " between their digits"
    )
    remedy = (
        "keep the sign, and the spaces between digits, when the answer is cleaned, and compare float(answer) without"
        " cutting or rounding it"
    )
    counted = "numbers with another sign or fraction, or with spaces between digits, that are paid"
    moot_where = (
        "reward-pays-wrong-answers",
        "reward-pays-parts-of-the-answer",
    )
