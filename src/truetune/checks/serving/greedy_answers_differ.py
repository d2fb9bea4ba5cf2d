"""The same greedy request gets different answers.

## What it does

Sends one request at temperature 0 again and again, alone and among others at the same time. A warning where answers to
requests one after another differ, or where the best two tokens at the place of the difference are more than 0.2 nats
apart; else a note: batches change the order of additions, and near ties fall either way.

## Why it is bad

Two runs of an evaluation can't be compared. Where the tokens were no near tie, the temperature is not what the request
says, or the server mixes up requests.

## Example

```yaml
repeats: {alone: 3, alone_differ: 2, together: 4, together_differ: 3, answers: [On the cliff., By the harbour.]}
```

## Use instead

```yaml
repeats: {alone: 3, alone_differ: 0, together: 4, together_differ: 0}
```

## Fix safety

There is no automatic fix: look at the server's sampling settings; for equal answers in batches, engines have
batch-invariant kernels.

## References

- https://thinkingmachines.ai/blog/defeating-nondeterminism-in-llm-inference/
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.recitation.recited import short
from truetune.checks.rule import ServingRule

TIE = 0.2
"""Nats between the best two tokens that rounding turns round"""


class GreedyAnswersDiffer(ServingRule):
    code = "SRV007"
    severity = "warning"
    since = "0.1.0"
    part = "repeats"

    def unmet(self) -> Unmet | None:
        if unmet := super().unmet():
            return unmet
        found = self.subject.repeats
        asked = 0 if found is None else max(found.alone, found.together)
        return None if asked > 1 else Unmet("no request was sent twice", "check again")

    def figure(self) -> str:
        found = self.subject.repeats
        assert found is not None
        return (
            f"{found.alone + found.together:,} answers to the same requests at temperature 0 are"
            " the same"
        )

    def findings(self) -> Iterator[Finding]:
        found = self.subject.repeats
        if found is None or not found.alone_differ + found.together_differ:
            return
        tie = found.margin is not None and found.margin <= TIE
        harmless = tie or (not found.alone_differ and found.margin is None)
        how = "not told" if found.margin is None else f"{found.margin:.2g} nats"
        yield self.finding(
            f"the same request at temperature 0 gets {len(found.answers)} different answers:"
            f" {found.alone_differ} of {found.alone} alone and {found.together_differ} of"
            f" {found.together} at the same time are not the first",
            (
                "compare scores over several runs, or switch batching off"
                if harmless
                else (
                    "look for a temperature that the server sets itself, and for requests that are"
                    " mixed up"
                )
            ),
            severity="info" if harmless else "warning",
            evidence=[
                *(short(text) for text in found.answers[:3]),
                f"between the best two tokens where they part: {how}",
            ],
        )
