"""The model knows where to stop, and its own answers do not get there.

## What it does

It fires where at least half of the answers do not stop though their references are shorter than the limit, the stop
token is served, and behind the reference answer its probability is 0.5 or more.

## Why it is bad

The stop token was learned, so the labels are right. What fails is the way there: the answer loops, or is much longer
than those of the data. More training on the same labels does not repair that.

## Example

```yaml
look: {stopped: 1, looped: 6}
trained: [<|im_end|>]
served: [<|im_end|>]
stopping: {probability: 0.93, rank: 0}
```

## Use instead

```yaml
look: {stopped: 8}
trained: [<|im_end|>]
served: [<|im_end|>]
stopping: {probability: 0.93, rank: 0}
```

## Fix safety

There is no automatic fix: where the answers are sound and long, raise the limit of new tokens; where they loop, look
for duplicate rows and too many epochs, and whether sampling with a temperature ends the loops.

## References

- Holtzman et al. 2020, arXiv:1904.09751; Welleck et al. 2020, arXiv:2002.02492
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.answers.bad_answers import cases
from truetune.checks.cause.symptoms import (
    UNTOLD_STOPPING,
    describe_probability,
    describe_stopping,
    endless,
)
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CauseRule

LEARNED = 0.5


class StopLearnedButNotReached(CauseRule):
    code = "CAU009"
    severity = "warning"
    since = "0.1.0"
    explained_by = ("model", "temperature")

    def unmet(self) -> Unmet | None:
        if endless(self.subject) is None:
            return None
        if self.subject.stopping is None:
            return UNTOLD_STOPPING
        lost = set(self.subject.trained) - set(self.subject.served)
        return (
            Unmet("a trained stop token is not served, which trained-stop-not-served is about")
            if lost
            else None
        )

    def figure(self) -> str:
        return describe_stopping(self.subject)

    def findings(self) -> Iterator[Finding]:
        found, mine = self.subject, self.subject.stopping
        seen = endless(found)
        lost = set(found.trained) - set(found.served)
        if seen is None or mine is None or mine.probability < LEARNED or lost:
            return
        loops = sum(sample.scores.looped for sample in seen.samples)
        yield self.finding(
            f"stopping was learned and is not reached: {seen.last} answers run past"
            f" {found.watched.limit} tokens, and behind the reference answer the probability of a"
            f" stop token is {describe_probability(mine)}",
            (
                "look for what makes the answers loop: duplicate rows, too many epochs"
                if loops >= len(seen.samples) / 2
                else (
                    "raise the limit of new tokens, or see why answers are longer than those of the"
                    " data"
                )
            ),
            evidence=[f"{loops} of these {len(seen.samples)} answers end in a loop"],
            cases=cases(seen.samples),
            count=seen.last.bad,
            total=seen.last.of,
        )
