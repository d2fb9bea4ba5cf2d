"""The loss does not move, and the log says why: no learning rate, or the same rows seen again without effect.

## What it does
Takes the Theil-Sen slope of the loss with its 95 % interval. It fires where even the steepest slope of that interval
lowers the loss by less than 2 % over the whole run, and either the learning rate is 0 or below 5e-8 throughout, or
the run saw its rows at least twice. Where the slope itself is below 3 %, and 6 % at the steepest, of rows that were
seen twice, it is a note with what may be the cause. Gradients that are never finite are `grad-norm-explodes`. A
plateau on rows that are seen once is healthy and no finding, and so is a loss that falls slowly while the learning
rate is still being warmed up. A loss that fell in its first records, and is flat from there on, was learned from.

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

import numpy as np

from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.drawing import figure
from truetune.checks.rule import LogRule
from truetune.logs.log import Curve, RunLog
from truetune.logs.stats import noise, trend

NO_RATE = 5e-8
LOG_RATE = "log the learning rate (transformers does at each logging step)"
MOVES, RISES = 0.02, 0.1
HARDLY, AT_MOST = 0.03, 0.06
"""Fall over a run that saw its rows at least twice, and the steepest that noise allows: real runs of LoRA fall by 5
to 30 % in their second epoch, those in tests/logs/runs by 8 % at least"""
ORDINARY = 1e-5
"""Learning rate from which `raise the rate` is no first advice: usual for all weights, and seen with LoRA"""
FIRST = 3
"""Records that say where a loss began: one alone may be noise"""
MIN_RATED, MIN_EPOCHS = 5, 20


class FlatLoss(LogRule):
    code = "TT804"
    severity = "warning"
    kinds = ("language",)
    needs = ("loss",)
    least = MIN_RATED

    def unmet(self) -> Unmet | None:
        if unmet := super().unmet():
            return unmet
        log, norm = self.subject, self.subject.curve("grad_norm")
        if norm and not norm.value.any():
            return Unmet("every gradient norm is 0, which grad-norm-zero is about")
        if norm.step.size >= MIN_RATED and not norm.finite():
            return Unmet("no gradient norm is finite, which grad-norm-explodes is about")
        seen_again = log.epochs >= 2 and self.records("loss") >= MIN_EPOCHS
        if log.curve("learning_rate").finite() or seen_again:
            return None
        return Unmet(
            "the log has no learning rate, and does not show rows that were seen twice", LOG_RATE
        )

    def figure(self) -> str:
        loss, rate = (self.subject.curve(name).finite() for name in ("loss", "learning_rate"))
        span = float(loss.step[-1] - loss.step[0])
        moved = trend(loss).slope * span
        return (
            f"the slope of the loss over the run is {moved:+.3g} at a level of"
            f" {np.median(loss.value):.3g}"
            + (f", with a learning rate of up to {rate.value.max():.3g}" if rate else "")
        )

    def findings(self) -> Iterator[Finding]:
        log = self.subject
        loss, rate = log.curve("loss").finite(), log.curve("learning_rate").finite()
        norm = log.curve("grad_norm")
        if log.kind != "language" or loss.step.size < MIN_RATED:
            return
        if norm and (not norm.value.any() or not norm.finite()):
            return
        level = float(np.median(loss.value))
        line = trend(loss)
        span = float(loss.step[-1] - loss.step[0])
        drop = max(0.0, -line.slope * span)
        most = max(0.0, -line.low * span)
        peak = float(rate.value.max()) if rate else None
        rated = peak is not None and peak < NO_RATE
        seen_again = log.epochs >= 2 and loss.step.size >= MIN_EPOCHS
        seen_again = seen_again and not (_warms_up(rate) and line.high < 0)
        sure = seen_again and (
            most < MOVES * level or (drop < HARDLY / 2 * level and most < 2 * MOVES * level)
        )
        again = sure or (seen_again and drop < HARDLY * level and most < AT_MOST * level)
        if (
            level < 0.05
            or line.slope * span > RISES * level
            or _fell_at_first(loss, level)
            or not (again or (rated and drop < max(MOVES * level, noise(loss.value))))
        ):
            return
        why = (
            "the learning rate is 0"
            if peak == 0
            else f"the learning rate is at most {peak:.3g}"
            if rated
            else ""
        )
        yield self.finding(
            f"the loss {'stays' if sure or rated else 'hardly falls: it is'} at {level:.4g} over"
            f" {loss.step.size:,} records"
            + (f": {why}" if why else f" although the rows were seen {log.epochs:.3g} times"),
            "raise the learning rate" if rated else _what_remains(log, peak),
            severity="error" if peak == 0 else "warning" if sure or rated else "info",
            evidence=(
                (
                    f"slope over the run {line.slope * span:+.3g} (95 %: {line.low * span:+.3g} to "
                    f"{line.high * span:+.3g}), noise {noise(loss.value):.3g}"
                ),
            ),
            figure=figure("loss", {"loss": loss}),
        )


def _fell_at_first(loss: Curve, level: float) -> bool:
    """Did the loss begin above the level that it then keeps? Something was learned, in a small part of the run."""
    began = float(np.median(loss.value[:FIRST]))
    return began - level > max(RISES * level, 3 * noise(loss.value))


def _warms_up(rate: Curve) -> bool:
    """Does the learning rate still rise at the end of the log?"""
    return (
        rate.step.size > 1
        and bool(rate.value[-1] > rate.value[0])
        and bool((np.diff(rate.value) >= 0).all())
    )


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
    if peak is None or peak < ORDINARY:
        causes.append("is the learning rate too low (1e-5 for all weights, 1e-4 for LoRA)")
    elif peak < 1e-4:
        causes.append(f"is the rate of {peak:.3g} for LoRA (1e-4 to 3e-4 are usual there)")
    causes.append(
        "can the answers be learned (encoded text, rows out of step, answers by chance: truetune"
        " check DATA -t TOKENIZER, truetune show DATA -t TOKENIZER)"
    )
    return "ask in this order: " + "; ".join(causes)
