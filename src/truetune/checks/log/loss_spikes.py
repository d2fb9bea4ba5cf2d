"""The loss jumps up and then returns.

## What it does
Compares each loss with the rolling median around it, in units of the usual variation (a robust standard deviation by
the MAD). A spike is three records in a row above 5 units, one of them above 10 and 50 % above the ten records before. A
single record above 10 units counts if it is twice the level and the gradient norm is twenty times its median there.
Single high losses without such a gradient are hard rows, and are not reported. Small batches have many of them, so
single ones are not reported if more than 1 % of the records are high, nor stretches that chance explains.

## Why it is bad
The update before it was harmful: it used a corrupt row, or the learning rate is close to too high. The model has to
learn again what it lost, if it can.

## Example
```yaml
curve:
  loss: {
      values: [1.5, 1.49, 1.48, 1.47, 4.0, 1.46, 1.45, 1.44, 1.43, 1.42, 1.41, 1.4, 1.39, 1.38, 1.37,
      1.36], steps: 150, noise: 0.01}
```

## Use instead
```yaml
curve:
  loss: {from: 1.5, to: 1.36, steps: 150, noise: 0.01}
```

## Fix safety
A single spike that returns to the old level needs no change. If there are several, halve the learning rate, or set the
clipping norm (`max_grad_norm`) to 1.0 or lower: learning then takes more steps. Removing corrupt rows (`truetune check
DATA`) is safe.

## References
- bigscience-workshop/Megatron-DeepSpeed#57, ximinng/LLM4SVG#19
- Chowdhery et al. 2022 (PaLM), arXiv 2204.02311, section 5.1; MAD: Hampel 1974, doi:10.1080/01621459.1974.10482962
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import describe_steps, draw_curves
from truetune.checks.reasons_rules_cannot_judge import OTHER_LOSS, RESUMED
from truetune.checks.rule import LogRule
from truetune.logs.detect_resumes_without_state import find_restarts
from truetune.logs.robust_statistics import MAD_TO_SIGMA, rolling_median, stretches_of_true
from truetune.logs.run_log import Curve, Floats

MIN_POINTS = 20
"""Records. Chosen by hand: the level around a record is a median of up to 25; of fewer it would follow a spike"""
# Records. Chosen, not measured: the level is the median of 25 around a record, so a spike of up to 12 does not lift it;
# a shorter window follows long spikes, a longer one lags behind a loss that falls fast.
WINDOW, NEAR = 25, 10
# Robust standard deviations. Chosen, not measured: 5 begin a stretch that may be a spike, and its top needs 10. Heavy
# tails (short rows, small batches) reach 5 in healthy runs.
HIGH, MIN_SCORE = 5.0, 10.0
MIN_STRETCH = 3
"""Records in a row that a single odd batch does not make"""
MAX_CHANCE = 0.01
"""Stretches that may be as long by chance, by the share of all other high records"""


class LossSpikes(LogRule):
    code = "LOG008"
    fault = Fault.LOSS_UNSTABLE
    symptoms = ("loss-does-not-fall",)
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    moot_where = ("loss-climbs-above-guessing",)
    kinds = ("language",)
    needs = ("loss",)
    least = MIN_POINTS

    def unmet(self) -> Unmet | None:
        """Also unmet where the loss is no token loss, or the log has restarts."""
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if not self.subject.is_loss_of_token_prediction:
            return OTHER_LOSS
        return RESUMED if find_restarts(self.subject) else None

    def measurement_if_clean(self) -> str:
        """The highest loss above its level, in robust standard deviations, with its step."""
        loss = self.subject.curve("loss").finite()
        level, score = _level_and_deviation(loss.value)
        top = int(np.argmax(score))
        return (
            f"the loss is at most {score[top]:.2g} times its usual variation above its level:"
            f" {loss.value[top]:.4g} over {level[top]:.4g} at step {loss.step[top]:,.0f}"
        )

    def findings(self) -> Iterator[Finding]:
        log = self.subject
        loss = log.curve("loss").finite()
        if not log.is_loss_of_token_prediction or loss.step.size < MIN_POINTS or find_restarts(log):
            return
        level, score = _level_and_deviation(loss.value)
        spikes = self._find_spikes(loss, level, score)
        if not spikes:
            return
        worst = max(spikes, key=lambda i: float(score[i]))
        yield self.finding(
            f"the loss jumps to {loss.value[worst]:.4g} at {log.unit_of_steps} {loss.step[worst]:,.0f}, far above"
            f" its usual {level[worst]:.4g} ({score[worst]:.0f} times the usual variation), and then returns",
            ("a single spike needs no change; if more follow, " if len(spikes) == 1 else "")
            + "check the data for corrupt rows (truetune check DATA -t TOKENIZER), then halve learning_rate"
            " or set max_grad_norm: 1.0",
            evidence=(
                f"{len(spikes):,} spike{'s' * (len(spikes) > 1)}, at {describe_steps(loss.step[spikes])}",
            ),
            count=len(spikes),
            figure=draw_curves("loss", {"loss": loss}, {"spike": float(loss.step[worst])}),
        )

    def _find_spikes(self, loss: Curve, level: Floats, score: Floats) -> list[int]:
        """Indices of the tops of spikes: long stretches, and single records at which the gradient leapt too.

        Args:
            loss: the finite losses.
            level: the level around each of them.
            score: how many robust standard deviations each lies above it.
        """
        n = loss.step.size
        long: list[int] = []
        pushed: list[int] = []
        single = 0
        for start, end in stretches_of_true(score > HIGH):
            top = start + int(np.argmax(score[start:end]))
            before = float(np.median(loss.value[max(0, start - NEAR) : start]))
            if score[top] < MIN_SCORE or loss.value[top] < 1.5 * before:
                continue
            # Where many records are high, some stand in a row by chance: how often is n * share ** length.
            others = (int((score > HIGH).sum()) - (end - start)) / n
            is_long = end - start >= MIN_STRETCH and n * others ** (end - start) < MAX_CHANCE
            # a stretch that reaches the end of the log has not come back: loss-diverges is about that
            if is_long and end < n:
                long.append(top)
            elif loss.value[top] > 2 * level[top]:
                single += 1
                if self._gradient_leaps_between(loss.step[start], loss.step[end - 1]):
                    pushed.append(top)
        # Single high records now and then are odd rows. More than one in a hundred are the nature of the data, whatever
        # the gradient does at them.
        return sorted(long + pushed) if single <= max(1, n // 100) else long

    def _gradient_leaps_between(self, first: float, last: float) -> bool:
        """Is a gradient norm from step `first` to `last` twenty times the usual one?"""
        norm = self.subject.curve("grad_norm")
        if not norm:
            return False
        near = norm.value[(norm.step >= first) & (norm.step <= last)]
        usual = float(np.nanmedian(norm.value))
        return bool(near.size and (not np.isfinite(near).all() or near.max() > 20 * usual > 0))


def _level_and_deviation(values: Floats) -> tuple[Floats, Floats]:
    """The level around each loss, and how many robust standard deviations above it the loss is; 0
    at the beginning.
    """
    level = rolling_median(values, WINDOW)
    away = values - level
    sigma = np.maximum(
        MAD_TO_SIGMA * rolling_median(np.abs(away), 2 * WINDOW), 1e-3 * np.abs(level) + 1e-9
    )
    score = away / sigma
    # at the beginning the loss falls fast, and lies above the level of what follows
    score[: max(3, values.size // 20)] = 0
    return level, score
