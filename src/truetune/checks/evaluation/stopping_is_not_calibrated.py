"""The model expects answers to end far more rarely, or far more often, than they do.

## What it does

Adds up the probability of the tokens that serving stops at, over all places of 8 or more reference answers: how many
ends the model expects. A model that has learned where answers end expects about as many as there are, even where no
single end can be foretold. It fires where it surely expects less than half of them (an error below a fifth), or more
than twice as many.

## Why it is bad

Answers run on to the limit, into turns that the model makes up, or break off. The stop token was masked with the
padding (pad = eos), cut off with the end of long rows, is another one than serving stops at, or stands inside answers.

## Example

```yaml
rows: 20
stops: {mean: 0.004, expected: [0.03, 0.01, 0.06]}
```

## Use instead

```yaml
rows: 20
stops: {mean: 0.93, expected: [0.98, 0.9, 1.05]}
```

## Fix safety

There is no automatic fix: a stop token that was not learned has to be trained (`truetune check` on the data and
settings of the run), one that serving does not know goes into generation_config.json as eos_token_id.

## References

- Guo et al. 2017, On Calibration of Modern Neural Networks, arXiv 1706.04599
- huggingface/transformers#22794
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import EvaluationRule

ENOUGH = 8
TOO_FEW, FEWEST, TOO_MANY = 0.5, 0.2, 2.0
"""Expected stops for each that is there"""


class StoppingIsNotCalibrated(EvaluationRule):
    code = "EVAL002"
    severity = "error"
    since = "0.1.0"

    def unmet(self) -> Unmet | None:
        stops = self.subject.model.stops
        if stops is None:
            return Unmet("P(stop) is not told", "evaluate the model's files, and rows with answers")
        if stops.rows < ENOUGH or stops.low is None:
            return Unmet(
                f"{stops.rows:,} rows have an end, and it takes {ENOUGH}",
                "name more rows with --data",
            )
        return None

    def figure(self) -> str:
        stops = self.subject.model.stops
        assert stops is not None
        return (
            f"for each end of an answer the model expects {stops.expected:.2g} ({stops.low:.2g} to"
            f" {stops.high:.2g}); a stop is likely at {stops.likely:,} of {stops.ends:,} ends"
        )

    def findings(self) -> Iterator[Finding]:
        stops, other = self.subject.model.stops, self.subject.other
        if stops is None or stops.low is None or stops.high is None or stops.rows < ENOUGH:
            return
        few, many = stops.high < TOO_FEW, stops.low > TOO_MANY
        if not (few or many):
            return
        evidence = [
            f"P(stop) where answers end: {stops.mean:.2g} on average, over 1/2 at {stops.likely:,}"
            f" of {stops.ends:,}; inside answers {stops.inside_mean:.2g}, at most"
            f" {stops.largest:.2g}"
        ]
        if stops.unserved:
            named = ", ".join(f"{token} ({count:,})" for token, count in stops.unserved.items())
            evidence.append(f"answers end with tokens that serving does not stop at: {named}")
        if other and other.stops:
            evidence.append(
                f"{other.name} expects {other.stops.expected:.2g}, P(stop) {other.stops.mean:.2g}"
            )
        yield self.finding(
            f"for each end of an answer the model expects {stops.expected:.2g} ({stops.low:.2g} to"
            f" {stops.high:.2g}): "
            + ("it has not learned where answers end" if few else "it breaks answers off"),
            (
                "name the stop token in generation_config.json (eos_token_id)"
                if few and stops.unserved
                else (
                    "train the stop token behind each answer, and nowhere else: truetune check on"
                    " the run's settings shows it"
                )
            ),
            severity="error" if stops.high < FEWEST else "warning",
            evidence=evidence,
            count=stops.likely,
            total=stops.ends,
        )
