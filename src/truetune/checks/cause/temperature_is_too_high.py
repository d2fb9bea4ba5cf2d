"""The temperature is so high that the answers are noise; with greedy decoding the model answers well.

## What it does
Sends some of the same prompts again with greedy decoding, if the answers were sampled. It fires if at least half of the
sampled answers are garbage, but at most 25 % of at least 3 greedy ones.

## Why it is bad
The temperature divides the logits. At 2 and above, the many unlikely tokens together outweigh the likely ones, however
good the model is. Its weights, its tokenizer and its training are fine.

## Example

```yaml
look: {garbage: 8, stopped: 0}
temperature: 5.0
greedy: {garbage: 0, stopped: 8}
```

## Use instead

```yaml
look: {garbage: 0, stopped: 8}
temperature: 0.7
greedy: {garbage: 0, stopped: 8}
```

## Fix safety
Safe: it changes how answers are sampled, not the weights. 0 is greedy; 0.2 to 1.0 is usual.

## References

- Holtzman et al. 2020, arXiv:1904.09751, on the tail of the distribution
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

# Share of the greedy answers that may be garbage all the same: one of four prompts may be a hard one. At half, weak
# models would be cleared; at 0, one greedy loop would hide the temperature.
MAX_GREEDY_GARBAGE_SHARE = 0.25
# As many as are asked again by default; of two, one decides.
MIN_GREEDY_ANSWERS = 3


class TemperatureIsTooHigh(CauseRule):
    code = "CAU001"
    fault = Fault.SAMPLING_SETTINGS_DISTORT_ANSWERS
    severity = "error"
    spoils = "temperature"

    def unmet(self) -> Unmet | None:
        if not self.subject.temperature:
            return Unmet("it is about sampled answers, and these are greedy")
        if self.subject.greedy is None or not self.subject.greedy.looks:
            return Unmet("the prompts were not repeated with greedy decoding")
        count = len(self.subject.greedy.looks[-1].samples)
        if count >= MIN_GREEDY_ANSWERS:
            return None
        return Unmet(
            f"{count} prompts were repeated with greedy decoding; at least {MIN_GREEDY_ANSWERS} are needed",
            "-n 3",
        )

    def measurement_if_clean(self) -> str:
        """How many answers are garbage at the temperature that was used, and how many greedy ones."""
        assert self.subject.greedy is not None
        drawn, greedy = (
            count_garbage_or_empty_answers(self.subject.watched),
            count_garbage_or_empty_answers(self.subject.greedy),
        )
        return (
            f"{drawn} answers at temperature {self.subject.temperature:g} are garbage, and {greedy}"
            " greedy ones"
        )

    def findings(self) -> Iterator[Finding]:
        subject = self.subject
        if not subject.temperature or subject.greedy is None:
            return
        drawn, greedy = (
            count_garbage_or_empty_answers(subject.watched),
            count_garbage_or_empty_answers(subject.greedy),
        )
        if not drawn.of or drawn.share < FAILING_SHARE:
            return
        if greedy.of < MIN_GREEDY_ANSWERS or greedy.share > MAX_GREEDY_GARBAGE_SHARE:
            return
        garbage = filter(is_garbage_or_empty, subject.watched.looks[-1].samples)
        yield self.finding(
            f"the temperature of {subject.temperature:g} causes the garbage: {drawn} sampled answers are garbage,"
            f" but only {greedy} greedy ones to the same prompts",
            "sample at a temperature of 0.2 to 1.0, or greedily (truetune sample --temperature 0; on a server: the"
            " `temperature` of the request); the weights and the tokenizer are fine",
            cases=cases_of_samples(list(garbage)),
            count=drawn.bad,
            total=drawn.of,
        )
