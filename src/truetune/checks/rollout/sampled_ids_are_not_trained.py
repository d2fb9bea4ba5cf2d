"""The ids that are trained are not those that were sampled.

## What it does

Compares what the sampler gave for each completion with the ids in the loss, token by token, up to the sampler's stop.
It is not judged where the sampler's own ids are not known: in a rollout function of your own, and where tools take
part.

## Why it is bad

A completion that is decoded and encoded again is another sequence of tokens wherever the model did not sample the
spelling that the tokenizer prefers. Its log-probabilities under the policy are low, the ratio of policy and sampler
means nothing, and special tokens may be lost on the way.

## Example

```python
class Retokenized(trl.GRPOTrainer):
    def _generate_single_turn(self, *args, **kwargs):
        ids, logprobs = super()._generate_single_turn(*args, **kwargs)
        texts = self.processing_class.batch_decode(ids, skip_special_tokens=True)
        again = self.processing_class(texts)["input_ids"]
        return [one + [self.processing_class.eos_token_id] for one in again], logprobs

run = grpo(Retokenized)
```

## Use instead

```python
run = grpo(trl.GRPOTrainer)
```

## Fix safety

There is no automatic fix: hand the sampler's ids on, and decode for the reward functions alone.

## References

- huggingface/trl#5224, rllm-org/rllm#816
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.auditing.rollout_run import Completion, RolloutRun
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rollout.evidence.reasons_rollouts_cannot_judge import NO_SAMPLED_IDS
from truetune.checks.rule import RolloutRule

SHOWN_TOKENS = 4
"""Tokens from the first difference on that a case shows"""


class SampledIdsAreNotTrained(RolloutRule):
    code = "ROL001"
    fault = Fault.TRAINED_COMPLETIONS_NOT_AS_SAMPLED
    severity = "error"
    symptoms = ("agent-training", "reward-does-not-rise")

    def __init__(self, subject: RolloutRun) -> None:
        super().__init__(subject)
        self.compared = 0

    def unmet(self) -> Unmet | None:
        return super().unmet() or (None if self.compared else NO_SAMPLED_IDS)

    def findings(self) -> Iterator[Finding]:
        cases: list[Case] = []
        for completion in self.subject.completions():
            if completion.places is None:
                continue
            self.compared += 1
            place = _first_difference(completion)
            if place is not None:
                cases.append(Case(self._describe_difference(completion, place)))
        if not cases:
            return
        yield self.finding(
            f"{len(cases):,} of {self.compared:,} completions are trained with other ids than were sampled",
            "train the ids that the sampler gave; decode them for the reward functions alone",
            cases=cases,
            count=len(cases),
            total=self.compared,
        )

    def measurement_if_clean(self) -> Measurement:
        """How many completions differ."""
        return make_count_measurement(
            "completions whose ids differ from the sampled ones", 0, self.compared
        )

    def _describe_difference(self, completion: Completion, place: int) -> str:
        """Where two sequences of ids part, and what stands there."""
        end = place + SHOWN_TOKENS
        sampled = self.subject.text((completion.sampled or ())[place:end])
        trained = self.subject.text(_trained_from(completion, place)[:SHOWN_TOKENS])
        return f"{completion.place}, token {place}: sampled {sampled!r}, trained {trained!r}"


def _first_difference(completion: Completion) -> int | None:
    """The first of the sampled tokens that is trained otherwise; None where all are the same."""
    sampled = np.asarray(completion.sampled or (), np.int64)
    trained = completion.ids[completion.places]
    if len(trained) < len(sampled):
        return len(trained)
    differs = np.flatnonzero(trained != sampled)
    return int(differs[0]) if differs.size else None


def _trained_from(completion: Completion, place: int) -> list[int]:
    """The ids that are trained from a sampled token on."""
    places = completion.places
    start = place if places is None or place >= len(places) else int(places[place])
    trained: list[int] = completion.ids[start:].tolist()
    return trained
