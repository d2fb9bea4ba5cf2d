"""Answers hold the gold value, and the parser reads nothing of them.

## What it does

Looks for the final answer of the gold in each answer that the parser reads nothing of: the same marked number or
letter, the same words, the same JSON. It fires for 3 or more, if they are at least 1 of 20.

## Why it is bad

Right answers count as wrong: what is measured is the form. A model that was tuned on the form gains without knowing
more.

## Example

```yaml
parser: 'regex:#### (\\d+)'
golds: ["#### 5", "#### 7", "#### 9", "#### 4"]
answers: ["The answer is 5.", "**Answer: 7**", "So we have 9.", "#### 4"]
```

## Use instead

```yaml
parser: number
golds: ["#### 5", "#### 7", "#### 9", "#### 4"]
answers: ["The answer is 5.", "**Answer: 7**", "So we have 9.", "#### 4"]
```

## Fix safety

There is no automatic fix. If the form is part of what is wanted, say so with the figure; else name a parser that reads
both.

## References

- EleutherAI/lm-evaluation-harness#2707, EleutherAI/lm-evaluation-harness#3404
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.evaluation.cases_and_score_of_parser_readings import few_cases_by_reason
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import EvaluationRule

# Chosen, not measured: one or two answers in an odd form are the model's own; of 60 answers 3 move a score by 5 %. At
# half, single slips would be named; at double, a tenth of the score could be form.
MIN_UNREAD = 3
MIN_UNREAD_SHARE = 0.05


class AnswersLookRightButDoNotParse(EvaluationRule):
    code = "EVAL009"
    severity = "warning"
    since = "0.1.0"
    of_parser = True

    def unmet(self) -> Unmet | None:
        """Also unmet where the model was asked nothing."""
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if self.parser_selftest().answers:
            return None
        return Unmet("the model was asked nothing", "ask rows with --answers N")

    def measurement_if_clean(self) -> str:
        """How many answers hold the gold value and are not read by the parser."""
        unread, answers = len(self.parser_selftest().unread), self.parser_selftest().answers
        return f"{unread:,} of {answers:,} answers hold the gold value and are not read"

    def findings(self) -> Iterator[Finding]:
        proof = self.subject.parser
        if proof is None or len(proof.unread) < max(MIN_UNREAD, MIN_UNREAD_SHARE * proof.answers):
            return
        yield self.finding(
            f"{len(proof.unread):,} of {proof.answers:,} answers hold the gold value, and the"
            f" parser {proof.name} reads nothing of them",
            "name a parser that reads the forms in which the model answers, or report the form"
            " apart",
            cases=few_cases_by_reason(proof.unread),
            count=len(proof.unread),
            total=proof.answers,
        )
