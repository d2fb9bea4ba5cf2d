"""The model expects answers to end far more rarely, or far more often, than they do.

## What it does
Sums the probability of the stop tokens that serving uses, over all positions of 8 or more reference answers: that is
how many ends the model expects. A model that has learned where answers end expects about as many as there are, even if
no single end is predictable. It fires if it expects significantly less than half of them (an error below 20 %), or more
than twice as many (a warning).

## Why it is bad
Answers continue to the limit, into turns that the model makes up, or break off. The stop token was masked with the
padding (pad = eos), cut off with the end of long rows, differs from the one that serving uses, or is inside answers.

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
There is no automatic fix. If the stop token was not learned, train again with a label on it (`truetune check` on the
data and the settings of the run shows why it has none). If serving does not know it, add it to eos_token_id in
generation_config.json.

## References

- Guo et al. 2017, On Calibration of Modern Neural Networks, arXiv 1706.04599
- huggingface/transformers#22794
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import EvaluationRule
from truetune.generation.evaluation_loss_and_score_types import StopCalibration

# Rows with an end: with fewer a bootstrap over rows says nothing of its edges.
MIN_ROWS = 8
# Expected stops for each that is there. Chosen, not measured: a calibrated model has about 1, and one that never
# learned to stop nearly 0. At 0.25 half-trained models would pass; near 1 rows with open ends would be named.
MIN_EXPECTED = 0.5
# Below it most answers run to the limit, which is an error.
MIN_EXPECTED_OF_WARNING = 0.2
# Twice the ends that there are: answers break off in their middle.
MAX_EXPECTED = 2.0


class StoppingIsNotCalibrated(EvaluationRule):
    code = "EVAL002"
    fault = Fault.MODEL_DOES_NOT_END_ITS_ANSWERS
    symptoms = ("garbage-output", "never-stops", "odd-metrics")
    severity = "error"
    since = "0.1.0"

    def unmet(self) -> Unmet | None:
        """Unmet where the probability of a stop is not known, or too few rows have an end."""
        stops = self.subject.model.stops
        if stops is None:
            return Unmet(
                "the probability of a stop token is not known",
                "evaluate the model's files, and rows with answers",
            )
        if stops.rows < MIN_ROWS or stops.low is None:
            return Unmet(
                f"{stops.rows:,} rows have an end; at least {MIN_ROWS} are needed",
                "name more rows with --data",
            )
        return None

    def measurement_if_clean(self) -> str:
        """How many ends the model expects for each end of an answer, and at how many a stop is likely."""
        stops = self.subject.model.stops
        assert stops is not None
        return (
            f"for each end of an answer the model expects {stops.expected:.2g} ({stops.low:.2g} to"
            f" {stops.high:.2g}); a stop is likely at {stops.likely:,} of {stops.ends:,} ends"
        )

    def findings(self) -> Iterator[Finding]:
        stops = self.subject.model.stops
        if stops is None or stops.low is None or stops.high is None or stops.rows < MIN_ROWS:
            return
        # The edges of the interval, not its middle: it has to be sure.
        expects_few, expects_many = stops.high < MIN_EXPECTED, stops.low > MAX_EXPECTED
        if not expects_few and not expects_many:
            return
        verdict = (
            "it has not learned where answers end" if expects_few else "it will break answers off"
        )
        remedy = (
            "train again with the stop token at the end of each answer, with a label, and nowhere else (truetune"
            " check on the run's settings and data shows where it is lost)"
        )
        if expects_few and stops.unserved:
            remedy = "add the stop token's id to eos_token_id in generation_config.json"
        yield self.finding(
            f"for each end of an answer the model expects {stops.expected:.2g} ({stops.low:.2g} to"
            f" {stops.high:.2g}): {verdict}",
            remedy,
            severity="error" if stops.high < MIN_EXPECTED_OF_WARNING else "warning",
            evidence=list(self._stop_evidence(stops)),
            count=stops.likely,
            total=stops.ends,
        )

    def _stop_evidence(self, stops: StopCalibration) -> Iterator[str]:
        """P(stop) at ends and inside answers, stops that are not served, and what the other model expects."""
        yield (
            f"probability of a stop token at the end of answers: {stops.mean:.2g} on average, above 0.5 at"
            f" {stops.likely:,} of {stops.ends:,}; inside answers {stops.inside_mean:.2g}, at most"
            f" {stops.largest:.2g}"
        )
        if stops.unserved:
            named = ", ".join(f"{token} ({count:,})" for token, count in stops.unserved.items())
            yield f"answers end with tokens that serving does not stop at: {named}"
        other = self.subject.other
        if other and other.stops:
            yield (
                f"{other.name} expects {other.stops.expected:.2g}, with a probability of {other.stops.mean:.2g} at"
                " the ends"
            )
