"""An LLM judge nearly always prefers the longer answer, so its win rate may measure length.

## What it does
Reads the verdicts of files with pairs of answers (`answer_a`, `answer_b`, `verdict`), and compares who won with whose
answer is longer by 10 % or more. It is an info if the longer answer won 85 % of 20 or more.

## Why it is bad
A model that was tuned to write more wins without being better. But a longer answer may also be better: the info tells
what to check, not that the verdicts are wrong.

## Example

```yaml
rows: 0
judged:
  longer first: A A A A A A A A A A A A A A A A A A A A A A A A B
```

## Use instead

```yaml
rows: 0
judged:
  longer first: A B A B A A B A B A B B A A B A B A A B A B A B B
```

## Fix safety
There is no automatic fix. Compare win rates among pairs of similar length, or report a length-controlled win rate, as
AlpacaEval 2 does.

## References

- Dubois et al. 2024, Length-Controlled AlpacaEval, arXiv 2404.04475
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.reasons_rules_cannot_judge import NO_VERDICTS
from truetune.checks.rule import EvaluationRule
from truetune.data.llm_judge_verdicts_and_bias import (
    MAX_P,
    MIN_VERDICTS,
    count_wins_of_longer_and_shorter,
    two_sided_binomial_p,
)

# Chosen: people prefer the longer of two answers in some 60 to 70 of 100 cases, so that a judge above is told.
MIN_SHARE = 0.85


class JudgePrefersLongerAnswers(EvaluationRule):
    code = "EVAL016"
    fault = Fault.JUDGE_BIASED
    symptoms = ("odd-metrics",)
    severity = "info"
    of_files = True
    moot_where = ("judge-prefers-a-place",)

    def unmet(self) -> Unmet | None:
        """Unmet without verdicts, and where too few are on answers of different length."""
        if not self.subject.judged:
            return NO_VERDICTS
        compared = sum(count_wins_of_longer_and_shorter(self.subject.judged))
        if compared < MIN_VERDICTS:
            return Unmet(
                f"{compared} verdicts are on answers of different length: too few to judge",
                f"give {MIN_VERDICTS} or more",
            )
        return None

    def measurement_if_clean(self) -> str:
        """How often the longer answer won."""
        longer, shorter = count_wins_of_longer_and_shorter(self.subject.judged)
        return f"the longer answer won {longer} of {longer + shorter}"

    def findings(self) -> Iterator[Finding]:
        longer, shorter = count_wins_of_longer_and_shorter(self.subject.judged)
        of = longer + shorter
        if (
            of < MIN_VERDICTS
            or longer < MIN_SHARE * of
            or two_sided_binomial_p(longer, shorter) >= MAX_P
        ):
            return
        yield self.finding(
            f"the judge prefers the longer answer in {longer} of {of} pairs: its win rate may measure length",
            "compare win rates among pairs of similar length, or report a length-controlled win rate (AlpacaEval 2)",
            count=longer,
            total=of,
        )
