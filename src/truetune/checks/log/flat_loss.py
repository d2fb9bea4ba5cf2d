"""The loss does not move, and the log says why: no learning rate, or the same rows seen again without effect.

## What it does
Takes the Theil-Sen slope of the loss with its 95 % interval. It fires where even the steepest slope of that interval
lowers the loss by less than 2 % over the whole run, and either the learning rate is 0 or below 5e-8 throughout, or
the run saw its rows at least twice. Where the slope itself is below 3 %, and 6 % at the steepest, of rows that were
seen twice, it is a note with what may be the cause, and a warning where the rate is too low: below 2e-5 for an adapter,
which its files or the printed settings tell, and below 2e-6 for all weights. Gradients that are never finite are
`grad-norm-explodes`. A plateau on rows that are seen once is healthy and no finding, and so is a loss that falls slowly
while the learning rate is still being warmed up. A loss that fell in its first records, and is flat from there on, was
learned from.

## Why it is bad
A model that reads the same rows again knows them better, so the loss falls at least a little if anything is learned.

## Example
```yaml
curve:
  loss: {from: 2.0, to: 2.0, steps: 60, noise: 0.02}
  learning_rate: {from: 1.0e-9, steps: 60}
```

## Use instead
```yaml
curve:
  loss: {from: 2.0, to: 1.4, steps: 60, noise: 0.02}
  learning_rate: {from: 1.0e-4, steps: 60}
```

## Fix safety
Usual peaks: 1e-5 to 5e-5 for all weights, 1e-4 to 3e-4 for LoRA. Watch the first hundred steps.

## References
- huggingface/trl#3926; slope: Sen 1968, doi:10.1080/01621459.1968.10480934
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.learning_rate_ended_early import IDLE_RATE
from truetune.checks.log.log_figures import draw_curves
from truetune.checks.log.loss_diverges import ends_above_beginning
from truetune.checks.rule import LogRule
from truetune.logs.robust_statistics import Trend, fit_trend, noise_sigma
from truetune.logs.run_log import Curve, RunLog
from truetune.settings.run_spec import Severity

NO_RATE = 5e-8
"""Learning rate below which nothing moves: a twentieth of DPO's default of 1e-6, the smallest in use"""
LEARNED = 0.05
"""A median loss below this one is that of rows that are known by heart, and can't fall much"""
LOG_RATE = "log the learning rate (transformers does at each logging step)"
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
FIRST = 3
"""Records that say where a loss began: one alone may be noise"""
# Chosen, not measured: three points give a slope, five say that it is one; a slow fall within noise needs twenty.
MIN_RECORDS, MIN_EPOCH_RECORDS = 5, 20


class FlatLoss(LogRule):
    code = "LOG006"
    severity = "warning"
    since = "0.1.0"
    moot_where = ("loss-diverges",)
    kinds = ("language",)
    needs = ("loss",)
    least = MIN_RECORDS

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        log, norm = self.subject, self.subject.curve("grad_norm")
        if norm and not norm.value.any():
            return Unmet("every gradient norm is 0, which grad-norm-zero is about")
        if norm.step.size >= MIN_RECORDS and not norm.finite():
            return Unmet("no gradient norm is finite, which grad-norm-explodes is about")
        seen_again = log.epochs >= 2 and self.records("loss") >= MIN_EPOCH_RECORDS
        if log.curve("learning_rate").finite() or seen_again:
            return None
        return Unmet(
            "the log has no learning rate, and does not show rows that were seen twice", LOG_RATE
        )

    def figure(self) -> str:
        loss, rate = (self.subject.curve(name).finite() for name in ("loss", "learning_rate"))
        span = float(loss.step[-1] - loss.step[0])
        moved = fit_trend(loss).slope * span
        return (
            f"the slope of the loss over the run is {moved:+.3g} at a level of"
            f" {np.median(loss.value):.3g}"
            + (f", with a learning rate of up to {rate.value.max():.3g}" if rate else "")
        )

    def findings(self) -> Iterator[Finding]:
        log = self.subject
        loss, norm = log.curve("loss").finite(), log.curve("grad_norm")
        if log.kind != "language" or loss.step.size < MIN_RECORDS:
            return
        if norm and (not norm.value.any() or not norm.finite()):
            return
        if _is_mostly_without_rate(log):
            return  # learning-rate-ended-early says so
        if ends_above_beginning(Curve(loss.step[loss.value != 0], loss.value[loss.value != 0])):
            return  # it began lower: loss-diverges says so
        fall = _fall_of(log, loss)
        if fall.is_flat():
            yield self._finding(loss, fall)

    def _finding(self, loss: Curve, fall: _Fall) -> Finding:
        log, line = self.subject, fall.line
        is_certain = fall.stays or fall.has_no_rate
        if fall.peak_rate == 0:
            why = ": the learning rate is 0"
        elif fall.has_no_rate or _is_rate_too_low(log, fall.peak_rate):
            why = f": the learning rate is at most {fall.peak_rate:.3g}"
        else:
            why = f" although the rows were seen {log.epochs:.3g} times"
        names_cause = is_certain or _is_rate_too_low(log, fall.peak_rate)
        severity: Severity = "warning" if names_cause else "info"
        if fall.peak_rate == 0:
            severity = "error"
        return self.finding(
            f"the loss {'stays' if is_certain else 'hardly falls: it is'} at {fall.level:.4g} over"
            f" {loss.step.size:,} records{why}",
            _remedy(log, fall),
            severity=severity,
            evidence=(
                f"slope over the run {line.slope * fall.span:+.3g} (95 %: {line.low * fall.span:+.3g} to "
                f"{line.high * fall.span:+.3g}), noise {fall.noise:.3g}",
            ),
            figure=draw_curves("loss", {"loss": loss}),
        )


@dataclass(frozen=True, slots=True)
class _Fall:
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

    @property
    def drop(self) -> float:
        """By how much the fitted line falls"""
        return max(0.0, -self.line.slope * self.span)

    @property
    def steepest_drop(self) -> float:
        """The largest fall that the noise allows (95 %)"""
        return max(0.0, -self.line.low * self.span)

    @property
    def has_no_rate(self) -> bool:
        """Is the learning rate too small to move anything?"""
        return self.peak_rate is not None and self.peak_rate < NO_RATE

    @property
    def stays(self) -> bool:
        """Did the loss not move although the rows were seen again?"""
        surely_small = self.steepest_drop < MOVES * self.level
        half_as_much = self.drop < HARDLY / 2 * self.level
        return self.seen_again and (
            surely_small or (half_as_much and self.steepest_drop < 2 * MOVES * self.level)
        )

    @property
    def hardly_falls(self) -> bool:
        """Did it fall by less than runs that learn, although the rows were seen again?"""
        is_small = self.drop < HARDLY * self.level and self.steepest_drop < AT_MOST * self.level
        return self.seen_again and is_small

    def is_flat(self) -> bool:
        """Is it worth a finding? A loss that is low, rises, or fell at the start of the run is another matter."""
        rises = self.line.slope * self.span > RISES * self.level
        if self.level < LEARNED or rises or self.fell_at_first:
            return False
        never_moved = self.has_no_rate and self.drop < max(MOVES * self.level, self.noise)
        return self.stays or self.hardly_falls or never_moved


def _is_mostly_without_rate(log: RunLog) -> bool:
    """Was there a learning rate at first, and none at most of the records?"""
    rate = log.curve("learning_rate").finite().value
    return bool(rate.any()) and 2 * int((rate <= IDLE_RATE * rate.max()).sum()) > rate.size


def _fall_of(log: RunLog, loss: Curve) -> _Fall:
    """The fall of a loss of at least MIN_RECORDS finite records."""
    rate, line = log.curve("learning_rate").finite(), fit_trend(loss)
    level = float(np.median(loss.value))
    is_warm = not (_warms_up(rate) and line.high < 0)
    return _Fall(
        level=level,
        line=line,
        span=float(loss.step[-1] - loss.step[0]),
        noise=noise_sigma(loss.value),
        fell_at_first=_fell_at_first(loss, level),
        peak_rate=float(rate.value.max()) if rate else None,
        seen_again=log.epochs >= 2 and loss.step.size >= MIN_EPOCH_RECORDS and is_warm,
    )


def _fell_at_first(loss: Curve, level: float) -> bool:
    """Did the loss begin above the level that it then keeps? Something was learned, in a small part of the run."""
    began = float(np.median(loss.value[:FIRST]))
    return began - level > max(RISES * level, 3 * noise_sigma(loss.value))


def _warms_up(rate: Curve) -> bool:
    """Does the learning rate still rise at the end of the log?"""
    return (
        rate.step.size > 1
        and bool(rate.value[-1] > rate.value[0])
        and bool((np.diff(rate.value) >= 0).all())
    )


def _is_rate_too_low(log: RunLog, peak: float | None) -> bool:
    """Is the peak of the learning rate so low that nothing else need be looked for first?"""
    if peak is None:
        return False
    return peak < (ADAPTER_RATE if _trains_adapter(log) else LOWEST_RATE)


def _trains_adapter(log: RunLog) -> bool:
    """Is an adapter trained, as its files or the settings in the console output say?"""
    printed = log.output is not None and log.output.settings.trains_adapter
    return "adapter" in log.facts or printed


def _remedy(log: RunLog, fall: _Fall) -> str:
    """What to change; where the rate is not the reason, what to look at."""
    if fall.has_no_rate:
        return "raise the learning rate"
    if not _is_rate_too_low(log, fall.peak_rate):
        return _what_remains(log, fall.peak_rate)
    if _trains_adapter(log):
        usual = "SFT of an adapter begins at 1e-4, up to 5e-4 (all weights take a tenth of it)"
    else:
        usual = "SFT begins at 1e-5 for all weights, at 1e-4 for LoRA"
    return f"raise the learning rate from {fall.peak_rate:.3g}: {usual}; then {_what_remains(log, fall.peak_rate)}"


def _what_remains(log: RunLog, peak: float | None) -> str:
    """The causes of a flat loss that the log does not exclude, in the order in which they are quickly seen."""
    causes = []
    if not log.curve("grad_norm"):
        causes.append(
            "is anything trained (truetune run -- CMD names weights without a gradient; log"
            " grad_norm)"
        )
    causes.append(
        "does the adapter count (lora_alpha / r far below 1 scales it away: truetune check SETTINGS)"
    )
    # Where the rate is too low, the remedy has said so.
    if not _is_rate_too_low(log, peak):
        if peak is None or peak < ORDINARY:
            causes.append("is the learning rate too low (1e-5 for all weights, 1e-4 for LoRA)")
        elif peak < 1e-4:
            causes.append(f"is the rate of {peak:.3g} for LoRA (1e-4 to 5e-4 are usual there)")
    causes.append(
        "can the answers be learned (encoded text, rows out of step, answers by chance: truetune"
        " check DATA -t TOKENIZER, truetune show DATA -t TOKENIZER)"
    )
    return "ask in this order: " + "; ".join(causes)
