r"""A reward function pays for thoughts on one line, and gives nothing for the same thoughts over two lines.

## What it does
Scores completions in the forms that the function pays for, with thoughts in them, such as
`<think>...</think><answer>X</answer>`. The same words are scored once with a space and once with a line end between two
sentences of the thoughts. It fires where no form is paid with the line end. Functions that pay for no form with
thoughts are not judged.

## Why it is bad
Models think over many lines, and prompts mostly show the tags on lines of their own. In a regular expression `.`
matches no line end unless `re.DOTALL` is set, so the reward is 0 for nearly all completions: nothing is learned from
it, or the policy learns to answer on one line.

## Example
```yaml
reward: |
  import re

  FORM = re.compile(r"^\s*<think>.*?</think>\s*<answer>.*?</answer>\s*$")

  def has_form(completions, **kwargs):
      return [1.0 if FORM.match(text) else 0.0 for text in completions]
rows:
  - {prompt: "What is 5 + 7?", answer: "12"}
  - {prompt: "What is 30 * 41?", answer: "1230"}
```

## Use instead
```yaml
reward: |
  import re

  FORM = re.compile(r"^\s*<think>.*?</think>\s*<answer>.*?</answer>\s*$", re.DOTALL)

  def has_form(completions, **kwargs):
      return [1.0 if FORM.match(text) else 0.0 for text in completions]
rows:
  - {prompt: "What is 5 + 7?", answer: "12"}
  - {prompt: "What is 30 * 41?", answer: "1230"}
```

## Fix safety
There is no automatic fix: with `re.DOTALL` a greedy `.*` matches across several answers, so check that the pattern uses
`.*?`.

## References
- Python documentation, "re": `re.DOTALL`
- huggingface/open-r1#239
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.reward.cases_of_scored_completions import quote_completion
from truetune.checks.rule import RewardRule


class RewardStopsAtLineEnds(RewardRule):
    code = "RWD025"
    fault = Fault.RIGHT_ANSWERS_GET_NO_REWARD
    severity = "warning"
    symptoms = ("loss-does-not-fall", "nothing-is-learned")
    moot_where = ("reward-depends-on-other-completions", "reward-returns-no-scores")

    def unmet(self) -> Unmet | None:
        """Unmet where no form with thoughts on one line is paid."""
        if self.subject.thoughts_over_lines is None:
            return Unmet("the function pays for no form that was tried with thoughts on one line")
        return None

    def measurement_if_clean(self) -> Measurement:
        """How many completions with thoughts over two lines are paid."""
        tried = self.subject.thoughts_over_lines
        assert tried is not None, "else the rule is not judged"
        return make_count_measurement(
            "completions with thoughts over two lines that are paid", tried.paid, tried.rows
        )

    def findings(self) -> Iterator[Finding]:
        """The finding that no completion with thoughts over two lines is paid."""
        trial = self.subject
        tried = trial.thoughts_over_lines
        if tried is None or tried.paid:
            return
        yield self.finding(
            f"{trial.name} pays for completions with their thoughts on one line, and for none with the same"
            " thoughts over two lines: it stops at a line end",
            "pass re.DOTALL to the pattern (`.` matches no line end without it), and read the whole completion instead"
            " of one line",
            cases=[
                Case(
                    f"row {tried.row}, {tried.name}: {quote_completion(tried.example)} is not paid"
                )
            ],
            count=tried.rows - tried.paid,
            total=tried.rows,
        )
