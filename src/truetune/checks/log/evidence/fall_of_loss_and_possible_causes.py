"""Measures how far a loss fell, and names what its log does not rule out as the cause."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from truetune.checks.log.was_adapter_or_all_weights_trained import trains_adapter
from truetune.logs.facts_in_files_beside_log import FROZEN_IN_CODE
from truetune.logs.robust_statistics import Trend, fit_robust_trend, noise_sigma
from truetune.logs.run_log import Curve, RunLog

NO_RATE = 5e-8
"""Learning rate below which nothing moves: a twentieth of DPO's default of 1e-6, the smallest in use"""


LEARNED = 0.05
"""A median loss below this one is that of rows that are known by heart, and can't fall much"""


MOVES, RISES = 0.02, 0.1
"""Shares of the level: a fall by less is none, a rise by more is no flat loss; chosen on the runs in tests/logs/runs"""


HARDLY, AT_MOST = 0.03, 0.06
"""Fall over a run that saw its rows at least twice, and the steepest that noise allows: real runs of LoRA fall by 5
to 30 % in their second epoch, those in tests/logs/runs by 8 % at least"""


ADAPTER_RATE = 2e-5
"""Peak rate below which an adapter is surely trained too slowly: a fifth of the lowest published for SFT (1e-4)"""


LOWEST_RATE = 2e-6
"""Peak rate below which the weights of any SFT hardly move: a fifth of the lowest published for all weights (1e-5)"""


ORDINARY = 1e-5
"""Learning rate from which `raise the rate` is no first advice: usual for all weights, and seen with LoRA"""


CLASS_METRIC = re.compile(
    r"(?:eval|test|val)?[_/]?(?:accuracy|acc|f1|roc_auc|auc|mcc|matthews.*)", re.I
)
"""Names of what is measured of classifiers; TRL's `mean_token_accuracy` is none"""


FIRST = 3
"""Records that say where a loss began: one alone may be noise"""


# Chosen, not measured: three points give a slope, five say that it is one; a slow fall within noise needs twenty.
MIN_RECORDS, MIN_EPOCH_RECORDS = 5, 20


@dataclass(frozen=True, slots=True)
class LossFall:
    """How far the loss fell over the run, and what could have made it fall."""

    level: float
    """Median of the loss"""
    line: Trend
    span: float
    """Steps from the first record to the last"""
    noise: float
    fell_at_first: bool
    peak_rate: float | None
    """The largest learning rate; None where the log has none"""
    seen_again: bool
    """Were the rows seen at least twice, at a rate that was warm?"""
    rises_with_rate: bool
    """Is the learning rate still raised at the end of the log?"""

    @property
    def drop_of_fitted_line(self) -> float:
        """By how much the fitted line of the loss falls over the run."""
        return max(0.0, -self.line.slope * self.span)

    @property
    def largest_drop_within_noise(self) -> float:
        """The largest fall that the noise allows (95 %)"""
        return max(0.0, -self.line.low * self.span)

    @property
    def has_negligible_rate(self) -> bool:
        """Is the learning rate too small to move anything?"""
        return self.peak_rate is not None and self.peak_rate < NO_RATE

    @property
    def stays_flat_on_repeated_rows(self) -> bool:
        """Did the loss not move although the rows were seen again?"""
        surely_small = self.largest_drop_within_noise < MOVES * self.level
        half_as_much = self.drop_of_fitted_line < HARDLY / 2 * self.level
        return self.seen_again and (
            surely_small
            or (half_as_much and self.largest_drop_within_noise < 2 * MOVES * self.level)
        )

    @property
    def is_surely_flat_or_without_rate(self) -> bool:
        """Is it certain that the loss does not move, or that the rate moves nothing?"""
        return self.stays_flat_on_repeated_rows or self.has_negligible_rate

    @property
    def hardly_falls_on_repeated_rows(self) -> bool:
        """Did the loss fall by less than in runs that learn, although the rows were seen again?"""
        # A line that may as well rise (its 95 % interval holds 0) falls by chance: there the noise alone decides.
        is_small = self.drop_of_fitted_line < HARDLY * self.level or self.line.high >= 0
        return (
            self.seen_again and is_small and self.largest_drop_within_noise < AT_MOST * self.level
        )

    def is_flat_at_effective_rate(self, *, has_equal_evaluations: bool) -> bool:
        """Does the whole of it stand on one level, at a rate at which weights move?

        Evaluations that give one value are exact: beside them, a training loss may be noisy.
        """
        # A loss without any noise is that of no batches: loss-repeats-exactly says so.
        if self.level < LEARNED or self.fell_at_first or self.rises_with_rate or not self.noise:
            return False
        rises = self.line.slope * self.span > AT_MOST * self.level
        is_small = (
            self.drop_of_fitted_line < HARDLY / 2 * self.level
            and self.largest_drop_within_noise < AT_MOST * self.level
        )
        if has_equal_evaluations:
            is_small = self.drop_of_fitted_line < AT_MOST * self.level
        has_rate = self.peak_rate is None or self.peak_rate >= NO_RATE
        return is_small and has_rate and not rises

    def is_worth_a_finding(self) -> bool:
        """Is the loss so flat that it is worth a finding? One that is low, rises, or fell at the
        start is another matter.
        """
        rises = self.line.slope * self.span > RISES * self.level
        if self.level < LEARNED or rises or self.fell_at_first:
            return False
        never_moved = self.has_negligible_rate and self.drop_of_fitted_line < max(
            MOVES * self.level, self.noise
        )
        return self.stays_flat_on_repeated_rows or self.hardly_falls_on_repeated_rows or never_moved


def measure_fall(log: RunLog, loss: Curve) -> LossFall:
    """Measure how far a loss of at least MIN_RECORDS finite records fell, and at which rates."""
    rate, line = log.curve("learning_rate").finite(), fit_robust_trend(loss)
    level = float(np.median(loss.value))
    is_warm = not (_does_rate_rise_at_end(rate) and line.high < 0)
    return LossFall(
        level=level,
        line=line,
        span=float(loss.step[-1] - loss.step[0]),
        noise=noise_sigma(loss.value),
        fell_at_first=_did_loss_fall_before_plateau(loss, level),
        peak_rate=float(rate.value.max()) if rate else None,
        seen_again=log.epochs_at_end >= 2 and loss.step.size >= MIN_EPOCH_RECORDS and is_warm,
        rises_with_rate=_does_rate_rise_at_end(rate),
    )


def _did_loss_fall_before_plateau(loss: Curve, level: float) -> bool:
    """Did the loss begin above the level that it then keeps? Something was learned, in a small part of the run."""
    began = float(np.median(loss.value[:FIRST]))
    return began - level > max(RISES * level, 3 * noise_sigma(loss.value))


def _does_rate_rise_at_end(rate: Curve) -> bool:
    """Does the learning rate still rise at the end of the log?"""
    return (
        rate.step.size > 1
        and bool(rate.value[-1] > rate.value[0])
        and bool((np.diff(rate.value) >= 0).all())
    )


def is_rate_too_low(log: RunLog, peak: float | None) -> bool:
    """Is the peak of the learning rate so low that nothing else need be looked for first?"""
    if peak is None:
        return False
    return peak < (ADAPTER_RATE if trains_adapter(log) else LOWEST_RATE)


def _may_train_adapter(log: RunLog) -> bool:
    """Is an adapter trained, or is it not known what is?"""
    return trains_adapter(log) or _trained_share_of_weights(log) is None


def _trained_share_of_weights(log: RunLog) -> float | None:
    """The share of the weights that is trained, as the output prints it."""
    return log.output.settings.share if log.output is not None else None


def causes_ruled_out_by_log(log: RunLog, peak: float | None) -> tuple[str, ...]:
    """Sentences on the causes of a flat loss that the log itself excludes."""
    facts = []
    if peak is not None and not is_rate_too_low(log, peak) and peak >= LOWEST_RATE:
        facts.append(f"not the cause: the learning rate, which reaches {peak:.3g}")
    norm = log.curve("grad_norm").finite()
    if norm and np.median(norm.value) > 0:
        facts.append(
            f"not the cause: a missing gradient, since the median grad_norm is {np.median(norm.value):.3g}"
        )
    return tuple(facts)


def describe_remaining_causes(log: RunLog, peak: float | None) -> str:
    """The causes of a flat loss that the log does not exclude, as a text; the quickest to check
    come first.
    """
    return "check in this order: " + "; ".join(remaining_causes(log, peak))


def remaining_causes(log: RunLog, peak: float | None) -> list[str]:
    """The causes of a flat loss that the log does not exclude, each as a question to check; the
    quickest come first.
    """
    causes = []
    if not log.curve("grad_norm"):
        causes.append(
            "is anything trained (truetune run -- COMMAND names weights without a gradient; log"
            " grad_norm)"
        )
    frozen = next(log.files_beside.settings_named(FROZEN_IN_CODE), None)
    if frozen is not None:
        share = _trained_share_of_weights(log)
        of_all = f"; {share:.2g} of all weights" if share is not None else ""
        causes.append(
            f"are the right weights trained ({frozen.place} selects them{of_all}: print the names with"
            " requires_grad, and check that they are layers of this model)"
        )
    elif _may_train_adapter(log):
        causes.append(
            "is the adapter scaled close to 0 (lora_alpha / r far below 1: truetune check SETTINGS)"
        )
    # Where the rate is too low, the remedy has said so.
    if not is_rate_too_low(log, peak):
        if peak is None or peak < ORDINARY:
            causes.append("is the learning rate too low (1e-5 for full fine-tuning, 1e-4 for LoRA)")
        elif peak < 1e-4:
            causes.append(
                f"is the learning rate of {peak:.3g} too low for LoRA (1e-4 to 5e-4 are usual)"
            )
    causes.append(
        "can the answers be learned (encoded text, prompts paired with answers of other rows, random answers: truetune"
        " check DATA -t TOKENIZER, truetune show DATA -t TOKENIZER)"
    )
    return causes
