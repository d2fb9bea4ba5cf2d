"""Fewer answers stop by themselves than earlier in the run.

## What it does

Counts the answers that end with a stop token, among prompts whose reference fits within the limit of new tokens, at
each look. It fires where the last look has fewer of them than the best one before, and chance makes such a change in
less than 1 of 40 runs (from all to 3 of 8, or at the fifth look to 2 of 8); an error where of 8 or more answers none
stops any more and the probability of a stop token behind the reference has fallen below 0.001.

## Why it is bad

The model could stop and is being taught not to. That is what training on labels without stop tokens does: the content
is learned and its end is not, so what follows the end is anything.

## Example

```yaml
looks:
  - {step: 0, stopped: 7, stop_probability: 0.6}
  - {step: 100, stopped: 1, stop_probability: 0.0004}
```

## Use instead

```yaml
looks:
  - {step: 0, stopped: 7, stop_probability: 0.6}
  - {step: 100, stopped: 8, stop_probability: 0.97}
```

## Fix safety

There is no automatic fix. Look at the labels of the first batches (`truetune run -- COMMAND`): the stop token of
each answer must be supervised, and the pad token must not be it.

## References

- mlabonne/llm-course#33, huggingface/peft#1672; Fisher 1922, doi:10.2307/2340521
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.answers.answers_never_stop import NEVER
from truetune.checks.answers.bad_answers import (
    BadAnswers,
    all_of,
    cases,
    counted,
    ends_unknown,
    runs_on,
    stop_probability,
)
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import AnswersRule
from truetune.checks.unmet_reasons import ONE_PASS


class StopRateFalls(AnswersRule):
    code = "ANS002"
    severity = "error"
    since = "0.1.0"

    def unmet(self) -> Unmet | None:
        if unmet := super().unmet() or ends_unknown(self.subject):
            return unmet
        found = self._counted()
        if found is None:
            return Unmet(
                f"no reference fits within {self.subject.limit} tokens", "raise --max-new-tokens"
            )
        return None if len(found.counts) > 1 else ONE_PASS

    def figure(self) -> str:
        found = self._counted()
        assert found is not None
        by_step = ", ".join(
            f"{count.of - count.bad} of {count.of} at step {count.step:,}"
            for count in found.counts[-4:]
        )
        return f"answers that stop by themselves: {by_step}"

    def _counted(self) -> BadAnswers | None:
        return counted(self.subject, lambda sample: runs_on(self.subject, sample))

    def findings(self) -> Iterator[Finding]:
        watched = self.subject
        found = self._counted()
        if found is None or found.best is None:
            return
        probabilities = [
            (look.step, p) for look in watched.looks if (p := stop_probability(look)) is not None
        ]
        lost = bool(probabilities) and probabilities[-1][1] < NEVER and all_of(found)
        line = ", ".join(f"{step:,}: {p:.2g}" for step, p in probabilities[-12:])
        yield self.finding(
            f"{found.last} answers do not stop by themselves{found.before}",
            "supervise the stop token of each answer, and pad with another (truetune run -- COMMAND"
            " shows labels)",
            severity="error" if lost else "warning",
            evidence=[
                *([f"P(stop) behind the reference by step (median): {line}"] if line else []),
                *found.evidence,
            ],
            cases=cases(found.samples),
            count=found.last.bad,
            total=found.last.of,
            figure=found.figure("answers that do not stop"),
        )
