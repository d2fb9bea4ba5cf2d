r"""A reward function pays for a right answer that the completion takes back.

## What it does
Scores completions that give the right answer first and a wrong one last: in `<think>` and after it, and with `No,
that is wrong.` between them. It fires where they score as high as the right answer.

## Why it is bad
A model that thinks tries answers before it gives one. A function that reads the first match, or any, pays for
guesses in the thoughts, whatever the model answers in the end.

## Example
```yaml
reward: |
  import re

  def correct(completions, answer, **kwargs):
      boxes = [re.findall(r"\\boxed\{(.*?)\}", text) for text in completions]
      return [1.0 if found and found[0] == gold else 0.0 for found, gold in zip(boxes, answer)]
rows:
  - {prompt: "What is 5 + 7?", answer: "12"}
  - {prompt: "What is 30 * 41?", answer: "1230"}
```

## Use instead
```yaml
reward: |
  import re

  def correct(completions, answer, **kwargs):
      boxes = [re.findall(r"\\boxed\{(.*?)\}", text) for text in completions]
      return [1.0 if found and found[-1] == gold else 0.0 for found, gold in zip(boxes, answer)]
rows:
  - {prompt: "What is 5 + 7?", answer: "12"}
  - {prompt: "What is 30 * 41?", answer: "1230"}
```

## Fix safety
There is no automatic fix. Where the first answer is meant to count, this is no fault.

## References
- https://arxiv.org/abs/2501.12948
"""

from __future__ import annotations

from truetune.checks.base_of_rules_on_paid_completions import PaidCompletionRule


class RewardPaysAnswersTakenBack(PaidCompletionRule):
    code = "RWD006"
    severity = "warning"
    kinds = (
        "thoughts",
        "taken back",
    )
    fault = "pays for completions that give the right answer first and a wrong one last"
    remedy = "read the last answer, after the thoughts: text.rpartition('</think>')[2]"
    counted = "completions with a wrong last answer that are paid"
    moot_where = (
        "reward-pays-wrong-answers",
        "reward-pays-parts-of-the-answer",
        "reward-pays-every-candidate",
    )
