"""A server's greedy answers to one and the same request differ from each other.

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
from truetune.checks.rule import ServingRule
from truetune.checks.shorten_text import quote_shortened

# Nats between the best two tokens that rounding turns round. Chosen, not measured: logits in bf16 have steps of 0.06 to
# 0.12 nats from 16 to 32, and two roundings may add up. At half, plain rounding would be called a fault; at double, a
# low temperature would pass as a tie.
MAX_NATS_OF_TIE = 0.2
SHOWN_ANSWERS = 3


class GreedyAnswersNotRepeatable(ServingRule):
    code = "SRV007"
    severity = "warning"
    since = "0.1.0"
    part = "repeats"

    def unmet(self) -> Unmet | None:
        """Why the rule can say nothing, also where no request was sent twice; None where it can."""
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        repeats = self.subject.repeats
        requests = 0 if repeats is None else max(repeats.alone, repeats.together)
        return None if requests > 1 else Unmet("no request was sent twice", "check again")

    def measurement_if_clean(self) -> str:
        """How many answers to the same requests at temperature 0 are the same."""
        repeats = self.subject.repeats
        assert repeats is not None
        return (
            f"{repeats.alone + repeats.together:,} answers to the same requests at temperature 0 are"
            " the same"
        )

    def findings(self) -> Iterator[Finding]:
        """The finding on greedy answers to one request that differ from each other."""
        repeats = self.subject.repeats
        if repeats is None or not repeats.alone_differ + repeats.together_differ:
            return
        is_tie = repeats.margin is not None and repeats.margin <= MAX_NATS_OF_TIE
        # Requests at the same time share batches, whose order of additions differs; requests alone do not.
        only_in_batches = not repeats.alone_differ and repeats.margin is None
        is_harmless = is_tie or only_in_batches
        remedy = (
            "look for a temperature that the server sets itself, and for requests that are mixed up"
        )
        if is_harmless:
            remedy = "compare scores over several runs, or switch batching off"
        margin = "not reported" if repeats.margin is None else f"{repeats.margin:.2g} nats"
        yield self.finding(
            f"the same request at temperature 0 gets {len(repeats.answers)} different answers:"
            f" {repeats.alone_differ} of {repeats.alone} alone and {repeats.together_differ} of"
            f" {repeats.together} at the same time are not the first",
            remedy,
            severity="info" if is_harmless else "warning",
            evidence=[
                *(quote_shortened(text) for text in repeats.answers[:SHOWN_ANSWERS]),
                f"between the best two tokens where they part: {margin}",
            ],
        )
