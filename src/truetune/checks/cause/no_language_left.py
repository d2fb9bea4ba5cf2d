"""The model gives correct answers about the probability of random tokens: its weights or its tokenizer are wrong.

## What it does
Takes the mean loss (negative log-probability) of the tokens of some reference answers, after their prompts. It fires
above 7 per token, or if it is not a number.

## Why it is bad
Language models give correct text a loss of 1 to 4 per token, up to 6 in languages that they hardly know. Random
guessing gives the logarithm of the vocabulary size, 10 to 12. Above 7, the weights are random, damaged or shuffled, or
the model gets the ids of another tokenizer.

## Example

```yaml
look: {stopped: 0, garbage: 8}
reference_loss: 9.4
```

## Use instead

```yaml
look: {stopped: 8}
reference_loss: 1.7
```

## Fix safety
There is no automatic fix: load the model with its own tokenizer, check its files (`truetune check MODEL`), and copy it
again from where it was trained. If the loss is normal with the tokenizer of the base model, the tokenizer was wrong;
otherwise the weights are.

## References

- Shannon 1951, Prediction and Entropy of Printed English
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

from truetune.checks.cause.count_endless_or_garbage_answers import (
    FAILING_SHARE,
    is_garbage_or_empty,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CauseRule

# Nats a token, between sound text in a language that a model hardly knows (up to 6) and chance (10 to 12, the logarithm
# of the vocabulary): see the page.
MAX_NATS_OF_LANGUAGE = 7.0


class NoLanguageLeft(CauseRule):
    code = "CAU011"
    fault = Fault.MODEL_BROKEN_BEFORE_TRAINING
    severity = "error"
    since = "0.1.0"
    spoils = "model"
    file_rules = (
        "nan-in-weights",
        "weights-all-zero",
        "tensors-missing",
        "weights-file-broken",
        "adapter-on-another-base",
        "weights-changed-since-training",
        "tokenizer-differs-from-base",
    )

    def unmet(self) -> Unmet | None:
        reference_loss = self.subject.reference_loss
        if reference_loss is None:
            return Unmet(
                "log-probabilities of references are not known",
                "ask rows with references, and the model's files",
            )
        if reference_loss > MAX_NATS_OF_LANGUAGE:
            return Unmet(
                f"the references have a loss of {reference_loss:.3g} per token, but the answers are text: the"
                " references may be for another task",
                "use rows of the model's own task (--data)",
            )
        return None

    def measurement_if_clean(self) -> str:
        """The loss of the reference answers, beside that of chance."""
        return (
            f"the reference answers have a loss of {self.subject.reference_loss:.3g} per token; random guessing has"
            " about 11"
        )

    def findings(self) -> Iterator[Finding]:
        reference_loss = self.subject.reference_loss
        if reference_loss is None or reference_loss <= MAX_NATS_OF_LANGUAGE:
            return
        # References of another task are unlikely too; but then the answers are text. NaN needs no second witness.
        if isfinite(reference_loss) and not self._are_answers_no_text_either():
            return
        yield self.finding(
            "the weights or the tokenizer are wrong: the model gives the reference answers a loss of"
            f" {reference_loss:.3g} per token",
            "check the files with `truetune check MODEL`; load the model with its own tokenizer, and if the loss"
            " stays this high, copy the weights again from where they were trained",
            evidence=["correct text has a loss of 1 to 4 per token, random guessing about 11"],
        )

    def _are_answers_no_text_either(self) -> bool:
        """Are the answers no text either? Else the references are of another task."""
        samples = self.subject.watched.looks[-1].samples
        bad = sum(
            is_garbage_or_empty(sample) or sample.scores.looped or not sample.scores.stopped
            for sample in samples
        )
        return bad >= FAILING_SHARE * len(samples)
