"""The run begins with a loss above that of guessing: the model or its labels are not what they seem.

## What it does
Compares the lowest of the first three losses with ln(vocabulary), the loss of a model that holds every token for
equally likely: it fires above 1.2 times that. The vocabulary comes from the config.json beside the log, or the data's
tokenizer; where neither is known, it is taken to be a million, and the finding is a warning. Models that predict no
tokens (by the class in config.json) are left alone. So is a loss that `loss-is-a-sum` explains. A loss that comes down
below half of guessing within the run, with an evaluation loss to match, was that of a model that had never been run
like this (mT5, whose head was not trained on whole texts, begins at 25): a note where the vocabulary is known, and
nothing where it is not.

## Why it is bad
A trained model begins far below guessing, an untrained one at it. Above it stand: labels of another tokenizer,
weights that were not loaded, ids beyond what the model knows, or a loss that is summed instead of averaged (over
accumulated batches where a custom `compute_loss` takes `num_items_in_batch` and ignores it), with gradients as many
times too big.

## Example
```yaml
log:
  - {step: 1, loss: 47.1}
  - {step: 2, loss: 46.4}
  - {step: 3, loss: 46.0}
config: {vocab_size: 32000}
```

## Use instead
```yaml
log:
  - {step: 1, loss: 2.1}
  - {step: 2, loss: 2.0}
  - {step: 3, loss: 1.9}
config: {vocab_size: 32000}
```

## Fix safety
Evaluate the model before training: if that loss is sane, the training loss is summed.

## References
- huggingface/transformers#34191, huggingface/transformers#35438, huggingface/trl#2175
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from truetune.checks.findings import Finding
from truetune.checks.log.drawing import figure
from truetune.checks.rule import LogRule
from truetune.logs.log import Curve
from truetune.logs.sums import summed_over

TIMES = 1.2
MOST = 1_000_000


class LossAboveUniform(LogRule):
    code = "TT821"
    severity = "error"
    kinds = ("language",)
    needs = ("loss",)

    def findings(self) -> Iterator[Finding]:
        log = self.subject
        loss = log.curve("loss").finite()
        size = log.number("vocab_size") or (log.data.vocabulary if log.data else None)
        known = size is not None and size > 1
        guess = math.log(size if size is not None and known else MOST)
        if not log.of_tokens or not loss:
            return
        first = float(loss.value[:3].min())
        recovers = self._recovers(guess)
        if first <= TIMES * guess or summed_over(log) or (recovers and not known):
            return
        times = round(first / guess, 1)
        evaluated = log.curve("eval_loss").finite()
        yield self.finding(
            f"the loss begins at {first:.4g}, {times:g} times the {guess:.4g} of a model that guesses"
            + (f" among {size:,.0f} tokens" if known else " (the vocabulary is not known)"),
            "see that the labels are the model's own ids and its weights were loaded, and that the loss is a mean",
            severity="info" if recovers else "error" if known else "warning",
            evidence=(f"eval_loss is {evaluated.value[0]:.4g} at step {evaluated.step[0]:,.0f}",) if evaluated else (),
            figure=figure("loss", {"loss": loss, "guessing": Curve(loss.step, np.full(loss.step.size, guess))}),
        )

    def _recovers(self, guess: float) -> bool:
        """Does the loss come down below half of guessing, and that of the evaluations as well?"""
        loss, evaluated = self.subject.curve("loss").finite(), self.subject.curve("eval_loss").finite()
        last = float(np.median(loss.value[-3:]))
        agrees = bool(evaluated) and bool(evaluated.value[-1] < guess / 2)
        return loss.step.size > 3 and last < guess / 2 and agrees
