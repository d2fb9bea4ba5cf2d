r"""A reward function gives the same completion another score the second time.

## What it does
Scores the same completions twice in one process, then once in a new one whose sets of texts have another order. There,
completions come first for another row. It fires where a score changes: chance, a counter, a memory of earlier
completions, one that is kept by the completion alone or by the prompt alone, the order of a set.

## Why it is bad
Two equal completions of a group get different advantages, and the policy learns the difference. With several
processes each has its own state.

## Example
```yaml
reward: |
  from itertools import count

  CALLS = count()

  def correct(completions, answer, **kwargs):
      weight = 0.9 ** next(CALLS)
      return [weight if text == gold else 0.0 for text, gold in zip(completions, answer)]
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
from truetune.generation.reward_trial import Comparison

HOW: dict[Comparison, str] = {
    "again": "in a second call with the same completions",
    "in a new process": "in a new process",
    "after another row": "where another row had the same completion before",
}
"""How the second score was got"""


class RewardChangesBetweenCalls(RewardRule):
    code = "RWD020"
    fault = Fault.REWARD_NOT_REPEATABLE
    severity = "error"
    symptoms = ("reward-does-not-rise",)

    def unmet(self) -> Unmet | None:
        """Unmet where no completion was scored a second time."""
        unmet = super().unmet()
        if unmet is None and not self.subject.compared:
            return Unmet("no completion was scored a second time")
        return unmet

    def measurement_if_clean(self) -> Measurement:
        """How many completions score otherwise the second time."""
        return make_count_measurement(
            "completions that score otherwise a second time", 0, self.subject.compared
        )

    def findings(self) -> Iterator[Finding]:
        """The finding on scores that change by themselves."""
        changed = [one for one in self.subject.changed if one.how in HOW]
        if not changed:
            return
        how = changed[0].how
        evidence = []
        if how == "in a new process":
            evidence.append(
                "the order of a set of texts changes with the process; sorted(...) does not"
            )
        if how == "after another row":
            evidence.append(
                "a score that is kept for later calls has to be kept by completion and reference"
            )
        yield self.finding(
            f"{self.subject.name} gives {len(changed)} of {self.subject.compared} completions another score"
            f" {HOW[how]}",
            "keep nothing between calls, and leave chance out (random, time, the order of sets)",
            evidence=evidence,
            cases=cases_of_changes(changed),
            count=len(changed),
            total=self.subject.compared,
        )
