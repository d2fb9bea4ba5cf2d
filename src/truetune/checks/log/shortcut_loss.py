"""The loss is so low or settles so that something easier than the task was learned.

## What it does
Compares the loss with lower bounds. On rows that were not seen before (in the first epoch), no model gets near zero
unless there are few answers to choose from. The rule warns that the target must be in the input if the loss there

- falls below 0.005 and never jumps up again;
- falls below 2 % of the entropy of the supervised tokens, with the data given (`--data`) and most answers different;
- falls from above 1 to below 0.1, lower at nearly every record.

With the data it also checks two levels. A model that never reads the prompt has a loss of the entropy of whole answers
divided by their mean length. A model that only knows how frequent tokens are has their entropy. It warns if the loss
settles at the first while one answer makes up half of the examples, or at the second.

## Why it is bad
The curve looks perfect, but the model gives everybody the same answer, or copies. Causes are labels that are not
shifted, a mask that shows later tokens, or an answer that is in its own prompt.

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
`truetune show DATA` prints which tokens of a row are in the loss. Correcting the mask or the labels raises the loss,
and makes it mean something. Test the model on prompts whose answers it can't have seen.

## References
- huggingface/transformers#26474; Geirhos et al. 2020, arXiv 2004.07780 (shortcut learning)
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.reasons_rules_cannot_judge import LOG_MORE, OTHER_LOSS
from truetune.checks.rule import LogRule
from truetune.logs.facts_in_files_beside_log import LABELS_OF_PADS
from truetune.logs.robust_statistics import noise_sigma
from truetune.logs.run_log import Curve, Floats

MAX_NEW_EPOCH = 0.95
"""Epochs up to which rows are new"""
# Nats a token. Chosen, not measured: rows that are known by heart come down to about this; at double, data whose
# answers follow a template would fire.
MAX_KNOWN_LOSS = 0.005
LOW_LOSS, FIRST_LOSS = 0.1, 1.0
"""Nats/token: free text that was not seen before stays above 0.5 after any fine-tuning; where the first loss is below
the second, the run may continue an earlier one"""
# Losses of labels and short answers leap with each answer that was not known, however low they are.
MIN_FALLING, MIN_SMOOTH_RECORDS = 0.9, 10
"""Share of the records that are lower than the one before, and records, from which a curve falls without a leap"""
MAX_UNIGRAM_SHARE = 0.02
"""Share of the loss of token counts alone below which a loss is near zero, where that is more than MAX_KNOWN_LOSS.
Chosen by hand: texts of few different tokens have low losses by right, and a share follows that"""
UNKNOWN_ANSWER_LOSS = 0.1
"""Loss of a batch with an answer that was not known"""
MIN_ANSWER_SPREAD = 0.8
"""Entropy of whole answers, as a share of what it is where no two are alike, from which most of them differ"""


class ShortcutLoss(LogRule):
    code = "LOG010"
    fault = Fault.ANSWER_READABLE_FROM_PROMPT
    symptoms = ("nothing-is-learned", "odd-metrics")
    severity = "warning"
    since = "0.1.0"
    moot_where = ("loss-climbs-above-guessing",)
    kinds = ("language",)
    needs = ("loss",)
    least = 3

    def unmet(self) -> Unmet | None:
        """Also unmet where the loss is no token loss, or no loss on new rows and no data are known."""
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if not self.subject.is_loss_of_token_prediction:
            return OTHER_LOSS
        if not self.subject.epochs_at_end:
            return Unmet("the log has no epoch", "log the epoch, as transformers does")
        if self._losses_of_first_epoch().size or self.subject.data is not None:
            return None
        return Unmet("no loss was logged before the first epoch ended", LOG_MORE)

    def measurement_if_clean(self) -> str:
        """The lowest loss on new rows, beside the losses of knowing only answers or token counts."""
        loss, data = self._losses_of_first_epoch(), self.subject.data
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

    def _losses_of_first_epoch(self) -> Floats:
        """The losses before the first epoch ended, whose rows were new."""
        loss = self.subject.curve("loss").finite()
        return loss.value[self.subject.epoch_at(loss.step) < MAX_NEW_EPOCH]

    def findings(self) -> Iterator[Finding]:
        log = self.subject
        loss, data = log.curve("loss").finite(), log.data
        if not log.is_loss_of_token_prediction or loss.step.size < 3 or not log.epochs_at_end:
            return
        near_zero = self._step_of_near_zero(loss)
        if near_zero is not None:
            yield self._finding_on_near_zero(loss, near_zero)
        elif self._falls_to_copying(loss):
            yield self._finding_on_near_zero(
                loss, float(loss.step[self._losses_of_first_epoch().size - 1]), is_sure=False
            )
        if data is None:
            return
        if data.commonest >= 0.5 and self._settles_at_level(loss, data.answer, 0.1):
            yield self._finding_on_level(
                loss,
                data.answer,
                f"never reads the prompt: {data.commonest:.0%} of the examples have the same"
                " answer",
                "remove copies of the most common answer, and test with prompts that need another one",
            )
        if self._settles_at_level(loss, data.unigram, 0.03):
            yield self._finding_on_level(
                loss,
                data.unigram,
                "knows only how frequent each token is",
                "raise learning_rate if it is low, or lower it if it is high; check that the prompt is in the input"
                " and is not masked by the attention mask",
            )

    def _answers_differ(self) -> bool:
        """Do most answers differ, so that a low loss on new rows can't be had by knowing them? False without data."""
        data = self.subject.data
        if data is None:
            return False
        most = data.examples * np.log(data.examples)
        return bool(data.answer * data.supervised > MIN_ANSWER_SPREAD * most)

    def _step_of_near_zero(self, loss: Curve) -> float | None:
        """The step from which on the loss stays near zero on rows that are new; None where it does not."""
        data, differ = self.subject.data, self._answers_differ()
        is_new = self.subject.epoch_at(loss.step) < MAX_NEW_EPOCH
        is_new &= ~_are_zeros_hidden_nans(loss, self.subject.curve("grad_norm"))
        new = Curve(loss.step[is_new], loss.value[is_new])
        floor = MAX_KNOWN_LOSS
        if data is not None and differ:
            floor = max(MAX_KNOWN_LOSS, MAX_UNIGRAM_SHARE * data.unigram)
        is_low = new.value < floor
        if not new:
            return None
        stays = is_low.sum() >= 3 and is_low[-3:].all() and new.value[0] > 10 * floor
        if not stays:
            return None
        first = int(np.argmax(is_low))
        # Without the data, few answers to choose from would look the same: one that was not known makes a leap.
        never_leaps = data is None and new.value[first:].max() < UNKNOWN_ANSWER_LOSS
        return float(new.step[first]) if differ or never_leaps else None

    def _falls_to_copying(self, loss: Curve) -> bool:
        """Does the loss fall to hundredths on new rows, and without a leap, as where each target can be copied?"""
        new = self._losses_of_first_epoch()
        if self.subject.data is not None and not self._answers_differ():
            return False
        if new.size < MIN_SMOOTH_RECORDS or new[0] < FIRST_LOSS or new[-3:].max() > LOW_LOSS:
            return False
        falling = float((np.diff(new) < 0).mean())
        # Rows that are seen again can't be told from those that are known by heart.
        return falling >= MIN_FALLING and bool(loss.value[-1] <= new[-1])

    def _finding_on_near_zero(self, loss: Curve, step: float, *, is_sure: bool = True) -> Finding:
        """The finding of a loss near zero on new rows, from `step` on."""
        log, data = self.subject, self.subject.data
        new = loss.value[log.epoch_at(loss.step) < MAX_NEW_EPOCH]
        doubt = (
            ", or there are few answers to choose from, or most labels are padding or placeholders"
            " (--data DATA -t TOKENIZER shows which)"
        )
        evidence = [
            f"near zero from {log.unit_of_steps} {step:,.0f} on (epoch {log.epoch_at(step):.2g})"
        ]
        if not is_sure:
            evidence = [f"it fell from {new[0]:.3g} in {new.size:,} records, without a jump"]
        of_pads = next(log.files_beside.settings_named(LABELS_OF_PADS), None)
        if of_pads is not None:
            evidence.append(f"{of_pads.place}: {of_pads.value}")
        if data is not None:
            evidence.append(f"entropy of the supervised tokens: {data.unigram:.3g} per token")
        cause = f"the input contains the target{'' if data is not None else doubt}"
        remedy = (
            "check labels and mask: a hand-written attention mask without a causal part (tril), labels that are"
            " shifted twice, answers that are in their prompts, padding that has labels"
        )
        if of_pads is not None:
            cause = f"{of_pads.place} leaves labels on padding, which is easy to predict"
            remedy = (
                f"change {of_pads.place} ({of_pads.text}): make the labels before the padding, and let the"
                " collator pad both; then train again from the base"
            )
        return self.finding(
            f"the loss is {new[-1]:.3g} on rows that were not seen before: {cause}",
            remedy,
            evidence=evidence,
            figure=draw_curves("loss", {"loss": loss}, {"near zero": step}, log=True),
        )

    def _settles_at_level(self, loss: Curve, floor: float, near: float) -> bool:
        """Do the last two fifths stay at this level, after a beginning far above it?"""
        k = max(3, loss.value.size // 5)
        middle, tail = np.split(loss.value[-2 * k :], [k])
        room = near * floor + 2 * noise_sigma(loss.value) / np.sqrt(k)
        stays = abs(np.median(tail) - floor) <= room and abs(np.median(middle) - floor) <= room
        return bool(
            stays and loss.value.size >= 4 * k and loss.value[0] > max(1.2 * floor, floor + room)
        )

    def _finding_on_level(self, loss: Curve, floor: float, of: str, remedy: str) -> Finding:
        """The finding of a loss that stays at `floor`, which is that of a model `of` this kind."""
        return self.finding(
            f"the loss settles at {np.median(loss.value[-3:]):.3g}, close to that of a model ({floor:.3g})"
            f" that {of}",
            remedy,
            figure=draw_curves(
                "loss", {"loss": loss, "floor": Curve(loss.step, np.full(loss.step.size, floor))}
            ),
        )


def _are_zeros_hidden_nans(loss: Curve, norm: Curve) -> NDArray[np.bool_]:
    """(points,) whether a loss of exactly 0 has no finite gradient norm beside it: transformers logs a NaN so."""
    if not norm:
        return np.zeros(loss.step.size, dtype=np.bool_)
    hidden: NDArray[np.bool_] = (loss.value == 0) & ~np.isfinite(norm.at(loss.step))
    return hidden
