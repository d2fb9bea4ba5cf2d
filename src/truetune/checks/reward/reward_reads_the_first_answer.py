r"""A reward function reads the first answer of a completion, whatever its last one is.

## What it does
Scores completions that give the right answer first and a wrong one last: in `<think>` and after it, and with `No, that
is wrong.` between them. It fires where they score as high as the right answer. It is an error where right answers in
prose with other numbers before them (`There are 3 of 17 left. The answer is 12.`) get nothing. It is a warning where
the answer in thoughts counts, and a right last answer after a wrong one in the same form gets nothing. It is a note for
blocks of code, and for tags such as `<answer>`: a prompt asks for one of them, and a policy gains nothing by a second.

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

import re
from collections.abc import Iterator, Sequence

from truetune.checks.base_of_rules_on_paid_completions import PaidCompletionRule
from truetune.checks.faults import Fault
from truetune.checks.reward.cases_of_scored_completions import quote_completion
from truetune.generation.reward_trial import RewardTrial, SpellingScores, TriedCompletion
from truetune.settings.run_spec import Severity

TAGS_AT_END = re.compile(r"<(\w{1,40})>[^<>]*</\1>\s*$")


class RewardReadsTheFirstAnswer(PaidCompletionRule):
    code = "RWD006"
    fault = Fault.REWARD_PAID_FOR_WRONG_ANSWER
    severity = "error"
    symptoms = ("reward-rises-model-is-worse",)
    kinds = ("thoughts", "taken back")
    what_it_pays_for = "completions that give the right answer first and a wrong one last"
    remedy = "read the last answer, after the thoughts: text.rpartition('</think>')[2]"
    counted = "completions with a wrong last answer that are paid"
    moot_where = (
        "reward-pays-wrong-answers",
        "reward-pays-parts-of-the-answer",
        "reward-pays-every-candidate",
        "reward-ignores-word-order",
    )

    def severity_of(self, paid: Sequence[TriedCompletion], share: float) -> Severity:
        """An error where right answers after other numbers get nothing, a warning where those after wrong ones do."""
        if _are_refused(self.subject.after_others):
            return "error"
        if _is_first_block_of_code(self.subject) or not _are_refused(self.subject.after_wrong_ones):
            return "info"
        # The first tag is what most functions read, and a completion has one. Boxes and marks stand at steps, too.
        if _is_in_tags(self.subject.after_wrong_ones):
            return "info"
        # A first match behind the thoughts may be meant: there is one answer as a rule.
        return "warning" if any(one.kind == "thoughts" for one in paid) else "info"

    def evidence(self) -> Iterator[str]:
        """Which right answers get nothing, where some do."""
        for what, after in (
            ("other numbers", self.subject.after_others),
            ("a wrong one that is taken back", self.subject.after_wrong_ones),
        ):
            if after is not None and _are_refused(after):
                yield (
                    f"right answers after {what} are paid in {after.paid} of {after.rows} rows:"
                    f" {quote_completion(after.example)} (row {after.row}) is not"
                )


def _is_first_block_of_code(trial: RewardTrial) -> bool:
    """Does it read a block of code? Examples of its use often follow the first one."""
    return "```" in trial.best_form


def _is_in_tags(after: SpellingScores | None) -> bool:
    """Is the answer that is read inside of a pair of tags: `<answer>12</answer>`?"""
    return after is not None and TAGS_AT_END.search(after.example) is not None


def _are_refused(after: SpellingScores | None) -> bool:
    """Do most of such right answers get nothing?"""
    return after is not None and 2 * after.paid < after.rows
