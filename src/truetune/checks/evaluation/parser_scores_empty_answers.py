"""The parser gives points to answers that say nothing.

## What it does
Gives the parser empty answers, which must score 0 with every gold (otherwise an error). Then it gives it texts that say
nothing (`I don't know.`, `Answer:`, `A good question!`), and, if they score more than by chance, the questions
themselves (warnings).

## Why it is bad
A model that says nothing gets points: an empty reading equals an empty reading, a default counts as an answer, or the
letter of `A good question` is taken for choice A.

## Example

```yaml
parser: 'regex:(\\d*)'
golds: ["It is 5.", "It is 7."]
```

## Use instead

```yaml
parser: 'regex:(\\d+)'
golds: ["It is 5.", "It is 7."]
```

## Fix safety
There is no automatic fix: let the parser return None if it finds no answer. Scores can only fall.

## References

- EleutherAI/lm-evaluation-harness#700, RapidFireAI/rapidfireai#258
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.evaluation.cases_and_score_of_parser_readings import few_cases_by_reason
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import EvaluationRule


class ParserScoresEmptyAnswers(EvaluationRule):
    code = "EVAL007"
    fault = Fault.WRONG_ANSWERS_COUNTED_RIGHT
    severity = "error"
    since = "0.1.0"
    of_parser = True

    def measurement_if_clean(self) -> str:
        """The score of the parser with empty answers."""
        return f"the parser scores {self.parser_selftest().empty:.2f} with empty answers"

    def findings(self) -> Iterator[Finding]:
        proof = self.subject.parser
        if proof is None or not (proof.empty or proof.nothing):
            return
        fault = "scores answers that say nothing"
        if proof.empty:
            fault = f"scores {proof.empty:.2f} with empty answers"
        yield self.finding(
            f"the parser {proof.name} {fault}",
            "let the parser return None if there is no answer; a pattern must not match the empty string (use +"
            " instead of *)",
            # An empty answer is never right; one that says nothing may hold a letter by its wording.
            severity="error" if proof.empty else "warning",
            cases=few_cases_by_reason(proof.nothing),
        )
