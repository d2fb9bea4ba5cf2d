r"""A reward function pays for the right words in any order.

## What it does
Scores references of four words and more with their words in reverse order. It fires where they score as high. It is
a note: overlap of words is often meant so.

## Why it is bad
A bag of words is no sentence. A policy that is paid for words alone may stop writing sentences.

## Example
```yaml
reward: |
  def overlap(completions, answer, **kwargs):
      scores = []
      for text, gold in zip(completions, answer):
          said, wanted = set(text.lower().split()), set(gold.lower().split())
          scores.append(2 * len(said & wanted) / (len(said) + len(wanted)))
      return scores
rows:
  - {prompt: "When is it open?", answer: "The lighthouse is open from nine to five on weekdays."}
  - {prompt: "When is the refund here?", answer: "Refunds take up to ten working days to arrive."}
```

## Use instead
```yaml
reward: |
  def overlap(completions, answer, **kwargs):
      scores = []
      for text, gold in zip(completions, answer):
          said, wanted = text.lower().split(), gold.lower().split()
          pairs, wanted_pairs = set(zip(said, said[1:])), set(zip(wanted, wanted[1:]))
          scores.append(2 * len(pairs & wanted_pairs) / max(1, len(pairs) + len(wanted_pairs)))
      return scores
rows:
  - {prompt: "When is it open?", answer: "The lighthouse is open from nine to five on weekdays."}
  - {prompt: "When is the refund here?", answer: "Refunds take up to ten working days to arrive."}
```

## Fix safety
There is no automatic fix.

## References
- https://aclanthology.org/W04-1013 (ROUGE)
"""

from __future__ import annotations

from truetune.checks.base_of_rules_on_paid_completions import PaidCompletionRule
from truetune.checks.faults import Fault


class RewardIgnoresWordOrder(PaidCompletionRule):
    code = "RWD009"
    fault = Fault.REWARD_PAID_FOR_WRONG_ANSWER
    severity = "info"
    kinds = ("reversed words",)
    what_it_pays_for = "the words of the right answer in any order"
    remedy = "add a score that sees the order (ROUGE-L, BLEU) where sentences are wanted"
    counted = "right answers in reverse order that are paid"
