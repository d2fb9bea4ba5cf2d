r"""A reward function pays for the right words in any order.

## What it does
Scores references of four words and more with their words in reverse order, and those of eight and more with their words
by the alphabet, among 20 other words. It fires where they score as high. It is a warning where the other words change
nothing, and else a note: overlap of words is often meant so.

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

from collections.abc import Iterator, Sequence

from truetune.checks.base_of_rules_on_paid_completions import PaidCompletionRule
from truetune.checks.faults import Fault
from truetune.checks.reward.cases_of_scored_completions import paid_of, rows_of
from truetune.generation.reward_trial import TriedCompletion
from truetune.settings.run_spec import Severity


class RewardIgnoresWordOrder(PaidCompletionRule):
    code = "RWD009"
    fault = Fault.REWARD_PAID_FOR_WRONG_ANSWER
    severity = "warning"
    symptoms = ("reward-rises-model-is-worse",)
    kinds = ("reversed words", "bag of words")
    what_it_pays_for = "the words of the right answer in any order"
    remedy = (
        "add a score that sees the order (ROUGE-L, BLEU) where sentences are wanted, and divide by the words of the"
        " longer text"
    )
    counted = "right answers in another order that are paid"

    def severity_of(self, paid: Sequence[TriedCompletion], share: float) -> Severity:
        """A warning where other words among them change nothing."""
        return "warning" if self._rows_paid_among_others() else "info"

    def evidence(self) -> Iterator[str]:
        """That other words change nothing, where it is so."""
        rows = self._rows_paid_among_others()
        if rows:
            yield f"in {rows:,} rows 20 other words among them change nothing: a list of many words is paid"

    def _rows_paid_among_others(self) -> int:
        """Rows whose words are paid among other words."""
        return rows_of(paid_of(self.subject.tried_of_kinds("bag of words")))
