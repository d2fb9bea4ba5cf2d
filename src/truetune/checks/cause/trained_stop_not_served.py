"""The model writes its stop token, but the server does not stop there.

## What it does
Compares the stop tokens that answers are trained to end with (from the training record, otherwise from the template and
the references) with those at which serving ends an answer: `eos_token_id` in generation_config.json, otherwise in
config.json, otherwise the tokenizer's EOS. It fires if one is missing and occurs inside answers, or if it is likely
after the references and half of the answers do not stop.

## Why it is bad
The model writes its stop token and has to continue. It was never trained on what follows: it plays the user, or repeats
itself until the limit.

## Example

```yaml
look: {stopped: 0, answers: "Three figs.<|im_end|>user: Where?"}
trained: [<|im_end|>]
served: [<|endoftext|>]
stopping: {probability: 0.96, rank: 0}
```

## Use instead

```yaml
look: {stopped: 8}
trained: [<|im_end|>]
served: [<|im_end|>, <|endoftext|>]
stopping: {probability: 0.96, rank: 0}
```

## Fix safety
There is no automatic fix: add the id to `eos_token_id` in generation_config.json. Engines that do not read
generation_config.json need it as a stop token in the request. Answers get shorter; nothing else changes.

## References

- vllm-project/vllm#4180, huggingface/trl#3299, huggingface/open-r1#663
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.answers.count_bad_answers_per_pass import cases_of_samples
from truetune.checks.cause.count_endless_or_garbage_answers import (
    describe_stop_probability,
    endless_answers_where_at_least_half,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CauseRule
from truetune.generation.answer_samples import Sample
from truetune.generation.evidence_on_causes_of_answers import ControlToken

# P(stop) after the reference: more likely than all other tokens together.
LEARNED_STOP_PROBABILITY = 0.5


class TrainedStopNotServed(CauseRule):
    code = "CAU003"
    fault = Fault.GENERATION_PASSES_TRAINED_STOP
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    spoils = "stop"
    file_rules = ("trained-stop-not-in-generation-config",)

    def unmet(self) -> Unmet | None:
        if self.subject.trained:
            return None
        return Unmet(
            "it is not known which stop token was trained",
            "ask rows with references, or a run of truetune train",
        )

    def measurement_if_clean(self) -> str:
        """How many trained stop tokens are served, and how many answers hold one that is not."""
        subject = self.subject
        served = sum(token in subject.served for token in subject.trained)
        samples = subject.watched.looks[-1].samples
        with_stop = self._answers_with_unserved_stop()
        return (
            f"{served:,} of {len(subject.trained):,} trained stop tokens are served;"
            f" {len(with_stop):,} of {len(samples):,} answers contain an unserved one"
        )

    def findings(self) -> Iterator[Finding]:
        subject, unserved = self.subject, self._unserved_stops()
        if not unserved:
            return
        with_stop = self._answers_with_unserved_stop()
        endless = endless_answers_where_at_least_half(subject)
        # A model that writes no stop token in so many tokens may still know it: then answers were cut too early.
        if not with_stop and not (endless and self._is_stop_learned()):
            return
        ids = ", ".join(str(token.id) for token in (*subject.served, *unserved))
        served = " and ".join(map(str, subject.served)) or "nothing"
        evidence = [f"serving ends an answer at {served}"]
        if subject.stopping is not None:
            probability = describe_stop_probability(subject.stopping)
            evidence.append(
                f"the probability of {unserved[0]} after the reference answers is {probability}"
            )
        total = len(subject.watched.looks[-1].samples)
        yield self.finding(
            f"the model ends its answers with {unserved[0]}, but serving continues: the token is inside"
            f" {len(with_stop)} of {total} answers",
            f'set "eos_token_id": [{ids}] in generation_config.json',
            evidence=evidence,
            cases=cases_of_samples(with_stop or (endless.samples if endless else ())),
            count=len(with_stop),
            total=total,
        )

    def _unserved_stops(self) -> list[ControlToken]:
        """Stop tokens that were trained and do not end an answer when served."""
        return [token for token in self.subject.trained if token not in self.subject.served]

    def _is_stop_learned(self) -> bool:
        """Is the stop token likely behind the references?"""
        stopping = self.subject.stopping
        return stopping is not None and stopping.probability >= LEARNED_STOP_PROBABILITY

    def _answers_with_unserved_stop(self) -> list[Sample]:
        """Answers in which a trained stop token that is not served stands."""
        unserved = self._unserved_stops()
        # By its text as well: a server tells no ids.
        return [
            sample
            for sample in self.subject.watched.looks[-1].samples
            if any(
                token.id in sample.answer.ids or token.text in sample.answer.text
                for token in unserved
            )
        ]
