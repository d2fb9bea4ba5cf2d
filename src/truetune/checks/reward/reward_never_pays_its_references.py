r"""A reward function pays for no form of the right answers.

## What it does
Fills some 30 forms (`\boxed{X}`, `<answer>X</answer>`, `#### X`, `The answer is X.`, tags that the function names) with
the right answers of a few rows and with wrong ones, and forms that the prompts show. It fires where no right answer
scores above a wrong one. Functions that take further columns, run code, or parse completions as JSON or XML, are not
judged without `--golden`; with it, it fires where the golden completions get no more than wrong ones. If all prompts
end with a mark (`<think>`), it also tries completions that continue from there: it fires where only those that begin
with the mark again are paid, also for functions that score the form alone. `truetune lint` finds some of these in the
source (`reward-is-never-given`).

## Why it is bad
No completion of the policy can be paid for its answer. All advantages are 0, and the loss is 0 as in a healthy run.

## Example
```yaml
reward: |
  import re

  def correct(completions, answer, **kwargs):
      found = [re.findall(r"#### (\d+)", text) for text in completions]
      return [1.0 if one and one[-1] == gold else 0.0 for one, gold in zip(found, answer)]
rows:
  - {prompt: "What is 5 + 7?", answer: "5 and 7 are 12.\n#### 12"}
  - {prompt: "What is 30 * 41?", answer: "It is 1230.\n#### 1230"}
```

## Use instead
```yaml
reward: |
  import re

  def correct(completions, answer, **kwargs):
      found = [re.findall(r"#### (\d+)", text) for text in completions]
      golds = [gold.split("#### ")[-1] for gold in answer]
      return [1.0 if one and one[-1] == gold else 0.0 for one, gold in zip(found, golds)]
rows:
  - {prompt: "What is 5 + 7?", answer: "5 and 7 are 12.\n#### 12"}
  - {prompt: "What is 30 * 41?", answer: "It is 1230.\n#### 1230"}
```

## Fix safety
There is no automatic fix.

## References
- huggingface/trl#2703
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.reward.cases_of_scored_completions import format_reward, quote_completion
from truetune.checks.rule import RewardRule
from truetune.generation.reward_trial import FormScores, RewardTrial, SpellingScores

MAX_SHOWN = 3
"""Exceptions that are shown"""


def _case_of_form(form: FormScores) -> Case:
    """A form, and what right and wrong answers in it get."""
    return Case(
        f"{form.name}: {quote_completion(form.example)} gets {format_reward(form.right)}, with a wrong answer"
        f" {format_reward(form.other)}"
    )


class RewardNeverPaysItsReferences(RewardRule):
    code = "RWD011"
    fault = Fault.RIGHT_ANSWERS_GET_NO_REWARD
    severity = "error"
    symptoms = ("reward-does-not-rise",)
    moot_where = (
        "reward-depends-on-other-completions",
        "reward-returns-no-scores",
        "reward-is-always-the-same",
    )

    def unmet(self) -> Unmet | None:
        """Unmet for a function that takes no reference, and where it may pay for what is no form of the reference."""
        trial = self.subject
        if not trial.was_scored:
            return Unmet("the function gave no score")
        if _is_mark_wanted_twice(trial):
            return None
        if not trial.reference_column or not trial.forms:
            return Unmet("it is about rewards for right answers, and the function takes none")
        if trial.is_reference_unread and trial.depends_on == "form":
            return Unmet(f"its code never reads {trial.reference_column}: it scores the form alone")
        if not trial.best_form and trial.may_pay_for_more:
            return Unmet("what the function pays for may be no form of the reference")
        return None

    def measurement_if_clean(self) -> Measurement:
        """How many of the forms that were tried are paid."""
        paid = sum(form.paid > 0 for form in self.subject.forms)
        return make_count_measurement(
            "forms of the right answer that are paid", paid, len(self.subject.forms)
        )

    def findings(self) -> Iterator[Finding]:
        """The finding that no form of any right answer is paid."""
        trial = self.subject
        if trial.after_opened_mark is not None and _is_mark_wanted_twice(trial):
            yield self._finding_on_opened_mark(trial.name, trial.after_opened_mark)
            return
        if self.unmet() is not None or trial.best_form:
            return
        evidence = [f"it catches {error} itself" for error in trial.swallowed[:MAX_SHOWN]]
        if all(form.right is None for form in trial.forms):
            evidence.append("it gives None for each: TRL leaves them out of its rewards")
        in_forms = f"in each of {len(trial.forms)} forms that were tried"
        remedy = (
            "take the result out of the reference as out of the completion, and compare both as one type; a form of"
            " your own is tried with --answer-form '<a>{}</a>', a column of whole completions with --golden"
        )
        if trial.has_golden_completions:
            in_forms = "where they are the whole completions that are to be paid"
            remedy = (
                "call the function on one of them, and follow where it is refused: often a pattern stops at a line end"
                " (re.DOTALL), or the reference is compared as another type"
            )
        yield self.finding(
            f"{trial.name} gives right answers no more than wrong ones, {in_forms}: `{trial.reference_column}` is never"
            " paid",
            remedy,
            evidence=evidence,
            cases=[_case_of_form(form) for form in trial.forms],
            count=len(trial.forms),
            total=len(trial.forms),
        )

    def _finding_on_opened_mark(self, name: str, tried: SpellingScores) -> Finding:
        """The finding that a mark is wanted in completions which the prompts hold already."""
        mark = tried.name
        return self.finding(
            f"{name} only pays completions that begin with {mark}, and all prompts already end with it: what the policy"
            " writes after them is never paid",
            f"make the mark optional in the pattern (^(?:{mark})?), or score {mark} together with the completion:"
            f' text = "{mark}" + text',
            cases=[
                Case(
                    f"row {tried.row}: {quote_completion(tried.example)} gets nothing, and with {mark} in front it is"
                    " paid"
                )
            ],
            count=tried.rows - tried.paid,
            total=tried.rows,
        )


def _is_mark_wanted_twice(trial: RewardTrial) -> bool:
    """Is no completion paid that continues after the mark with which the prompts end, where others are?"""
    return trial.after_opened_mark is not None and not trial.after_opened_mark.paid
