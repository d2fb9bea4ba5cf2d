"""Chosen and rejected are the same.

## What it does
Compares the tokens of both answers of each pair, as they stand and as they are left when the trainer has cut them at
`max_length` (1,024 tokens where none is set, TRL's default for DPO).

## Why it is bad
Both sides have the same probability whatever the model does: the loss stays at ln 2 = 0.6931 and the gradient is zero.
Mixed in, such pairs only thin out each batch. Trainers keep them without a word.

## Example
```yaml
data:
  - {prompt: [{role: user, content: "Is it open?"}],
     chosen: [{role: assistant, content: It is.}], rejected: [{role: assistant, content: It is.}]}
  - {prompt: [{role: user, content: "When?"}],
     chosen: [{role: assistant, content: At nine.}], rejected: [{role: assistant, content: Never.}]}
```

## Use instead
```yaml
data:
  - {prompt: [{role: user, content: "When?"}],
     chosen: [{role: assistant, content: At nine.}], rejected: [{role: assistant, content: Never.}]}
```

## Fix safety
Dropping identical pairs loses nothing: they have no gradient. Where the difference lies behind the cut, a longer
`max_length` brings it back, for memory. An error from half of the pairs on, a warning from one in a hundred, else a
note.

## References
- OpenRLHF/OpenRLHF#1311, huggingface/trl#5826, huggingface/trl#6321
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.findings import Case, Finding
from truetune.checks.measurement import Measurement, counted
from truetune.checks.pairs.sides import completions, cut, limit_of
from truetune.checks.rule import MAX_CASES, PairRule, Setup
from truetune.checks.token_cases import at_answer
from truetune.encoding.batch import Batch
from truetune.spec.run import Severity

MANY, SOME = 0.5, 0.01


class PreferencePairsIdentical(PairRule):
    code = "PREF001"
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.limit = limit_of(setup.spec)
        self.same = self.cut = 0
        self.cases: list[Case] = []

    def batch(self, batch: Batch) -> None:
        if batch.pairs is None:
            return
        chosen, rejected = batch.pairs
        self.pairs += len(chosen.examples)
        contexts = zip(chosen.contexts.tolist(), rejected.contexts.tolist(), strict=True)
        sides = zip(completions(chosen), completions(rejected), contexts, strict=True)
        for i, (good, bad, (before, behind)) in enumerate(sides):
            left = cut(good, before, self.limit)
            if good.tobytes() == bad.tobytes():
                self.same += 1
                text = f"both answers are the same {len(good):,} tokens"
            elif (len(left) or self.spec.max_length is None) and left.tobytes() == cut(
                bad, behind, self.limit
            ).tobytes():
                self.cut += 1
                text = (
                    f"the first {len(left):,} tokens of both answers are the same, and no more are"
                    " kept"
                )
                text = (
                    text
                    if len(left)
                    else f"the prompt fills the limit: {before:,} tokens; no answer is kept"
                )
            else:
                continue
            if len(self.cases) < MAX_CASES:
                self.cases.append(at_answer(chosen, i, text))

    def figure(self) -> Measurement:
        return counted("pairs with the same answer on both sides", self.same + self.cut, self.pairs)

    def findings(self) -> Iterator[Finding]:
        count = self.same + self.cut
        if not count:
            return
        severity: Severity = "info"
        if count >= SOME * self.pairs:
            severity = "error" if count >= MANY * self.pairs else "warning"
        yield self.finding(
            f"{count:,} of {self.pairs:,} pairs have the same answer on both sides and can't be"
            " learned from",
            "drop these pairs"
            + (", or raise max_length so that their difference is kept" if self.cut else ""),
            severity=severity,
            evidence=[
                f"{self.same:,} ({self.same / self.pairs:.1%}) are the same as they stand",
                (
                    f"{self.cut:,} ({self.cut / self.pairs:.1%}) become the same when cut at"
                    f" {self.limit.said}"
                ),
            ],
            cases=self.cases,
            count=count,
            total=self.pairs,
        )
