r"""A reward function can't read some of its references.

## What it does
Scores the right answer of each row, and wrong ones, in the form that is paid best. It fires where some rows' right
answer gets no more than a wrong one: decimals, negative numbers, thousands separators, fractions that a pattern
does not read. An error from a tenth of the rows on, and where wrong or empty answers of such rows are paid. Rows
for which the function gives None are left out.

## Why it is bad
These rows teach nothing. Where what can't be read is paid, they teach what is wrong: each completion of them gets
the reward.

## Example
```yaml
reward: |
  import re

  def correct(completions, answer, **kwargs):
      found = [re.findall(r"\d+", text) for text in completions]
      return [1.0 if one and one[-1] == gold else 0.0 for one, gold in zip(found, answer)]
rows:
  - {prompt: "What is 5 + 7?", answer: "12"}
  - {prompt: "What is 30 * 41?", answer: "1230"}
  - {prompt: "What is half of 17?", answer: "8.5"}
```

## Use instead
```yaml
reward: |
  import re

  def correct(completions, answer, **kwargs):
      found = [re.findall(r"-?\d+(?:\.\d+)?", text) for text in completions]
      return [1.0 if one and one[-1] == gold else 0.0 for one, gold in zip(found, answer)]
rows:
  - {prompt: "What is 5 + 7?", answer: "12"}
  - {prompt: "What is 30 * 41?", answer: "1230"}
  - {prompt: "What is half of 17?", answer: "8.5"}
```

## Fix safety
There is no automatic fix.

## References
- huggingface/open-r1#86
- open-compass/opencompass#2648
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from truetune.checks.base_of_rules_on_paid_completions import MIN_ERROR_SHARE
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.reward.cases_of_scored_completions import format_reward, quote_completion
from truetune.checks.rule import RewardRule
from truetune.generation.reward_trial import UnpaidReference, is_above


def _pays_for_wrong_answers(one: UnpaidReference, usual_wrong: float | None) -> bool:
    """Does a wrong or an empty answer of a row get more than wrong ones do in the rows that are paid?"""
    return is_above(one.wrong, usual_wrong) or is_above(one.empty, usual_wrong)


def _length(one: UnpaidReference) -> int:
    """The length of the completion."""
    return len(one.completion)


def _case_of_reference(one: UnpaidReference) -> Case:
    """A right answer that is not paid."""
    return Case(
        f"row {one.row}: {quote_completion(one.completion)} gets {format_reward(one.score)}, a wrong answer"
        f" {format_reward(one.wrong)}, an empty one {format_reward(one.empty)}; the reference is"
        f" {quote_completion(one.reference)}"
    )


class RewardMissesSomeReferences(RewardRule):
    code = "RWD012"
    fault = Fault.RIGHT_ANSWERS_GET_NO_REWARD
    severity = "warning"
    symptoms = ("reward-does-not-rise", "reward-rises-model-is-worse")
    of_paid_answers = True
    moot_where = (
        "reward-depends-on-other-completions",
        "reward-changes-between-calls",
    )

    def measurement_if_clean(self) -> Measurement:
        """How many right answers are not paid."""
        return make_count_measurement("right answers that are not paid", 0, self.subject.right_rows)

    def _finding_on_rows_that_pay_all(self, paying: Sequence[UnpaidReference]) -> Finding:
        """The finding on rows in which wrong or empty answers get as much as right ones, and more than elsewhere."""
        trial = self.subject
        return self.finding(
            f"{trial.name} pays wrong or empty answers as much as right ones in {len(paying):,} of"
            f" {trial.right_rows:,} rows, in the form {trial.best_form}: so does a function that"
            " can't read a reference",
            "let it read these references as it reads the others, and give 0 or None, never the full reward, where a"
            " reference can't be read",
            severity="error",
            cases=[_case_of_reference(one) for one in sorted(paying, key=_length)],
            count=len(paying),
            total=trial.right_rows,
        )

    def findings(self) -> Iterator[Finding]:
        """The finding on rows whose right answer gets no more than a wrong one."""
        trial = self.subject
        missed = [one for one in trial.unpaid if _is_missed(one)]
        if not missed or not trial.best_form:
            return
        paying = [one for one in missed if _pays_for_wrong_answers(one, trial.usual_wrong)]
        if len(paying) == len(missed):
            yield self._finding_on_rows_that_pay_all(paying)
            return
        is_grave = bool(paying) or len(missed) >= MIN_ERROR_SHARE * trial.right_rows
        evidence = (
            [f"in {len(paying):,} of these rows wrong or empty answers are paid"] if paying else []
        )
        yield self.finding(
            f"{trial.name} gives the right answers of {len(missed):,} of {trial.right_rows:,} rows no more than"
            " wrong ones, in"
            f" the form {trial.best_form}",
            "let it read these references as it reads the others",
            severity="error" if is_grave else "warning",
            evidence=evidence,
            cases=[_case_of_reference(one) for one in sorted(missed, key=_length)],
            count=len(missed),
            total=trial.right_rows,
        )


def _is_missed(reference: UnpaidReference) -> bool:
    """Is a right answer not paid, of a row that the function scores, and in no other of its spellings either?"""
    # None is how functions of TRL say that a row is not theirs.
    is_scored = reference.score is not None or reference.wrong is not None
    return is_scored and not reference.is_one_of_several_paid
