r"""The parser can't read the gold answers, or reads a wrong value in them.

## What it does
Gives the data's own answers to the parser, which must score 1. Each must be read, equal itself, differ from an empty
answer, and be read as the number or letter that it marks as its answer (`####`, `\boxed{}`, `answer is`). It is an
error if one is not. It is a warning if the parser reads the golds, but misreads the same values in formats that models
use (`**Answer: B**`, `1,234`).

## Why it is bad
The score measures the parser. It is 0 whatever the model says, or it rises with the format of the answers.

## Example

```yaml
parser: 'regex:#### (\d+)'
golds: ["3 + 2 = 5. The answer is 5.", "4 + 3 = 7. The answer is 7."]
```

## Use instead

```yaml
parser: number
golds: ["3 + 2 = 5. The answer is 5.", "4 + 3 = 7. The answer is 7."]
```

## Fix safety
There is no automatic fix: choose a parser that fits the format of the data (docs/parsers.md), or clean the rows whose
answers have another format. Earlier scores can't be compared.

## References

- EleutherAI/lm-evaluation-harness#2707, EleutherAI/lm-evaluation-harness#3404, RapidFireAI/rapidfireai#258
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.evaluation.cases_and_score_of_parser_readings import (
    describe_score,
    few_cases_by_reason,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import EvaluationRule


class ParserMissesGoldAnswers(EvaluationRule):
    code = "EVAL005"
    fault = Fault.RIGHT_ANSWERS_COUNTED_WRONG
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    of_parser = True

    def measurement_if_clean(self) -> str:
        """The score of the parser with the gold answers."""
        proof = self.parser_selftest()
        return f"the parser scores {describe_score(proof.read, proof.golds)} with the gold answers"

    def findings(self) -> Iterator[Finding]:
        proof = self.subject.parser
        if proof is None:
            return
        if proof.missed:
            yield self.finding(
                f"the parser {proof.name} scores {describe_score(proof.read, proof.golds)} on the gold answers"
                " themselves, which must score 1",
                "choose a parser that reads the data's own answers (--parser number, choice, json, or"
                " regex:PATTERN)",
                cases=few_cases_by_reason(proof.missed),
                count=len(proof.missed),
                total=proof.golds,
            )
        # A warning: these forms are ours, and the model may never use them.
        elif proof.misread:
            yield self.finding(
                f"the parser {proof.name} reads wrong values from gold answers in {len(proof.misread)} other formats"
                " that models use",
                "choose a parser that reads these formats correctly, or not at all (--parser)",
                severity="warning",
                cases=few_cases_by_reason(proof.misread),
            )
