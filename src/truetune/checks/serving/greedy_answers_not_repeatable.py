"""A server gives different greedy answers to the same request.

## What it does
Sends one request at temperature 0 several times, on its own and concurrently with others. It is a warning if answers to
consecutive requests differ, or if the log-probabilities of the two best tokens differ by more than 0.2 where the
answers diverge. Otherwise it is an info: batches change the order of additions, and near ties can go either way.

## Why it is bad
Two evaluation runs can't be compared. If the tokens were not a near tie, the server does not use the temperature of the
request, or it mixes up requests.

## Example

```yaml
repeats: {alone: 3, alone_differ: 2, together: 4, together_differ: 3, answers: [On the cliff., By the harbour.]}
```

## Use instead

```yaml
repeats: {alone: 3, alone_differ: 0, together: 4, together_differ: 0}
```

## Fix safety
There is no automatic fix: check the server's sampling settings. For equal answers in batches, some engines have
batch-invariant kernels.

## References

- https://thinkingmachines.ai/blog/defeating-nondeterminism-in-llm-inference/
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
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
    fault = Fault.EVALUATION_NOT_REPEATABLE
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
            "check whether the server overrides the temperature (its start options, generation_config.json), and"
            " whether it mixes up requests (send them one at a time)"
        )
        if is_harmless:
            remedy = (
                "compare scores over several runs, or switch batching off (vLLM: --max-num-seqs 1)"
            )
        margin = "not reported" if repeats.margin is None else f"{repeats.margin:.2g}"
        yield self.finding(
            f"the same request at temperature 0 gets {len(repeats.answers)} different answers:"
            f" {repeats.alone_differ} of {repeats.alone} consecutive and {repeats.together_differ} of"
            f" {repeats.together} concurrent requests differ from the first answer",
            remedy,
            severity="info" if is_harmless else "warning",
            evidence=[
                *(quote_shortened(text) for text in repeats.answers[:SHOWN_ANSWERS]),
                f"difference of the log-probabilities of the two best tokens where the answers diverge: {margin}",
            ],
        )
