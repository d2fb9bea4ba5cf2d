r"""A reward function reads the first answer of a completion, whatever its last one is.

## What it does
Scores completions that give the right answer first and a wrong one last: in `<think>` and after it, and with `No, that
is wrong.` between them. It fires where they score as high as the right answer. It is an error where right answers in
prose with other numbers before them (`There are 3 of 17 left. The answer is 12.`) get nothing, and else a note: a first
match of a box or a tag may be meant.

## Why it is bad
A model that reasons writes numbers before its answer. A function that reads the first one gives right answers nothing,
and pays for guesses, whatever the model answers in the end.

## Example
```yaml
reward: |
  import re

  def correct(completions, answer, **kwargs):
      found = [re.search(r"-?\d+", text) for text in completions]
      return [1.0 if one and one[0] == gold else 0.0 for one, gold in zip(found, answer)]
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
There is no automatic fix.

## References
- antirez/ds4#319
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from truetune.checks.base_of_rules_on_paid_completions import PaidCompletionRule
from truetune.checks.faults import Fault
from truetune.checks.reward.cases_of_scored_completions import quote_completion
from truetune.generation.reward_trial import TriedCompletion
from truetune.settings.run_spec import Severity


class RewardReadsTheFirstAnswer(PaidCompletionRule):
    code = "RWD006"
    fault = Fault.REWARD_PAID_FOR_WRONG_ANSWER
    severity = "error"
    kinds = ("thoughts", "taken back")
    what_it_pays_for = "completions that give the right answer first and a wrong one last"
    remedy = "read the last answer, after the thoughts: text.rpartition('</think>')[2]"
    counted = "completions with a wrong last answer that are paid"
    moot_where = (
        "reward-pays-wrong-answers",
        "reward-pays-parts-of-the-answer",
        "reward-pays-every-candidate",
    )

    def severity_of(self, paid: Sequence[TriedCompletion], share: float) -> Severity:
        """An error where right answers after other numbers get nothing."""
        return "error" if self._refuses_answers_after_others() else "info"

    def evidence(self) -> Iterator[str]:
        """That right answers after other numbers get nothing, where they do."""
        after = self.subject.after_others
        if after is not None and self._refuses_answers_after_others():
            yield (
                f"right answers after other numbers are paid in {after.paid} of {after.rows} rows:"
                f" {quote_completion(after.example)} (row {after.row}) is not"
            )

    def _refuses_answers_after_others(self) -> bool:
        """Do most right answers get nothing where other numbers come before them?"""
        after = self.subject.after_others
        return after is not None and 2 * after.paid < after.rows
