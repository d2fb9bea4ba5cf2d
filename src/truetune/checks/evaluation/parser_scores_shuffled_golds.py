"""The parser scores the answers of other rows as right.

## What it does
Compares what the parser reads in each pair of gold answers: the share of equal readings is what shuffled golds score.
It must match the share of golds whose final answers are really equal (`####`, `answer is`, or the whole answer if it is
short). If it is higher, it is an error. If no gold marks its answer and all are read as the same, it is a warning.

## Why it is bad
The parser can't see what it should judge: a wrong answer is right, and every model looks good.

## Example

```yaml
parser: 'regex:^(\\d)'
golds: ["12", "15", "131", "140", "17", "190"]
```

## Use instead

```yaml
parser: number
golds: ["12", "15", "131", "140", "17", "190"]
```

## Fix safety
There is no automatic fix: read the whole value, not a part of it, and not whether there is one. Scores fall to their
true value.

## References

- EleutherAI/lm-evaluation-harness#2237, EleutherAI/lm-evaluation-harness#2238
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.evaluation.cases_and_score_of_parser_readings import few_cases_by_reason
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import EvaluationRule
from truetune.generation.parser_selftest_results import ParserSelftest

# Score over chance, as a share of the way from chance to 1. Chosen, not measured: golds that are equal but for their
# spelling raise it a little. At half, those would count; at double, a parser that is blind for every tenth pair passes.
MAX_ABOVE_CHANCE = 0.05
# Where golds are sentences a coarse reading (a label in them) may be meant.
MAX_ABOVE_CHANCE_OF_SENTENCES = 0.5
# Golds from which all-the-same is no accident.
MIN_GOLDS = 5


class ParserScoresShuffledGolds(EvaluationRule):
    code = "EVAL006"
    fault = Fault.WRONG_ANSWERS_COUNTED_RIGHT
    severity = "error"
    since = "0.1.0"
    of_parser = True

    def unmet(self) -> Unmet | None:
        """Also unmet where there are fewer than two gold answers."""
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if self.parser_selftest().shuffled is None:
            return Unmet("there are fewer than two gold answers", "name more rows (--data)")
        return None

    def measurement_if_clean(self) -> str:
        """The score of the parser with shuffled gold answers, beside that of chance."""
        proof = self.parser_selftest()
        chance = "the score of chance is not known"
        if proof.chance is not None:
            chance = f"{proof.chance:.2f} is chance"
        return f"the parser scores {proof.shuffled:.2f} with shuffled gold answers; {chance}"

    def findings(self) -> Iterator[Finding]:
        proof = self.subject.parser
        if proof is None or not _reads_different_golds_as_equal(proof):
            return
        expected = "" if proof.chance is None else f"; {proof.chance:.2f} is chance"
        yield self.finding(
            f"the parser {proof.name} scores {proof.shuffled:.2f} with shuffled gold answers{expected}: it counts"
            " wrong answers as right",
            "choose a parser that reads the whole value by which the answers differ (--parser number, choice, json,"
            " or regex:PATTERN)",
            severity="warning" if proof.chance is None else "error",
            evidence=[f"it reads only {proof.values:,} different values in {proof.golds:,} golds"],
            cases=few_cases_by_reason(proof.alike),
        )


def _reads_different_golds_as_equal(proof: ParserSelftest) -> bool:
    """Does the parser read different golds as equal, far more often than they are?"""
    if proof.shuffled is None:
        return False
    # Without a marked answer nobody knows which golds are equal: only a parser that tells none apart is named.
    if proof.chance is None:
        return proof.shuffled == 1 and proof.golds >= MIN_GOLDS and proof.different > 1
    share = MAX_ABOVE_CHANCE_OF_SENTENCES if proof.wordy else MAX_ABOVE_CHANCE
    return proof.shuffled > proof.chance + share * (1 - proof.chance)
