r"""A reward function gives a completion another score among others.

## What it does
Scores the same completions in seven other orders, their columns with them, and each alone. Another score in another
order is an error: the function reads the first of the batch, or returns scores in another order. Another score
alone is a note: scores relative to the batch may be meant.

## Why it is bad
`answer[0]` is the right answer of the first prompt of the batch alone. The others are judged by a wrong one, and
are paid at random.

## Example
```yaml
reward: |
  def correct(completions, answer, **kwargs):
      return [1.0 if text.strip() == answer[0] else 0.0 for text in completions]
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
There is no automatic fix.

## References
- https://huggingface.co/docs/trl/grpo_trainer (custom reward functions)
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.reward.cases_of_scored_completions import cases_of_changes
from truetune.checks.rule import RewardRule


class RewardDependsOnOtherCompletions(RewardRule):
    code = "RWD021"
    fault = Fault.REWARD_NOT_REPEATABLE
    severity = "error"
    symptoms = ("reward-does-not-rise",)

    def unmet(self) -> Unmet | None:
        """Unmet where no completion was scored a second time, or scores change by themselves."""
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if any(
            one.how in ("again", "in a new process", "after another row")
            for one in self.subject.changed
        ):
            return Unmet("scores change by themselves, which reward-changes-between-calls is about")
        return None if self.subject.compared else Unmet("no completion was scored a second time")

    def measurement_if_clean(self) -> Measurement:
        """How many completions score otherwise among others."""
        what = "completions that score otherwise in another order, or alone"
        return make_count_measurement(what, 0, self.subject.compared)

    def findings(self) -> Iterator[Finding]:
        """The finding on scores that hang on the other completions of the call."""
        moved = [one for one in self.subject.changed if one.how == "in another order"]
        alone = [one for one in self.subject.changed if one.how == "alone"]
        if moved:
            yield self.finding(
                f"{self.subject.name} gives {len(moved)} of {self.subject.compared} completions another score in"
                " another order",
                "score each completion with its own columns, zip(completions, answer), and return the scores in"
                " their order",
                cases=cases_of_changes(moved),
                count=len(moved),
                total=self.subject.compared,
            )
        elif alone:
            yield self.finding(
                f"{self.subject.name} gives {len(alone)} of {self.subject.compared} completions another score"
                " alone than among"
                " others: scores are relative to the batch",
                "nothing, where that is meant; a batch of TRL has several prompts, and each process has its own",
                severity="info",
                cases=cases_of_changes(alone),
                count=len(alone),
                total=self.subject.compared,
            )
