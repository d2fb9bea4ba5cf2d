"""The base model answers as badly: the fault was there before training.

## What it does
Asks the base model some of the same prompts. It fires if at least half of the model's answers, and at least 75 % of at
least 4 of the base's, are garbage or empty.

## Why it is bad
The files of the base are damaged, contain random or other weights, or are loaded with another architecture, dtype or
quantization than they were saved with. Training on it starts from noise.

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
There is no automatic fix: download the base model again, compare the sizes or hashes of its files, and check it on its
own (`truetune check BASE`, `truetune sample BASE`). Then train again from it.

## References

- Holtzman et al. 2020, arXiv:1904.09751, on what sound text looks like under a model
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.answers.count_bad_answers_per_pass import cases_of_samples
from truetune.checks.cause.count_endless_or_garbage_answers import (
    FAILING_SHARE,
    count_garbage_or_empty_answers,
    is_garbage_or_empty,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CauseRule

# Chosen, not measured: a sound base that is no chat model answers some chat prompts with nothing or with marks. At
# half, such bases would be called broken; near 1, one lucky answer of noise would clear it.
MIN_GARBAGE_SHARE = 0.75
# Of 3 answers three quarters are all; of 4 one may be text by chance.
MIN_BASE_ANSWERS = 4


class BaseIsBroken(CauseRule):
    code = "CAU010"
    fault = Fault.MODEL_BROKEN_BEFORE_TRAINING
    severity = "error"
    since = "0.1.0"
    spoils = "model"

    def unmet(self) -> Unmet | None:
        if self.subject.base is None or not self.subject.base.looks:
            return Unmet("the base model was not asked", "name it with --base")
        count = len(self.subject.base.looks[-1].samples)
        if count < MIN_BASE_ANSWERS:
            return Unmet(
                f"the base gave {count:,} answers; at least {MIN_BASE_ANSWERS} are needed",
                "ask more (-n)",
            )
        return None

    def measurement_if_clean(self) -> str:
        """How many answers of the base, and of the model, are garbage or empty."""
        assert self.subject.base is not None
        base, tuned = (
            count_garbage_or_empty_answers(self.subject.base),
            count_garbage_or_empty_answers(self.subject.watched),
        )
        return f"{base} answers of the base are garbage or empty, and {tuned} of the model's"

    def findings(self) -> Iterator[Finding]:
        if self.subject.base is None:
            return
        tuned, base = (
            count_garbage_or_empty_answers(self.subject.watched),
            count_garbage_or_empty_answers(self.subject.base),
        )
        if not tuned.of or tuned.share < FAILING_SHARE:
            return
        if base.of < MIN_BASE_ANSWERS or base.share < MIN_GARBAGE_SHARE:
            return
        garbage = filter(is_garbage_or_empty, self.subject.base.looks[-1].samples)
        yield self.finding(
            f"the base model is broken: {base} of its answers are garbage or empty, like {tuned} of the tuned"
            " model's",
            "download the base model again, check that it answers well (truetune sample BASE --data DATA), and"
            " train again from it",
            cases=cases_of_samples(list(garbage)),
            count=base.bad,
            total=base.of,
        )
