"""Answers end in the same words over and over.

## What it does

Counts the answers that end in a loop: the same words again and again. It fires where there are more than at the best
look before, unless chance makes such a change, and, in the second half of a run, where surely more than 1 of 10 loops;
an error where at the end of a run all of 8 or more do.

## Why it is bad

A looping answer is useless and never stops. Loops rise when a model is trained too hard (a learning rate too high,
too many epochs), or when its stop token is not learned.

## Example

```yaml
looks:
  - {step: 0, looped: 0}
  - {step: 100, looped: 6}
```

## Use instead

```yaml
looks:
  - {step: 0, looped: 1}
  - {step: 100, looped: 1}
```

## Fix safety

There is no automatic fix: a lower learning rate or fewer epochs; where the answers do not stop either, see
`answers-never-stop`.

## References

- unslothai/unsloth#1275, shibing624/MedicalGPT#157
- Holtzman et al. 2020, The Curious Case of Neural Text Degeneration, arXiv 1904.09751
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.answers.seen import all_of, cases, seen
from truetune.checks.findings import Finding
from truetune.checks.rule import AnswersRule

TOLERATED = 0.1


class AnswersLoop(AnswersRule):
    code = "TT083"
    severity = "error"

    def findings(self) -> Iterator[Finding]:
        found = seen(self.subject, lambda sample: sample.scores.looped, TOLERATED)
        if found is not None:
            yield self.finding(
                f"{found.last} answers end in a loop{found.before}",
                "train with a lower learning rate or fewer epochs, and see that the stop token is supervised",
                severity="error" if self.subject.finished and all_of(found) else "warning",
                evidence=found.evidence,
                cases=cases(found.samples),
                count=found.last.bad,
                total=found.last.of,
                figure=found.figure("answers that loop"),
            )
