r"""A reward function pays for wrong answers.

## What it does
Puts wrong answers into the form that is paid for the right one: another number, another letter, the answer of
another row, a text that is none. It fires where one of them scores as high. Answers that differ in spelling alone
are not used. Of an answer in Python, a program that only calls `sys.exit(0)` is a wrong one too. It warns where texts
that are no answer get more than wrong answers, two fifths of the way to the right one.

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

from collections.abc import Iterator

from truetune.checks.base_of_rules_on_paid_completions import PaidCompletionRule
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.reward.cases_of_scored_completions import cases_of_tried, paid_of, rows_of
from truetune.generation.reward_trial import NO_ANSWER, TriedCompletion

# Published functions give up to a quarter where no number can be read, so that the form is learned first (Unsloth's
# notebooks: 1.5, -0.5 and 0). Chosen above it, not measured.
MIN_PAY_OF_NO_ANSWER = 0.4
"""Share of the way from a wrong answer to the right one"""


class RewardPaysWrongAnswers(PaidCompletionRule):
    code = "RWD002"
    fault = Fault.REWARD_PAID_FOR_WRONG_ANSWER
    severity = "error"
    symptoms = ("reward-rises-model-is-worse",)
    kinds = ("wrong",)
    what_it_pays_for = "wrong answers as for right ones"
    remedy = "compare the whole answer with the whole reference, both in one notation"
    counted = "wrong answers that are paid"

    def findings(self) -> Iterator[Finding]:
        """The finding on wrong answers that are paid, or else on programs that end early and texts that are none."""
        paid = list(super().findings())
        if paid:
            yield from paid
            return
        yield from self._finding_on_no_answer()
        yield from self._finding_on_early_exit()

    def _finding_on_early_exit(self) -> Iterator[Finding]:
        """The finding on programs that are paid although they end before the tests that are written after them."""
        tried_completions = self.subject.tried_of_kinds("early exit")
        paid = paid_of(tried_completions)
        if not paid:
            return
        yield self.finding(
            f"{self.subject.name} pays for programs that end before their tests run (sys.exit(0)) as for right ones, in"
            f" {rows_of(paid):,} of {rows_of(tried_completions):,} rows: the policy learns to write them",
            "print a random mark after the tests, and pay only where it is the last line of the output: an exit code"
            " of 0 does not say that the tests ran",
            severity=self.severity_of(paid, rows_of(paid) / rows_of(tried_completions)),
            cases=cases_of_tried(paid),
            count=rows_of(paid),
            total=rows_of(tried_completions),
        )

    def _finding_on_no_answer(self) -> Iterator[Finding]:
        """The finding that a text which is no answer at all gets clearly more than a wrong number."""
        tried_completions = self.subject.tried_of_kinds("wrong")
        without = [one for one in tried_completions if NO_ANSWER in one.completion]
        better = [one for one in without if self._gets_more_than_wrong_ones(one)]
        # In few rows, the wrong answers are odd, and not the function.
        if not better or 2 * rows_of(better) < rows_of(tried_completions):
            return
        yield self.finding(
            f"{self.subject.name} gives texts that are no answer more than wrong answers, in {rows_of(better):,} of"
            f" {rows_of(tried_completions):,} rows: a policy that is unsure is paid for writing something that can't"
            " be read",
            "give the lowest score where no answer can be read: look at what `except` and `if ... is None` give",
            severity="warning",
            cases=cases_of_tried(better),
            count=rows_of(better),
            total=rows_of(tried_completions),
        )

    def _gets_more_than_wrong_ones(self, one: TriedCompletion) -> bool:
        """Does a text that is no answer lie two fifths of the way from its row's wrong answers to the right one?"""
        others = [
            other.score
            for other in self.subject.tried_of_kinds("wrong")
            if other.row == one.row and NO_ANSWER not in other.completion
        ]
        known = [score for score in others if score is not None]
        if not known or one.score is None or one.right is None or one.right <= max(known):
            return False
        share = (one.score - max(known)) / (one.right - max(known))
        return share >= MIN_PAY_OF_NO_ANSWER
