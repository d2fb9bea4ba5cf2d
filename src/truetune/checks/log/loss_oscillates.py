"""The loss swings up and down without getting anywhere.

## What it does
Takes the autocorrelation of the loss around its rolling median. A swing is a period (2 steps to a sixth of the run)
with an autocorrelation above 0.6, and below -0.4 at half the period, over 10 % of the level at least. Periods that
something else may have caused are left out, unless the log or the settings exclude it: epochs, evaluations,
checkpoints, gradient accumulation, and batches grouped by length, which repeat after 50 steps (QLoRA's default), over N
processes after 50 / N. What was excluded is in the evidence. The rule also warns if the noise grows tenfold from the
first to the last quarter while the loss does not fall.

## Why it is bad
Updates jump over the minimum and back: the learning rate is too high for the loss to settle.

## Example
```yaml
curve:
  loss: {
      values: [2.0, 3.0, 2.0, 3.0, 2.0, 3.0, 2.0, 3.0, 2.0, 3.0, 2.0, 3.0, 2.0, 3.0, 2.0, 3.0, 2.0],
      steps: 97, noise: 0.03}
state: {group_by_length: false}
```

## Use instead
```yaml
curve:
  loss: {from: 2.0, to: 1.5, steps: 97, noise: 0.03}
state: {group_by_length: false}
```

## Fix safety
Halve the learning rate until the swings stop; learning takes more steps then. A larger batch (accumulation) reduces
noise, but not such swings.

## References
- Cohen et al. 2021, arXiv 2103.00065 (edge of stability)
- huggingface/transformers, trainer_pt_utils.py, get_length_grouped_indices (batches grouped by length)
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.rule import LogRule
from truetune.logs.periodic_events import describe_periods, find_periodic_events
from truetune.logs.robust_statistics import medians_of_both_ends, noise_sigma, rolling_median
from truetune.logs.run_log import Curve, Floats

MIN_POINTS = 40
"""Records. Chosen by hand: six swings of six records each hardly fit fewer"""
MOST_POINTS = 4_000
"""Records at the end of the log that are searched for a period; it bounds the time that a long log takes"""
# Swings in the part that is looked at. Chosen, not measured: noise repeats itself three times now and then, hardly six.
MIN_CYCLES = 6


class LossOscillates(LogRule):
    code = "LOG009"
    fault = Fault.LOSS_UNSTABLE
    symptoms = ("loss-does-not-fall", "odd-metrics")
    severity = "warning"
    since = "0.1.0"
    moot_where = ("loss-climbs-above-guessing", "loss-repeats-with-the-epoch")
    kinds = ("language",)
    needs = ("loss",)
    least = MIN_POINTS

    def measurement_if_clean(self) -> str:
        """That no period was found, with the noise of the first and of the last quarter."""
        loss = self.subject.curve("loss").finite().value[-MOST_POINTS:]
        quarter = loss.size // 4
        return (
            f"no period in {loss.size:,} records; the noise is {noise_sigma(loss[:quarter]):.3g} in the"
            f" first quarter and {noise_sigma(loss[-quarter:]):.3g} in the last, at a level of"
            f" {np.median(loss):.3g}"
        )

    def findings(self) -> Iterator[Finding]:
        log = self.subject
        loss = log.curve("loss").finite()
        loss = Curve(loss.step[-MOST_POINTS:], loss.value[-MOST_POINTS:])
        n = loss.step.size
        if log.kind != "language" or n < MIN_POINTS:
            return
        quarter = n // 4
        early, late = noise_sigma(loss.value[:quarter]), noise_sigma(loss.value[-quarter:])
        first, last = medians_of_both_ends(loss.value, 0.25)
        period = self._swing_period_in_steps(loss)
        grows = late > 10 * early > 0 and last > 0.98 * first and late > 0.1 * last
        if not period and not grows:
            return
        what = (
            f"with a period of {period:.0f} steps"
            if period
            else f"more and more, with noise {late / early:.0f} times as large at the end"
        )
        yield self.finding(
            f"the loss swings {what} around {np.median(loss.value):.4g} and does not settle",
            "halve learning_rate, and again if the swings do not stop",
            evidence=(
                (
                    f"noise {early:.3g} in the first quarter, {late:.3g} in the last; level"
                    f" {first:.4g} and {last:.4g}"
                ),
                *self._excluded_causes(period),
            ),
            figure=draw_curves("loss", {"loss": loss}),
        )

    def _swing_period_in_steps(self, loss: Curve) -> float | None:
        """The period in steps of a swing that no clock of the run may have made."""
        tail = loss.value[loss.value.size // 5 :]
        # A drift would correlate with itself at any distance: what is left after the level is the swing alone.
        rest = tail - rolling_median(tail, max(5, tail.size // 3))
        spread = float(np.percentile(rest, 90) - np.percentile(rest, 10))
        if spread < 0.1 * abs(float(np.median(tail))):
            return None
        close = _autocorrelation(np.clip(rest, *np.percentile(rest, (5, 95))))
        gap = float(np.median(np.diff(loss.step)))
        swings = (
            lag
            for lag in range(2, tail.size // MIN_CYCLES)
            if close[lag] > 0.6 and close[lag // 2] < -0.4
        )
        lag = next(swings, None)
        if lag is None:
            return None
        while lag + 1 < tail.size // MIN_CYCLES and close[lag + 1] > close[lag]:
            lag += 1
        period = lag * gap
        # Rows that return in the same order make a period too, and say nothing of the rate.
        has_rival = any(
            rival.may_explain_period_of_loss(period, gap)
            for rival in find_periodic_events(self.subject)
        )
        return None if has_rival else period

    def _excluded_causes(self, period: float | None) -> Iterator[str]:
        """The rivals of the learning rate that have another period, each as a line of evidence."""
        if period is None:
            return
        named = describe_periods(find_periodic_events(self.subject))
        yield f"not caused by {named}" if named else "the log contains nothing else that repeats"


def _autocorrelation(values: Floats) -> Floats:
    """The autocorrelation of the values at each lag, 1 at lag 0; made by FFT."""
    centred = values - values.mean()
    size = 1 << (2 * values.size - 1).bit_length()
    spectrum = np.fft.rfft(centred, size)
    made: Floats = np.fft.irfft(np.abs(spectrum) ** 2, size)[: values.size]
    return made / made[0] if made[0] > 0 else made
