r"""A reward function pays for parts of the right answer, or for longer answers that hold it.

## What it does
Scores the first digit or letter of the right answer, numbers that begin or end with it (`127` and `912` for `12`),
and its denial (`not Paris`). It fires where one of them scores as high as the right answer. Where each text that
mentions the right answer gets a part of the reward, such numbers among them, it is a warning from a quarter on.

## Why it is bad
`gold in text` is true for every number that holds the digits, and `text in gold` for each single digit. The policy
is paid for wrong answers, and for texts that mention many.

## Example
```yaml
reward: |
  def correct(completions, answer, **kwargs):
      return [1.0 if gold in text else 0.0 for text, gold in zip(completions, answer)]
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
There is no automatic fix: take the answer out of the text, and compare it by equality.

## References
- Liuziyu77/Visual-RFT#176
"""

from __future__ import annotations

from truetune.checks.base_of_rules_on_paid_completions import PaidCompletionRule
from truetune.checks.faults import Fault


class RewardPaysPartsOfTheAnswer(PaidCompletionRule):
    code = "RWD003"
    fault = Fault.REWARD_PAID_FOR_WRONG_ANSWER
    severity = "error"
    symptoms = ("reward-rises-model-is-worse",)
    kinds = ("part",)
    part_kind = "part"
    what_it_pays_for = (
        "answers that are a part of the right one, or that hold it and say something else"
    )
    remedy = "compare by equality, not by `in` or startswith"
    counted = "parts of the answer, and longer answers, that are paid"
    moot_where = ("reward-pays-wrong-answers",)
