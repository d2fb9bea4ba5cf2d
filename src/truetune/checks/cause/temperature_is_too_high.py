"""The answers were drawn at a temperature at which nothing but noise comes out; greedily the model answers as text.

## What it does

Asks some of the same prompts once more, greedily, where the answers were drawn. It fires where at least half of the
drawn answers are garbage, and at most a quarter of at least 3 greedy ones are.

## Why it is bad

A temperature divides the logits: at 2 and above, unlikely tokens together outweigh the likely ones, however good the
model is. Nothing is wrong with its weights, its tokenizer or its training, and none of them has to be changed.

## Example

```yaml
look: {garbage: 8, stopped: 0}
temperature: 5.0
cooler: {garbage: 0, stopped: 8}
```

## Use instead

```yaml
look: {garbage: 0, stopped: 8}
temperature: 0.7
cooler: {garbage: 0, stopped: 8}
```

## Fix safety

Safe: it changes how answers are drawn, and no weight. 0 is greedy; 0.2 to 1.0 is usual.

## References

- Holtzman et al. 2020, arXiv:1904.09751, on the tail of the distribution
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.answers.bad_answers import Count, cases
from truetune.checks.cause.symptoms import MANY
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CauseRule
from truetune.generation.answer_samples import Sample, SampledRun

FEW = 0.25
"""Share of the greedy answers that may be garbage all the same"""
LEAST = 3
"""Greedy answers"""


class TemperatureIsTooHigh(CauseRule):
    code = "CAU001"
    severity = "error"
    spoils = "temperature"

    def unmet(self) -> Unmet | None:
        if not self.subject.temperature:
            return Unmet("it is about answers that were drawn, and these are greedy")
        if self.subject.cooler is None or not self.subject.cooler.looks:
            return Unmet("the prompts were not asked greedily")
        count = len(self.subject.cooler.looks[-1].samples)
        return (
            None
            if count >= LEAST
            else Unmet(f"{count} prompts were asked greedily, and it takes {LEAST}", "-n 3")
        )

    def figure(self) -> str:
        assert self.subject.cooler is not None
        drawn, greedy = _garbage(self.subject.watched), _garbage(self.subject.cooler)
        return (
            f"{drawn} answers at temperature {self.subject.temperature:g} are garbage, and {greedy}"
            " greedy ones"
        )

    def findings(self) -> Iterator[Finding]:
        found = self.subject
        if not found.temperature or found.cooler is None:
            return
        drawn, greedy = _garbage(found.watched), _garbage(found.cooler)
        if not drawn.of or greedy.of < LEAST or drawn.share < MANY or greedy.share > FEW:
            return
        yield self.finding(
            f"the temperature of {found.temperature:g} makes the garbage: {drawn} drawn answers are"
            f" garbage, and {greedy} greedy ones to the same prompts",
            "draw at 0.2 to 1.0, or greedily (--temperature 0); weights and tokenizer need no"
            " change",
            cases=cases(
                [sample for sample in found.watched.looks[-1].samples if _is_garbage(sample)]
            ),
            count=drawn.bad,
            total=drawn.of,
        )


def _garbage(watched: SampledRun) -> Count:
    samples = watched.looks[-1].samples if watched.looks else ()
    return Count(0, sum(map(_is_garbage, samples)), len(samples))


def _is_garbage(sample: Sample) -> bool:
    return sample.scores.garbage or sample.scores.empty
