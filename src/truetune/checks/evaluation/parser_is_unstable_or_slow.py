"""The parser reads the same answer differently a second time, or takes over a second for one.

## What it does
Reads each gold answer twice, in two orders. Before that, it times the parser on some golds and on texts of up to 3,000
characters like those of a model that does not stop, with a limit of one second for each.

## Why it is bad
The score changes from run to run, or an evaluation hangs on one bad answer: a pattern with nested repetitions
(`(\\w+\\s?)*$`) takes time that doubles with each character.

## Example

```yaml
parser: 'regex:^(?:\\w+\\s?)*$'
golds: [spam, ham]
```

## Use instead

```yaml
parser: 'regex:^\\w+$'
golds: [spam, ham]
```

## Fix safety
There is no automatic fix: keep no state between calls, and do not nest repetitions in a pattern.

## References

- https://owasp.org/www-community/attacks/Regular_expression_Denial_of_Service_-_ReDoS
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.evaluation.cases_and_score_of_parser_readings import few_cases_by_reason
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import EvaluationRule


class ParserIsUnstableOrSlow(EvaluationRule):
    code = "EVAL008"
    fault = Fault.RIGHT_ANSWERS_COUNTED_WRONG
    symptoms = ("odd-metrics",)
    severity = "error"
    since = "0.1.0"
    of_parser = True

    def measurement_if_clean(self) -> str:
        """How many gold answers are read the same twice, and the seconds of the slowest text."""
        proof = self.parser_selftest()
        return (
            f"{proof.golds:,} gold answers are read the same twice, the slowest text in"
            f" {proof.slowest:.2g} s"
        )

    def findings(self) -> Iterator[Finding]:
        proof = self.subject.parser
        if proof is None or not proof.shaky:
            return
        fault = (
            f"reads {len(proof.shaky):,} of {proof.golds:,} gold answers differently a second time, so scores are"
            " not reproducible"
        )
        remedy = "keep no state between calls of the parser (no counter, cache or iterator that is used up)"
        # After a time-out nothing was read twice, so that the time is all that is known.
        if proof.gave_up:
            fault = (
                f"takes more than {proof.slowest:.1f} s for one answer, so an evaluation can hang"
            )
            remedy = "remove nested repetitions from the pattern: write (\\w+ ?)* as [\\w ]*"
        yield self.finding(
            f"the parser {proof.name} {fault}",
            remedy,
            cases=few_cases_by_reason(proof.shaky),
        )
