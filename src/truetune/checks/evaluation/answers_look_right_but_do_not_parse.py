"""Answers contain the gold value, but the parser can't read it.

## What it does
Looks for the gold's final answer in each answer that the parser can't read: the same marked number or letter, the same
words, the same JSON. It fires from 3 answers and 5 %.

## Why it is bad
Right answers count as wrong: the score measures the format. A model that was tuned on the format gains without knowing
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
There is no automatic fix. If the format is part of what you want, report it with the score; otherwise use a parser that
reads both. The score changes, and can't be compared with earlier ones.

## References

- EleutherAI/lm-evaluation-harness#2707, EleutherAI/lm-evaluation-harness#3404
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.evaluation.cases_and_score_of_parser_readings import few_cases_by_reason
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import EvaluationRule

# Chosen, not measured: one or two answers in an odd form are the model's own; of 60 answers 3 move a score by 5 %. At
# half, single slips would be named; at double, a tenth of the score could be form.
MIN_UNREAD = 3
MIN_UNREAD_SHARE = 0.05


class AnswersLookRightButDoNotParse(EvaluationRule):
    code = "EVAL009"
    fault = Fault.RIGHT_ANSWERS_COUNTED_WRONG
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
        return Unmet("the model generated no answers", "generate some with --answers N")

    def measurement_if_clean(self) -> str:
        """How many answers hold the gold value and are not read by the parser."""
        unread, answers = len(self.parser_selftest().unread), self.parser_selftest().answers
        return f"{unread:,} of {answers:,} answers contain the gold value but are not read"

    def findings(self) -> Iterator[Finding]:
        proof = self.subject.parser
        if proof is None or len(proof.unread) < max(MIN_UNREAD, MIN_UNREAD_SHARE * proof.answers):
            return
        yield self.finding(
            f"{len(proof.unread):,} of {proof.answers:,} answers contain the gold value, but the parser {proof.name}"
            " can't read them, so they count as wrong",
            "choose a parser that reads the formats in which the model answers (--parser number, choice, json or a"
            " pattern), or report the share of readable answers separately",
            cases=few_cases_by_reason(proof.unread),
            count=len(proof.unread),
            total=proof.answers,
        )
