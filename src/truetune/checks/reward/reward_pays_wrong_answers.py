r"""A reward function pays for wrong answers.

## What it does
Puts wrong answers into the form that is paid for the right one: another number, another letter, the answer of
another row, a text that is none. It fires where one of them scores as high. Answers that differ in spelling alone
are not used.

## Why it is bad
The policy is paid for what is wrong, and learns it with what is right. The mean reward does not show it.

## Example
```yaml
reward: |
  import re

  def correct(completions, answer, **kwargs):
      return [1.0 if re.search(r"\d", text) else 0.0 for text in completions]
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
There is no automatic fix: compare the whole answer with the whole reference.

## References
- https://arxiv.org/abs/2505.22203
"""

from __future__ import annotations

from truetune.checks.base_of_rules_on_paid_completions import PaidCompletionRule
from truetune.checks.faults import Fault


class RewardPaysWrongAnswers(PaidCompletionRule):
    code = "RWD002"
    fault = Fault.REWARD_PAID_FOR_WRONG_ANSWER
    severity = "error"
    symptoms = ("reward-rises-model-is-worse",)
    kinds = ("wrong",)
    what_it_pays_for = "wrong answers as for right ones"
    remedy = "compare the whole answer with the whole reference, both in one notation"
    counted = "wrong answers that are paid"
