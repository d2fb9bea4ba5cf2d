"""The loss says that something easier than the task was learned: a constant answer, or a target that can be seen.

## What it does
Compares the loss with floors. On rows that were not seen yet (before the first epoch ends) no model comes near zero,
unless there are few answers to choose from: a loss that goes below 0.005 there and never leaps again, or, with the data
(`--data`), one below 2 % of the entropy of the supervised tokens where most answers are different ones, means that the
target stands in the input. With the data, two more: the loss of a model that never
reads the prompt is the entropy of whole answers over their mean length; the loss of one that knows only how frequent
tokens are is their entropy. A loss that settles at the first while one answer makes up half of the examples, or at the
second, learned no more than that.

## Why it is bad
The curve looks perfect. The model answers everybody the same, or copies: labels that are not shifted, a mask that
lets later tokens be seen, an answer that stands in its own prompt.

## Example
```yaml
curve:
  loss: {values: [5.7, 0.5, 0.01, 0.002, 0.001], steps: 100}
  epoch: {from: 0.01, to: 0.9, steps: 100}
```

## Use instead
```yaml
curve:
  loss: {values: [5.7, 2.5, 2.0, 1.8, 1.7], steps: 100}
  epoch: {from: 0.01, to: 0.9, steps: 100}
```

## Fix safety
`truetune show` draws what a row supervises. Test the model on prompts whose answers it can't have seen.

## References
- huggingface/transformers#26474; Geirhos et al. 2020, arXiv 2004.07780 (shortcut learning)
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.drawing import figure
from truetune.checks.rule import LogRule
from truetune.checks.unmet import LOG_MORE, OTHER_LOSS
from truetune.logs.log import Curve, Floats
from truetune.logs.stats import noise

UNSEEN = 0.95
"""Epochs up to which rows are new"""
LOW = 0.005
OF_UNIGRAM = 0.02
LEAP = 0.1
"""Loss of a batch with an answer that was not known"""
DIFFER = 0.8
"""Entropy of whole answers, as a share of what it is where no two are alike, from which most of them differ"""


class ShortcutLoss(LogRule):
    code = "TT808"
    severity = "warning"
    moot_where = ("loss-climbs-above-guessing",)
    kinds = ("language",)
    needs = ("loss",)
    least = 3

    def unmet(self) -> Unmet | None:
        if unmet := super().unmet():
            return unmet
        if not self.subject.of_tokens:
            return OTHER_LOSS
        if not self.subject.epochs:
            return Unmet("the log has no epoch", "log the epoch, as transformers does")
        if self._unseen().size or self.subject.data is not None:
            return None
        return Unmet("no loss was logged before the first epoch ended", LOG_MORE)

    def figure(self) -> str:
        loss, data = self._unseen(), self.subject.data
        lowest = (
            f"the loss on rows not seen before is {loss.min():.4g} at the lowest"
            if loss.size
            else "no row is new"
        )
        if data is None:
            return lowest
        return (
            f"{lowest}; knowing the answers alone gives {data.answer:.3g}, token counts alone"
            f" {data.unigram:.3g}"
        )

    def _unseen(self) -> Floats:
        """The losses before the first epoch ended."""
        loss = self.subject.curve("loss").finite()
        return loss.value[self.subject.epoch_at(loss.step) < UNSEEN]

    def findings(self) -> Iterator[Finding]:
        log = self.subject
        loss, data = log.curve("loss").finite(), log.data
        if not log.of_tokens or loss.step.size < 3 or not log.epochs:
            return
        epoch = log.epoch_at(loss.step)
        new = Curve(loss.step[epoch < UNSEEN], loss.value[epoch < UNSEEN])
        differ = (
            data is not None
            and data.answer * data.supervised > DIFFER * data.examples * np.log(data.examples)
        )
        floor = max(LOW, OF_UNIGRAM * data.unigram) if data is not None and differ else LOW
        low = new.value < floor
        stays = low.sum() >= 3 and low[-3:].all() and new.value[0] > 10 * floor
        if stays and (differ or (data is None and new.value[np.argmax(low) :].max() < LEAP)):
            step = float(new.step[np.argmax(low)])
            doubt = (
                ", or there are few answers to choose from, or most labels are padding or"
                " placeholders (--data tells)"
            )
            yield self.finding(
                f"the loss is {new.value[-1]:.3g} on rows that were not seen before: the target"
                " stands in the input" + ("" if data else doubt),
                "look at labels and mask: labels that are not shifted, attention to later tokens,"
                " answers in prompts",
                evidence=(
                    f"near zero from step {step:,.0f} on (epoch {log.epoch_at(step):.2g})",
                    *(
                        (f"entropy of the supervised tokens: {data.unigram:.3g} nats",)
                        if data
                        else ()
                    ),
                ),
                figure=figure("loss", {"loss": loss}, {"near zero": step}, log=True),
            )
        if data is not None and data.commonest >= 0.5 and self._settles(loss, data.answer, 0.1):
            yield self._level(
                loss,
                data.answer,
                f"never reads the prompt: {data.commonest:.0%} of the examples have the same"
                " answer",
                "thin out the most common answer, and test with prompts that need another one",
            )
        if data is not None and self._settles(loss, data.unigram, 0.03):
            yield self._level(
                loss,
                data.unigram,
                "knows only how frequent each token is",
                "raise the learning rate, or lower it if it is high; see that the prompt is"
                " attended to",
            )

    def _settles(self, loss: Curve, floor: float, near: float) -> bool:
        """Do the last two fifths stay at this level, after a beginning far above it?"""
        middle, tail = np.split(loss.value[-2 * (k := max(3, loss.value.size // 5)) :], [k])
        room = near * floor + 2 * noise(loss.value) / np.sqrt(k)
        stays = abs(np.median(tail) - floor) <= room and abs(np.median(middle) - floor) <= room
        return bool(
            stays and loss.value.size >= 4 * k and loss.value[0] > max(1.2 * floor, floor + room)
        )

    def _level(self, loss: Curve, floor: float, of: str, remedy: str) -> Finding:
        return self.finding(
            f"the loss settles at {np.median(loss.value[-3:]):.3g}, that ({floor:.3g}) of a model"
            f" that {of}",
            remedy,
            figure=figure(
                "loss", {"loss": loss, "floor": Curve(loss.step, np.full(loss.step.size, floor))}
            ),
        )
