r"""A reward function pays for completions that list all answers.

## What it does
Scores completions with several answers in one form (`13, 12 or 5`) and in a form each. The right one is in the
middle, so that a function that reads the first or the last answer gives 0. It fires where they score as the right
answer. Where each text that names the right answer gets a part of the reward, it is a warning from a quarter on.

## Why it is bad
The policy names all choices, or all numbers that it has come across, and is right each time.

## Example
```yaml
reward: |
  import re

  def correct(completions, answer, **kwargs):
      return [1.0 if gold in re.findall(r"\d+", text) else 0.0 for text, gold in zip(completions, answer)]
rows:
  - {prompt: "What is 5 + 7?", answer: "12"}
  - {prompt: "What is 30 * 41?", answer: "1230"}
```

## Use instead
```yaml
reward: |
  import re

  def correct(completions, answer, **kwargs):
      found = [re.findall(r"-?\d+", text) for text in completions]
      return [1.0 if one and one[-1] == gold else 0.0 for one, gold in zip(found, answer)]
rows:
  - {prompt: "What is 5 + 7?", answer: "12"}
  - {prompt: "What is 30 * 41?", answer: "1230"}
```

## Fix safety
There is no automatic fix: read one answer, and give 0 for several.

## References
- Liuziyu77/Visual-RFT#79
"""

from __future__ import annotations

from truetune.checks.base_of_rules_on_paid_completions import PaidCompletionRule
from truetune.checks.faults import Fault


class RewardPaysEveryCandidate(PaidCompletionRule):
    code = "RWD004"
    fault = Fault.REWARD_PAID_FOR_WRONG_ANSWER
    severity = "error"
    symptoms = ("reward-rises-model-is-worse",)
    kinds = ("candidates",)
    part_kind = "candidates"
    what_it_pays_for = "completions that give several answers, the right one in their middle"
    remedy = "read one answer, the last one, and give 0 where it names several"
    counted = "completions with several answers that are paid"
    moot_where = (
        "reward-pays-wrong-answers",
        "reward-pays-parts-of-the-answer",
    )
