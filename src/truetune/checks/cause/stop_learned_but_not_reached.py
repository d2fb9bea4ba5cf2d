"""The model knows where to stop, but its own answers do not get there.

## What it does
It fires if at least half of the answers do not stop though their references are shorter than the limit, the server uses
the trained stop token, and the probability of that token after the reference answer is 0.5 or more.

## Why it is bad
The stop token was learned, so the labels are right. But the answer never reaches its end: it loops, or is much longer
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
There is no automatic fix. If the answers are good but long, raise the limit on new tokens. If they loop, look for
duplicate rows and too many epochs, and try sampling with a temperature.

## References

- Holtzman et al. 2020, arXiv:1904.09751; Welleck et al. 2020, arXiv:2002.02492
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.answers.count_bad_answers_per_pass import cases_of_samples
from truetune.checks.cause.count_endless_or_garbage_answers import (
    STOPPING_UNKNOWN,
    describe_stop_probability,
    describe_stopping,
    endless_answers_where_at_least_half,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CauseRule

# P(stop) after the reference: more likely than all other tokens together.
LEARNED_STOP_PROBABILITY = 0.5
# Share of the endless answers from which loops are what keeps them from their end.
LOOPING_SHARE = 0.5


class StopLearnedButNotReached(CauseRule):
    code = "CAU009"
    fault = Fault.MODEL_DOES_NOT_END_ITS_ANSWERS
    symptoms = ("never-stops", "slow-generation")
    severity = "warning"
    since = "0.1.0"
    explained_by = ("model", "temperature")

    def unmet(self) -> Unmet | None:
        if endless_answers_where_at_least_half(self.subject) is None:
            return None
        if self.subject.stopping is None:
            return STOPPING_UNKNOWN
        unserved = set(self.subject.trained) - set(self.subject.served)
        if unserved:
            return Unmet(
                "the server does not use a trained stop token, which trained-stop-not-served is about"
            )
        return None

    def measurement_if_clean(self) -> str:
        """How many answers do not stop, and the probability of a stop behind the references."""
        return describe_stopping(self.subject)

    def findings(self) -> Iterator[Finding]:
        subject, stopping = self.subject, self.subject.stopping
        endless = endless_answers_where_at_least_half(subject)
        if endless is None or stopping is None:
            return
        # An unserved stop explains answers that continue, however well it was learned.
        unserved = set(subject.trained) - set(subject.served)
        if stopping.probability < LEARNED_STOP_PROBABILITY or unserved:
            return
        loops = sum(sample.scores.looped for sample in endless.samples)
        remedy = (
            "raise max_new_tokens (--max-new-tokens), or find out why the answers are longer than those"
            " in the data"
        )
        if loops >= LOOPING_SHARE * len(endless.samples):
            remedy = (
                "find out why the answers loop: look for duplicate rows (truetune check DATA), and train for fewer"
                " epochs"
            )
        yield self.finding(
            f"stopping was learned but is not reached: {endless.count_in_last_pass} answers are longer than"
            f" {subject.watched.limit} tokens, but after the reference answer the probability of a stop token is"
            f" {describe_stop_probability(stopping)}",
            remedy,
            evidence=[f"{loops} of these {len(endless.samples)} answers end in a loop"],
            cases=cases_of_samples(endless.samples),
            count=endless.count_in_last_pass.bad,
            total=endless.count_in_last_pass.of,
        )
