"""The parser gives answers of other rows the score of right ones.

## What it does

Compares what the parser reads of each pair of gold answers: the share that is equal is what shuffled golds score. By
the answers that the golds mark as final (`####`, `answer is`, or the whole where it is short), it must be that of
equal answers. A warning where none is marked, and all golds are read as the same.

## Why it is bad

The parser is blind to what it is to judge: a wrong answer is right, and every model is good.

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

There is no automatic fix: read the whole value, not a part of it or whether there is one.

## References

- EleutherAI/lm-evaluation-harness#2237, EleutherAI/lm-evaluation-harness#2238
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.evaluation.readings import cases
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import EvaluationRule

ABOVE = 0.05
"""Over chance, as far as the rest of the way to 1 allows (`WORDS` of it, where a coarse reading may be meant)"""
WORDS = 0.5
FEWEST = 5


class ParserScoresShuffledGolds(EvaluationRule):
    code = "EVAL006"
    severity = "error"
    since = "0.1.0"
    of_parser = True

    def unmet(self) -> Unmet | None:
        if unmet := super().unmet():
            return unmet
        return (
            Unmet("there are fewer than two gold answers", "name more rows (--data)")
            if self.proof().shuffled is None
            else None
        )

    def figure(self) -> str:
        chance = self.proof().chance
        return f"the parser scores {self.proof().shuffled:.2f} with shuffled gold answers" + (
            "; what chance is can't be told" if chance is None else f"; {chance:.2f} is chance"
        )

    def findings(self) -> Iterator[Finding]:
        proof = self.subject.parser
        if proof is None or proof.shuffled is None:
            return
        if proof.chance is None:
            blind = proof.shuffled == 1 and proof.golds >= FEWEST and proof.different > 1
        else:
            room = 1 - proof.chance
            blind = proof.shuffled > proof.chance + (WORDS if proof.wordy else ABOVE) * room
        if not blind:
            return
        expected = "" if proof.chance is None else f"; {proof.chance:.2f} is chance"
        yield self.finding(
            f"the parser {proof.name} scores {proof.shuffled:.2f} with shuffled gold"
            f" answers{expected}",
            "name a parser that reads the value that makes the answers differ (--parser)",
            severity="warning" if proof.chance is None else "error",
            evidence=[f"it reads {proof.values:,} different values in {proof.golds:,} golds"],
            cases=cases(proof.alike),
        )
