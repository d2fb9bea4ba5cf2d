"""The weights make no language model: reference answers are about as unlikely as chance makes them.

## What it does

Takes the mean log-probability of the tokens of some reference answers, after their prompts. It fires above 7
nats/token, or where it is not a number.

## Why it is bad

Language models give sound text 1 to 4 nats/token, in languages they hardly know up to 6; chance gives the logarithm
of the vocabulary, 10 to 12. What is above 7 holds random, damaged or shuffled weights, or was given the ids of another
tokenizer.

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

There is no automatic fix: load the model with its own tokenizer, look at its files (`truetune check`), and copy it
again from where it was trained.

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
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CauseRule

# Nats a token, between sound text in a language that a model hardly knows (up to 6) and chance (10 to 12, the logarithm
# of the vocabulary): see the page.
MAX_NATS_OF_LANGUAGE = 7.0


class NoLanguageLeft(CauseRule):
    code = "CAU011"
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
                f"the references have {reference_loss:.3g} nats/token, and the answers are text: they"
                " may be of another task",
                "name rows of its own task (--data)",
            )
        return None

    def measurement_if_clean(self) -> str:
        """The loss of the reference answers, beside that of chance."""
        return (
            f"the reference answers have {self.subject.reference_loss:.3g} nats/token; chance has"
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
            f"the weights make no language model: the reference answers have {reference_loss:.3g}"
            " nats/token",
            "use the model's own tokenizer and whole weights; compare their files with where they"
            " come from",
            evidence=["sound text has 1 to 4 nats/token, and chance about 11"],
        )

    def _are_answers_no_text_either(self) -> bool:
        """Are the answers no text either? Else the references are of another task."""
        samples = self.subject.watched.looks[-1].samples
        bad = sum(
            is_garbage_or_empty(sample) or sample.scores.looped or not sample.scores.stopped
            for sample in samples
        )
        return bad >= FAILING_SHARE * len(samples)
