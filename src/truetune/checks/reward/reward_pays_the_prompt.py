r"""A reward function pays for completions that repeat their prompt.

## What it does
Scores each row's question as its answer. It fires where the question scores as high as the right answer in three of
ten rows and more: a single one may end in its answer by chance.

## Why it is bad
Prompts of multiple choice hold their answers. Where a mention is enough, the policy repeats the prompt.

## Example
```yaml
reward: |
  def correct(completions, answer, **kwargs):
      return [1.0 if gold in text.split() else 0.0 for text, gold in zip(completions, answer)]
rows:
  - {prompt: "The colour of the sky is one of: blue or green", answer: "blue"}
  - {prompt: "The colour of grass is one of: red or green", answer: "green"}
```

## Use instead
```yaml
reward: |
  def correct(completions, answer, **kwargs):
      return [1.0 if text.strip() == gold else 0.0 for text, gold in zip(completions, answer)]
rows:
  - {prompt: "The colour of the sky is one of: blue or green", answer: "blue"}
  - {prompt: "The colour of grass is one of: red or green", answer: "green"}
```

## Fix safety
There is no automatic fix.

## References
- https://arxiv.org/abs/2505.22203
"""

from __future__ import annotations

from truetune.checks.base_of_rules_on_paid_completions import PaidCompletionRule
from truetune.checks.faults import Fault


class RewardPaysThePrompt(PaidCompletionRule):
    code = "RWD005"
    fault = Fault.REWARD_PAID_WITHOUT_ANSWER
    severity = "warning"
    symptoms = ("reward-rises-model-is-worse", "agent-training")
    kinds = ("prompt",)
    what_it_pays_for = "the prompt, given as the answer"
    remedy = "read the answer at one place, after a mark or at the end"
    counted = "prompts that are paid"
    min_share = 0.3
    moot_where = (
        "reward-pays-wrong-answers",
        "reward-pays-parts-of-the-answer",
        "reward-pays-every-candidate",
        "reward-pays-empty-answers",
    )
