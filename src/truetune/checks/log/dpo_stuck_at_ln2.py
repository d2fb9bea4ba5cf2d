"""A preference run stays at ln 2: the policy never moves away from its reference.

## What it does
Reads `rewards/margins`. It fires if every margin is exactly 0; if `logps/chosen` and `logps/rejected` are exactly 0 as
well, no token of an answer is in the loss. It warns if, over twenty records or more, the margin rises by less than 0.01
(by the 95 % interval of its slope) and the loss stays within 0.01 of ln 2 = 0.6931.

The log often excludes causes, and those are not advised. Near a margin m of 0 the loss is ln 2 - (1 - 2e) m / 2, with e
the label smoothing, so loss and margin together show e. A log without margins (LLaMA-Factory's) is judged by loss and
accuracy. It warns if they stay at ln 2 and 0.5 over ten records or more at a learning rate that trains an adapter: the
labels of the pairs are random or contradict each other.

## Why it is bad
The model learns nothing, and the run ends as if all was well. Causes are chosen answers that equal the rejected ones,
labels that contradict each other, a frozen adapter, or a learning rate that is too low.

## Example
```yaml
curve:
  loss: {from: 0.693147, steps: 24}
  rewards/margins: {from: 0.0, steps: 24}
  rewards/accuracies: {from: 0.0, steps: 24}
```

## Use instead
```yaml
curve:
  loss: {from: 0.693147, to: 0.55, steps: 24, noise: 0.005}
  rewards/margins: {from: 0.0, to: 0.5, steps: 24, noise: 0.01}
  rewards/accuracies: {from: 0.5, to: 0.7, steps: 24, noise: 0.02}
```

## Fix safety
Usual learning rates are 5e-7 to 5e-6 for full fine-tuning and 5e-6 to 5e-5 for LoRA, with a beta of 0.1. Checking the
pairs changes nothing; a higher learning rate moves the model further from its reference.

## References
- OpenRLHF/OpenRLHF#1311, hiyouga/LlamaFactory#5325, huggingface/alignment-handbook#46; Rafailov et al. 2023, arXiv
  2305.18290
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.reasons_rules_cannot_judge import LOGGED_BY, explain_too_short_curve
from truetune.checks.rule import LogRule
from truetune.logs.dpo_settings_from_curves import all_logps_are_zero, estimate_label_smoothing
from truetune.logs.robust_statistics import fit_robust_trend, warmup_slope
from truetune.logs.run_log import Curve

MIN_POINTS = 20
"""Records of the margin. Chosen by hand: the mean over the second half has ten of them for its interval; with fewer,
a run in its warm-up would be named"""
RISE = 0.01
"""Of the margin, and of the loss about ln 2. Chosen, not measured: a margin of 0.01 lowers the loss by 0.005"""
LOW_RATE, RISE_AT_LOW_RATE = 1e-6, 0.02
"""A peak rate below what LoRA needs by five times or more, and the margin that is still none at it: all weights at 5e-7
reach 0.1 and more in an epoch, an adapter about 0.01"""
TOLD_APART = 0.8
"""Accuracy from which pairs are told apart: a small beta makes small margins"""


MIN_ACCURACIES = 10
"""Records with an accuracy from which a log without margins is judged"""
# Chosen, not measured: 20 records of 8 pairs have a standard error of 0.04 about 0.5.
NEAR_HALF = 0.06
MOVES = 0.002
"""Standard deviation of the loss about ln 2 from which the policy does move: the loss of one that does not is 0.6931"""
CONTRADICTORY = (
    "check whether the labels of the pairs are random or contradict each other: a column that names the winner and is"
    " not read, each pair in both orders, A and B instead of better and worse (`truetune check .` reads the rows)"
)
CANCELS = 0.4
"""Label smoothing from which a fifth or less of the gradient is left; 0.5 leaves none"""
USUAL_RATE = 5e-6
"""The lower end for LoRA, above the usual for all weights"""


class DpoStuckAtLn2(LogRule):
    code = "LOG024"
    fault = Fault.PREFERENCES_NOT_LEARNED
    severity = "error"
    since = "0.1.0"
    kinds = ("preference", "reinforcement")
    least = 3

    def unmet(self) -> Unmet | None:
        """Also unmet where the log has neither enough margins nor enough accuracies to judge by."""
        if (lacking := super().unmet()) is not None:
            return lacking
        if (
            self.count_finite_records("rewards/margins") >= self.least
            or self._has_enough_accuracies()
        ):
            return None
        if not self.count_finite_records("rewards/margins"):
            return Unmet("the log has no rewards/margins", LOGGED_BY["rewards/margins"])
        return explain_too_short_curve(
            self.count_finite_records("rewards/margins"), self.least, "rewards/margins"
        )

    def _has_enough_accuracies(self) -> bool:
        """Are there enough accuracies to judge a log by them, beside a loss?"""
        accuracies = self.count_finite_records("rewards/accuracies")
        return accuracies >= MIN_ACCURACIES and self.count_finite_records("loss") >= MIN_ACCURACIES

    def measurement_if_clean(self) -> str:
        """The reward margin (or the accuracy) and the loss at the end, beside ln 2."""
        margins, loss = (self.subject.curve(name).finite() for name in ("rewards/margins", "loss"))
        if not margins:
            right = self.subject.curve("rewards/accuracies").finite()
            return (
                f"the accuracy of pairs ends at {np.median(right.value[-5:]):.2f} and the loss at"
                f" {np.median(loss.value[-5:]):.4g} (ln 2 = 0.6931)"
            )
        text = (
            f"the reward margin ends at {np.median(margins.value[-5:]):.3g} after"
            f" {margins.step.size:,} records"
        )
        return text + (
            f", the loss at {np.median(loss.value[-5:]):.4g} (ln 2 = 0.6931)" if loss else ""
        )

    def findings(self) -> Iterator[Finding]:
        log = self.subject
        margins, loss = log.curve("rewards/margins").finite(), log.curve("loss").finite()
        norm = log.curve("grad_norm")
        if margins.step.size < self.least:
            yield from self._findings_without_margins(loss)
            return
        exact = not margins.value.any()
        if exact and all_logps_are_zero(self.subject):
            yield self.finding(
                f"every log-probability of the answers is exactly 0 over {margins.step.size:,} records: no token of"
                " an answer is in the loss",
                "raise max_length, or remove rows with long prompts (truetune check DATA -t TOKENIZER --max-length"
                " LIMIT counts them); if no answer is cut off, check that the completion is not masked (truetune run --"
                " COMMAND)",
                evidence=(
                    "a log-probability is a sum over the answer's tokens, and 0 means no token: the prompt fills the"
                    " limit and the answer is cut off, or the whole answer is masked",
                ),
                figure=draw_curves("reward margin", {"rewards/margins": margins}),
            )
        elif exact:
            frozen = bool(norm) and not norm.value.any()
            yield self.finding(
                f"every reward margin is exactly 0 over {margins.step.size:,} records: chosen and"
                " rejected are the same, or no weight is trained",
                "compare chosen with rejected after truncation (truetune check DATA -t TOKENIZER --max-length LIMIT);"
                " if they differ, check that the adapter is trainable (truetune run -- COMMAND)",
                evidence=("every gradient norm is 0 as well",) if frozen else (),
                figure=draw_curves("reward margin", {"rewards/margins": margins}),
            )
        elif margins.step.size >= MIN_POINTS and self._margin_and_loss_stay_at_start(margins, loss):
            rate = log.curve("learning_rate").finite()
            yield self.finding(
                f"the reward margin stays at {np.median(margins.value[-5:]):.2g} over"
                f" {margins.step.size:,} records and the loss at {np.median(loss.value):.4f} (ln 2"
                " = 0.6931)",
                self._causes_in_order_of_likelihood(margins, loss, rate),
                severity="warning",
                evidence=tuple(self._evidence(margins, loss, rate)),
                figure=draw_curves("reward margin", {"rewards/margins": margins}),
            )

    def _findings_without_margins(self, loss: Curve) -> Iterator[Finding]:
        """Findings in a log without margins, whose loss stays about ln 2 and whose accuracy stays
        about a half.
        """
        right = self.subject.curve("rewards/accuracies").finite()
        if not self._has_enough_accuracies() or not self._reached_rate_that_trains_adapters():
            return
        half = right.value[right.value.size // 2 :]
        late = loss.value[loss.value.size // 2 :]
        is_chance = abs(float(half.mean()) - 0.5) < NEAR_HALF
        # An accuracy of 0 in all records is that of margins of exactly 0: nothing moves, and no label is at fault.
        if not is_chance or abs(float(late.mean()) - math.log(2)) >= RISE:
            return
        peak = self.subject.curve("learning_rate").finite().value.max()
        moves = float(loss.value.std()) > MOVES
        yield self.finding(
            f"the loss stays at {np.median(loss.value):.4f} (ln 2 = 0.6931, chance) and the accuracy of pairs at"
            f" {half.mean():.2f} over {right.step.size:,} records at a learning rate of up to {peak:.3g}, as happens if"
            " the labels of the pairs are random or contradict each other",
            CONTRADICTORY + "; then check that the adapter is trained (truetune run -- COMMAND)",
            severity="warning",
            evidence=(
                f"the loss moves between {loss.value.min():.4f} and {loss.value.max():.4f}: the policy changes, but in"
                " no direction that the pairs share",
            )
            if moves
            else (),
            figure=draw_curves("accuracy of pairs", {"rewards/accuracies": right}),
        )

    def _reached_rate_that_trains_adapters(self) -> bool:
        """Did the learning rate reach what trains an adapter?"""
        rate = self.subject.curve("learning_rate").finite()
        return bool(rate) and float(rate.value.max()) >= USUAL_RATE

    def _evidence(self, margins: Curve, loss: Curve, rate: Curve) -> Iterator[str]:
        """Evidence: the rate, the label smoothing and the gradients, as far as the log has them."""
        if rate:
            yield f"the learning rate is at most {rate.value.max():.3g}"
        smoothing = self._label_smoothing(margins, loss)
        if smoothing is not None:
            yield (
                "records with a larger margin have"
                + (" no smaller loss" if smoothing > CANCELS else " a smaller loss, as they should")
                + f": that fits a label smoothing of {max(0.0, smoothing):.2f}"
            )
        norm = self.subject.curve("grad_norm").finite()
        if norm and norm.value.any():
            yield f"gradients flow: their median norm is {np.median(norm.value):.3g}"
        if self._moves_but_accuracy_is_chance(loss):
            yield (
                f"the loss moves between {loss.value.min():.4f} and {loss.value.max():.4f} but the accuracy stays near"
                " 0.5: the policy changes, but the chosen side does not depend on the answers, as with random labels"
            )

    def _label_smoothing(self, margins: Curve, loss: Curve) -> float | None:
        """The label smoothing as printed, or derived from loss and margin; None where neither says
        it surely enough.
        """
        output = self.subject.output
        if output is not None and output.settings.smoothing is not None:
            return output.settings.smoothing
        return estimate_label_smoothing(margins, loss)

    def _causes_in_order_of_likelihood(self, margins: Curve, loss: Curve, rate: Curve) -> str:
        """Advice what to look at, the most likely cause first, without the causes that the log
        excludes.
        """
        smoothing = self._label_smoothing(margins, loss)
        pairs = "check whether chosen and rejected are the same (truetune check DATA -t TOKENIZER)"
        if smoothing is not None and smoothing > CANCELS:
            return (
                "set label_smoothing to 0 (dpo_label_smoothing in Axolotl): at 0.5 both orders of a"
                " pair count the same, so the loss can't fall below ln 2 at any learning rate; if"
                f" it is 0 already, {pairs}, or whether each pair is in the data in both orders"
            )
        ways = [pairs]
        if smoothing is None:
            ways.append("check that label_smoothing is well below 0.5")
        if not self._has_nonzero_gradients():
            ways.append(
                "check that the adapter is trained and enabled, also in the policy's forward pass (truetune"
                " run -- COMMAND)"
            )
        if self._moves_but_accuracy_is_chance(loss):
            ways.insert(0, CONTRADICTORY)
        elif self._has_nonzero_gradients() and self._reached_rate_that_trains_adapters():
            ways.append(CONTRADICTORY)
        first = _advice_on_low_rate(rate)
        if first:
            return "; then ".join((first, *ways))
        peak = float(rate.value.max()) if rate else None
        if peak is None or peak < USUAL_RATE:
            ways.append("then raise learning_rate (5e-6 to 5e-5 for LoRA)")
        else:
            ways.append(
                f"then change beta, or raise learning_rate above {peak:.3g} for LoRA (5e-6 to 5e-5 are usual)"
            )
        return "; ".join(ways)

    def _moves_but_accuracy_is_chance(self, loss: Curve) -> bool:
        """Does the policy move, while pairs are told apart no better than by a coin, in evaluations
        too?
        """
        if not self._has_nonzero_gradients() or not loss or float(loss.value.std()) <= MOVES:
            return False
        right = self.subject.curve("rewards/accuracies").finite()
        held_out = self.subject.curve("eval_rewards/accuracies").finite()
        if right.step.size < MIN_ACCURACIES:
            return False
        late = [right.value[right.value.size // 2 :]]
        if held_out:
            late.append(held_out.value)
        return all(abs(float(one.mean()) - 0.5) < NEAR_HALF for one in late)

    def _has_nonzero_gradients(self) -> bool:
        """Does the log show gradients that are not 0?"""
        norm = self.subject.curve("grad_norm").finite()
        return bool(norm) and bool(norm.value.any())

    def _margin_and_loss_stay_at_start(self, margins: Curve, loss: Curve) -> bool:
        """Do margin and loss stay where they began, to the end of the run and with their whole
        interval?
        """
        near = bool(loss) and bool(np.abs(np.median(loss.value) - math.log(2)) < RISE)
        span = float(margins.step[-1] - margins.step[0])
        last = float(np.median(margins.value[-max(3, margins.value.size // 5) :]))
        right = self.subject.curve("rewards/accuracies").finite().value[-margins.value.size // 5 :]
        apart = bool(right.size) and float(np.median(right)) > TOLD_APART
        rise = RISE_AT_LOW_RATE if self._completed_schedule_at_low_rate() else RISE
        # A few records of small batches have a wide interval of the slope; the level of the second half is surer.
        is_flat = (
            fit_robust_trend(margins).high * span < rise
            or _upper_bound_of_late_margin(margins) < rise
        )
        return near and not apart and is_flat and abs(last) < rise

    def _completed_schedule_at_low_rate(self) -> bool:
        """Was the rate low throughout, and has the schedule come to its end?"""
        rate = self.subject.curve("learning_rate").finite()
        if not rate or not 0 < rate.value.max() < LOW_RATE:
            return False
        return bool(rate.value[-1] < 0.1 * rate.value.max())


def _upper_bound_of_late_margin(margins: Curve) -> float:
    """The upper end of the interval (two standard errors) of the mean margin over the second half
    of the run.
    """
    half = margins.value[margins.value.size // 2 :]
    return float(half.mean() + 2 * half.std(ddof=1) / math.sqrt(half.size))


def _advice_on_low_rate(rate: Curve) -> str:
    """Advice to raise a rate that was too low throughout; empty where it was not too low, or is not
    known.
    """
    peak = float(rate.value.max()) if rate else USUAL_RATE
    if peak < USUAL_RATE and warmup_slope(rate) is not None:
        # the rate that was set is above the logged ones: a higher setting would be the wrong advice
        return f"shorten the warm-up (warmup_steps): the learning rate is still rising at the end ({peak:.3g})"
    if peak < LOW_RATE:
        return (
            f"raise learning_rate from {peak:.3g} to 5e-6 to 5e-5 if you train an adapter; in full fine-tuning, keep"
            " the weights in float32 under bf16 autocast: bfloat16 weights without a float32 copy round steps this"
            " small away (truetune lint SCRIPT)"
        )
    return ""
