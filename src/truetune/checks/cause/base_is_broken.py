"""The base answers as badly: what is wrong was there before the training.

## What it does

Asks the base some of the same prompts. It fires where at least half of the model's answers, and at least three quarters
of at least 4 of the base's, are garbage or empty.

## Why it is bad

The files of the base are damaged, hold random or other weights, or are read with another architecture, dtype or
quantization than they were written with. Any training on it starts from noise.

## Example

```yaml
look: {garbage: 8, stopped: 0}
base: {garbage: 8, stopped: 0}
```

## Use instead

```yaml
look: {garbage: 8, stopped: 0}
base: {garbage: 0, stopped: 8}
```

## Fix safety

There is no automatic fix: download the base again and compare the sizes or digests of its files; look at it alone
(`truetune check BASE`, `truetune sample BASE`).

## References

- Holtzman et al. 2020, arXiv:1904.09751, on what sound text looks like under a model
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.answers.bad_answers import Count, cases
from truetune.checks.cause.symptoms import MANY
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CauseRule
from truetune.generation.answer_samples import Sample, SampledRun

MOST = 0.75
LEAST = 4
"""Answers of the base"""


class BaseIsBroken(CauseRule):
    code = "CAU010"
    severity = "error"
    since = "0.1.0"
    spoils = "model"

    def unmet(self) -> Unmet | None:
        if self.subject.base is None or not self.subject.base.looks:
            return Unmet("the base was asked nothing", "name it with --base")
        count = len(self.subject.base.looks[-1].samples)
        return (
            Unmet(f"the base gave {count:,} answers, and it takes {LEAST}", "ask more (-n)")
            if count < LEAST
            else None
        )

    def figure(self) -> str:
        base = self.subject.base
        assert base is not None
        mine = _counted(self.subject.watched)
        return (
            f"{_counted(base)} answers of the base are garbage or empty, and {mine} of the model's"
        )

    def findings(self) -> Iterator[Finding]:
        if self.subject.base is None:
            return
        mine, base = (_counted(watched) for watched in (self.subject.watched, self.subject.base))
        if not mine.of or base.of < LEAST or mine.share < MANY or base.share < MOST:
            return
        yield self.finding(
            f"the base is broken: {base} of its answers are garbage or empty, and {mine} of the"
            " model's",
            "download the base again, and see what it answers by itself (truetune sample)",
            cases=cases([sample for sample in self.subject.base.looks[-1].samples if _bad(sample)]),
            count=base.bad,
            total=base.of,
        )


def _counted(watched: SampledRun) -> Count:
    samples = watched.looks[-1].samples
    return Count(0, sum(map(_bad, samples)), len(samples))


def _bad(sample: Sample) -> bool:
    return sample.scores.garbage or sample.scores.empty
