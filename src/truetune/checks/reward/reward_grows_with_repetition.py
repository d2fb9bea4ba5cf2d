r"""A reward function gives more, the more often the answer is repeated.

## What it does
Scores the right answer 20 times in one completion, beside one that gives it once. It fires where the repeated one
gets more. For a function that takes no reference, as one that counts steps, it is a note if the reward is capped. It is
a warning if 20 repetitions add as much to 10 as these to one, or if a text that says one sentence again and again gets
more than one of different sentences: a penalty with the wrong sign.

## Why it is bad
The policy repeats itself up to the limit of its length.

## Example
```yaml
reward: |
  def mentions(completions, answer, **kwargs):
      return [float(text.split().count(gold)) for text, gold in zip(completions, answer)]
rows:
  - {prompt: "What is 5 + 7?", answer: "12"}
  - {prompt: "What is 30 * 41?", answer: "1230"}
```

## Use instead
```yaml
reward: |
  def mentions(completions, answer, **kwargs):
      return [float(text.split() == [gold]) for text, gold in zip(completions, answer)]
rows:
  - {prompt: "What is 5 + 7?", answer: "12"}
  - {prompt: "What is 30 * 41?", answer: "1230"}
```

## Fix safety
There is no automatic fix.

## References
- https://arxiv.org/abs/2501.12599
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.reward.cases_of_scored_completions import (
    cases_of_tried,
    format_reward,
    rows_of,
)
from truetune.checks.rule import RewardRule
from truetune.generation.reward_trial import RepetitionScores, TriedCompletion, is_above


class RewardGrowsWithRepetition(RewardRule):
    code = "RWD010"
    fault = Fault.REWARD_PAID_FOR_WRONG_ANSWER
    severity = "error"
    symptoms = ("reward-rises-model-is-worse",)

    def unmet(self) -> Unmet | None:
        """Unmet where nothing was repeated."""
        unmet = super().unmet()
        return unmet or (None if self._repeated() else Unmet("no completion was repeated"))

    def measurement_if_clean(self) -> Measurement:
        """How many repeated completions get more than a single one."""
        count = len(self._repeated())
        return make_count_measurement(
            "repeated completions that get more than single ones", 0, count
        )

    def findings(self) -> Iterator[Finding]:
        """The finding on completions that are paid more where they are repeated."""
        more = [one for one in self._repeated() if is_above(one.score, one.right)]
        repetition = self.subject.repetition
        if repetition is not None and repetition.is_repetition_paid:
            yield self._finding_on_paid_repetition(repetition)
            return
        if not more:
            return
        # For a function of the form alone, as one that counts steps, a capped reward may be what is wanted.
        is_of_answers = self.subject.depends_on == "answer"
        is_unbounded = repetition is not None and repetition.grows_without_bound
        yield self.finding(
            f"{self.subject.name} gives more for a completion that is repeated, in {rows_of(more):,} of"
            f" {rows_of(self._repeated()):,} rows",
            "count a match once, or give 1 where there is one"
            if not is_unbounded
            else "cap it, as with min(count, 1), or count a match once: the policy writes as much as it can",
            severity="error" if is_of_answers else "warning" if is_unbounded else "info",
            cases=cases_of_tried(more),
            count=rows_of(more),
            total=rows_of(self._repeated()),
        )

    def _finding_on_paid_repetition(self, repetition: RepetitionScores) -> Finding:
        """The finding that texts which repeat one sentence get more than one that repeats none."""
        highest = max(one for one in repetition.same if one is not None)
        return self.finding(
            f"{self.subject.name} gives {format_reward(repetition.different)} for a text of different sentences, and up"
            f" to {format_reward(highest)} for texts as long that say one of them again and again: it pays for"
            " repetition",
            "turn its sign: a penalty on repetition is 0 where nothing repeats, and negative where something does",
            severity="warning",
            count=1,
            total=1,
        )

    def _repeated(self) -> tuple[TriedCompletion, ...]:
        """The repeated completions."""
        return self.subject.tried_of_kinds("repeated")
