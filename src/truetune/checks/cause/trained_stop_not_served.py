"""The model stops, and serving does not see it: its stop token is not among those that end an answer.

## What it does

Compares the stop tokens that answers are trained to end with (of the training record, else of the template and the
references) with those at which serving ends an answer: `eos_token_id` of generation_config.json, else of config.json,
else the tokenizer's EOS. It fires where one is missing and stands inside answers, or where it is likely behind the
references and half of the answers do not stop.

## Why it is bad

The model writes its stop token and is asked to go on. What follows was never trained: it plays the user, or says the
same again until the limit.

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

There is no automatic fix: write the id into `eos_token_id` of generation_config.json, beside those that stand there.
Engines that read no generation_config.json need it as a stop of the request.

## References

- vllm-project/vllm#4180, huggingface/trl#3299, huggingface/open-r1#663
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.answers.bad_answers import cases
from truetune.checks.cause.symptoms import describe_probability, endless
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CauseRule
from truetune.generation.answer_samples import Sample

LIKELY = 0.5


class TrainedStopNotServed(CauseRule):
    code = "CAU003"
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    spoils = "stop"
    file_rules = ("trained-stop-not-in-generation-config",)

    def unmet(self) -> Unmet | None:
        if self.subject.trained:
            return None
        return Unmet(
            "no stop token is known to be trained",
            "ask rows with references, or a run of truetune train",
        )

    def figure(self) -> str:
        found = self.subject
        served = sum(token in found.served for token in found.trained)
        samples = found.watched.looks[-1].samples
        written = sum(map(self._written, samples))
        return (
            f"{served:,} of {len(found.trained):,} trained stop tokens are served; an unserved one"
            f" stands in {written:,} of {len(samples):,} answers"
        )

    def findings(self) -> Iterator[Finding]:
        found = self.subject
        lost = [token for token in found.trained if token not in found.served]
        samples = found.watched.looks[-1].samples
        written = [sample for sample in samples if self._written(sample)]
        seen, mine = endless(found), found.stopping
        likely = seen is not None and mine is not None and mine.probability >= LIKELY
        if not lost or not (written or likely):
            return
        ids = ", ".join(str(token.id) for token in (*found.served, *lost))
        served = " and ".join(map(str, found.served)) or "nothing"
        evidence = [f"serving ends an answer at {served}"]
        if mine is not None:
            evidence.append(
                f"the probability of {lost[0]} behind the reference answers is {describe_probability(mine)}"
            )
        yield self.finding(
            f"the model stops with {lost[0]}, and serving goes on: it stands inside {len(written)}"
            f" of {len(samples)} answers",
            f'write "eos_token_id": [{ids}] into generation_config.json',
            evidence=evidence,
            cases=cases(written or (seen.samples if seen else ())),
            count=len(written),
            total=len(samples),
        )

    def _written(self, sample: Sample) -> bool:
        """Does a trained stop token that is not served stand inside an answer?"""
        lost = [token for token in self.subject.trained if token not in self.subject.served]
        return any(
            token.id in sample.answer.ids or token.text in sample.answer.text for token in lost
        )
