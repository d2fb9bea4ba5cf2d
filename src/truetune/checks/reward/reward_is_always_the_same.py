r"""A reward function gives the same score for all completions.

## What it does
Scores right, wrong and empty answers in some 30 forms, long and odd texts. It fires where all get the same score
above 0, or None. A function that gives 0 or less throughout may wait for a form that was not tried, and is not judged;
unless completions are lists of messages, and it tells the same completions apart as texts. Then it takes the list for a
text: `len(completion)` is 1, and `"42" in completion` is false.

## Why it is bad
All advantages are 0: nothing is learned.

## Example
```yaml
reward: |
  def correct(completions, answer, **kwargs):
      return [1.0 for text in completions]
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
- huggingface/trl#6533
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.reward.cases_of_scored_completions import format_reward
from truetune.checks.rule import RewardRule


class RewardIsAlwaysTheSame(RewardRule):
    code = "RWD015"
    fault = Fault.COMPLETIONS_GET_EQUAL_REWARDS
    severity = "error"
    symptoms = ("reward-does-not-rise", "reward-rises-model-is-worse")

    def unmet(self) -> Unmet | None:
        """Unmet where the function gives nothing above 0, which may be the fault of what was tried."""
        unmet = super().unmet()
        trial = self.subject
        if unmet is None and trial.different_scores < 2 and not trial.reads_messages_as_texts:
            return Unmet(
                "all that was tried gets 0 or less: what the function pays for was not found"
            )
        return unmet

    def measurement_if_clean(self) -> str:
        """How many different scores there are."""
        trial = self.subject
        return f"{trial.different_scores:,} different scores of {trial.completions:,} completions"

    def findings(self) -> Iterator[Finding]:
        """The finding that all completions get one score: above 0, None, or any where messages are read as texts."""
        trial = self.subject
        if trial.different_scores != 1 or not trial.was_scored:
            return
        as_texts = trial.reads_messages_as_texts
        # A function that gives 0 throughout may pay for something that was not tried.
        if trial.constant is not None and trial.constant <= 0 and not as_texts:
            return
        evidence = ["TRL leaves rewards out that are None"] if trial.constant is None else []
        remedy = "let the score depend on the completion"
        if as_texts:
            evidence.append(
                f"as texts completions get {trial.different_scores_as_texts} different scores; with these rows each one"
                " is a list of one message"
            )
            remedy = "read the text of the message: completion[0]['content']"
        yield self.finding(
            f"{trial.name} gives {format_reward(trial.constant)} for each of {trial.completions:,} completions:"
            " right, wrong"
            " and empty ones",
            remedy,
            evidence=evidence,
        )
