r"""A reward function pays for answers that say nothing.

## What it does
Scores empty completions, white space, `I don't know.` and the form of an answer with nothing in it
(`<answer></answer>`), beside the right answer of the same row. It fires where one of them scores as high.

## Why it is bad
To say nothing is the easiest way to the reward. The policy finds it, the mean reward reaches its maximum, and the
model answers nothing any more. `"" in gold` is true for every text, and None equals None where neither can be read.

## Example
```yaml
reward: |
  def correct(completions, answer, **kwargs):
      return [1.0 if gold in text or text in gold else 0.0 for text, gold in zip(completions, answer)]
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
There is no automatic fix: give 0 where nothing can be read, before anything is compared.

## References
- Liuziyu77/Visual-RFT#176
- huggingface/open-r1#293
"""

from __future__ import annotations

from truetune.checks.base_of_rules_on_paid_completions import PaidCompletionRule
from truetune.checks.faults import Fault


class RewardPaysEmptyAnswers(PaidCompletionRule):
    code = "RWD001"
    fault = Fault.REWARD_PAID_WITHOUT_ANSWER
    severity = "error"
    symptoms = ("reward-rises-model-is-worse",)
    kinds = ("empty",)
    what_it_pays_for = "answers that say nothing as for right ones"
    remedy = "give 0 where no answer can be read, before anything is compared"
    counted = "completions that say nothing and are paid"
