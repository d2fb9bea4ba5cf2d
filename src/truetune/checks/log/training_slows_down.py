"""Training became much slower and stayed slow.

## What it does
Takes tokens (else steps) per second between records, from logged times or logged speeds, and looks for the largest
change of level in their logarithm (CUSUM). It reports as info that the speed falls to half or less until the end.

## Why it is bad
The result is not wrong. But a run that takes twice as long has met something: another job on the GPU, a GPU that
throttles because it is hot, memory that is swapped, rows that get longer.

## Example
```yaml
curve:
  loss: {from: 2.0, to: 1.5, steps: 60, noise: 0.01}
  tokens_per_second: {values: [9000, 9000, 9000, 3000, 3000, 3000], steps: 60, noise: 50}
```

## Use instead
```yaml
curve:
  loss: {from: 2.0, to: 1.5, steps: 60, noise: 0.01}
  tokens_per_second: {values: [9000, 9000, 9000, 8800, 8900], steps: 60, noise: 50}
```

## Fix safety
Reading the GPU's load, temperature and memory (`nvidia-smi dmon`) changes nothing.

## References
- CUSUM: Page 1954, doi:10.1093/biomet/41.1-2.100
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.reasons_rules_cannot_judge import LOGGED_BY, explain_too_short_curve
from truetune.checks.rule import LogRule
from truetune.logs.robust_statistics import (
    block_medians,
    medians_of_both_ends,
    strongest_level_shift,
)
from truetune.logs.run_log import EMPTY_CURVE, Curve

MIN_POINTS = 20
"""Records of a rate. Chosen by hand: the first steps are slow, and a change of level needs records on both sides"""
# Chosen, not measured: batches of longer rows, other users of the machine and evaluations slow a run by less; at 4, a
# GPU that throttles is not seen.
MIN_SLOWDOWN = 2.0


class TrainingSlowsDown(LogRule):
    code = "LOG019"
    fault = Fault.TRAINING_SLOWER_THAN_NEEDED
    symptoms = ("several-gpus", "slow-training")
    severity = "info"
    since = "0.1.0"

    def unmet(self) -> Unmet | None:
        """Unmet where the log has too few rates of steps or tokens."""
        count = int(self._counted_unit_and_rate()[1].step.size)
        if count >= MIN_POINTS:
            return None
        if not self.subject.curve("wall_time") and not count:
            return Unmet(
                "the log has no wall_time and no tokens_per_second", LOGGED_BY["wall_time"]
            )
        return explain_too_short_curve(count, MIN_POINTS, "a rate")

    def measurement_if_clean(self) -> str:
        """The rate at first and at the end."""
        unit, rate = self._counted_unit_and_rate()
        first, last = medians_of_both_ends(rate.value)
        return (
            f"{first:,.3g} {unit} per second at first, {last:,.3g} at the end ({rate.step.size:,}"
            " records)"
        )

    def findings(self) -> Iterator[Finding]:
        unit, rate = self._counted_unit_and_rate()
        if rate.step.size < MIN_POINTS:
            return
        # A step that saved or evaluated is slow by right: medians of blocks leave it out. Speeds differ by factors, so
        # their logarithms are compared.
        rate = block_medians(rate, 200)
        change = strongest_level_shift(np.log(rate.value), max(4, rate.value.size // 10))
        if change is None or change.before - change.after < np.log(MIN_SLOWDOWN):
            return
        late = float(np.median(rate.value[-max(4, rate.value.size // 10) :]))
        before, after = float(np.exp(change.before)), float(np.exp(change.after))
        if late * MIN_SLOWDOWN > before:
            return
        step = float(rate.step[change.at])
        yield self.finding(
            f"from step {step:,.0f} on the run makes only {after:,.3g} {unit} per second, instead of"
            f" {before:,.3g} before",
            "check the GPU at that step: other processes (nvidia-smi), temperature and throttling (nvidia-smi -q -d"
            " PERFORMANCE), memory close to full, longer rows",
            figure=draw_curves(f"{unit} a second", {unit: rate}, {"slower": step}),
        )

    def _counted_unit_and_rate(self) -> tuple[str, Curve]:
        """What is counted (tokens, or steps where tokens are not logged), and the curve of how many
        a second.
        """
        log = self.subject
        for name in ("tokens_per_second", "train_tokens_per_second"):
            curve = log.curve(name).finite()
            if curve:
                keep = curve.value > 0
                return "tokens", Curve(curve.step[keep], curve.value[keep])
        time, tokens = log.curve("wall_time").finite(), log.curve("num_tokens").finite()
        if time.step.size < MIN_POINTS:
            return "steps", EMPTY_CURVE
        unit, done = (
            ("tokens", tokens.at(time.step))
            if tokens.step.size >= MIN_POINTS
            else ("steps", time.step)
        )
        seconds, amount = np.diff(time.value), np.diff(done)
        # a resumed run goes back in its count, and clocks may be set
        keep = (seconds > 0) & (amount > 0)
        return unit, Curve(time.step[1:][keep], amount[keep] / seconds[keep])
