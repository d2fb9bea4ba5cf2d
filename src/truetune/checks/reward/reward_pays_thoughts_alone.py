r"""A reward function pays for completions that think the right answer and give none.

## What it does
Scores completions that have the right answer inside of `<think>` and end there. It fires where they score as high
as the right answer. It is a note: for models that don't think in tags it changes nothing.

## Why it is bad
What users are shown comes after the thoughts. The policy may learn to say nothing there.

## Example
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

## Use instead
```yaml
reward: |
  import re

  def correct(completions, answer, **kwargs):
      said = [text.rpartition("</think>")[2] for text in completions]
      boxes = [re.findall(r"\\boxed\{(.*?)\}", text) for text in said]
      return [1.0 if found and found[-1] == gold else 0.0 for found, gold in zip(boxes, answer)]
rows:
  - {prompt: "What is 5 + 7?", answer: "12"}
  - {prompt: "What is 30 * 41?", answer: "1230"}
```

## Fix safety
There is no automatic fix.

## References
- https://huggingface.co/docs/trl/rewards (reasoning_accuracy_reward)
"""

from __future__ import annotations

from truetune.checks.base_of_rules_on_paid_completions import PaidCompletionRule
from truetune.checks.faults import Fault


class RewardPaysThoughtsAlone(PaidCompletionRule):
    code = "RWD007"
    fault = Fault.REWARD_PAID_WITHOUT_ANSWER
    severity = "info"
    symptoms = ("reward-rises-model-is-worse",)
    kinds = ("thoughts alone",)
    what_it_pays_for = "completions with the right answer in their thoughts and none after them"
    remedy = "read only what comes after </think>, if the model thinks in these tags"
    counted = "completions that end with their thoughts and are paid"
    moot_where = (
        "reward-pays-wrong-answers",
        "reward-pays-parts-of-the-answer",
        "reward-pays-every-candidate",
        "reward-reads-the-first-answer",
    )
