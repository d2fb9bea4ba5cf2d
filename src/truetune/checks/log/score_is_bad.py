"""A score of the run is at its worst in every record, falls, or is not a number.

## What it does
Looks at the scores of the log, of training and evaluations: accuracies, overlaps and matches by their names, and the
reward of a generating trainer. It fires where an accuracy, an overlap or a match is exactly 0 in all of three records
or more; where the accuracy of pairs ends below 0.4 over 20 records, worse than chance; where the reward falls by a
fifth and five times its noise (Mann-Kendall z < -3.3); and where half of a score's records are not numbers. Other
scores that fall like that are a note. Parts of a reward are left to `no-reward-signal`, and pairs whose margin is 0
throughout to `dpo-stuck-at-ln2`.

## Why it is bad
The loss may come down all the same. A score of 0 says that nothing is right, or that the metric compares what it
should not: padding with labels, shifted tokens, an answer that its parser never finds. Pairs in the wrong order have
chosen and rejected swapped. A reward that falls is unlearned.

## Example
```yaml
curve:
  loss: {from: 2.0, to: 1.4, steps: 60, noise: 0.02}
  mean_token_accuracy: {from: 0.0, steps: 60}
```

## Use instead
```yaml
curve:
  loss: {from: 2.0, to: 1.4, steps: 60, noise: 0.02}
  mean_token_accuracy: {from: 0.55, to: 0.66, steps: 60, noise: 0.01}
```

## Fix safety
Compute the score on a few rows by hand before anything is changed: the metric may be what is wrong.

## References
- huggingface/transformers#26474; Gao et al. 2023, arXiv 2210.10760 (rewards that fall)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.log_figures import draw_curves
from truetune.checks.rule import LogRule
from truetune.logs.metric_direction import is_share_metric
from truetune.logs.robust_statistics import end_medians, fit_trend, noise_sigma
from truetune.logs.run_log import Curve
from truetune.spec.run_spec import Severity

MIN_ZEROS, MIN_POINTS, MIN_PAIRS = 3, 10, 20
FALL, SURE = 0.2, 3.3
CHANCE = 0.4
"""Accuracy of pairs: 0.5 is chance, and a run that has learned nothing stays near it"""
PAIRS = ("rewards/accuracies", "eval_rewards/accuracies")
REWARDS = ("reward", "eval_reward")
LOST = 0.5
SHOWN = 4


class Fault(NamedTuple):
    """What is wrong with one score."""

    text: str
    severity: Severity


class ScoreIsBad(LogRule):
    code = "LOG034"
    severity = "warning"

    def unmet(self) -> Unmet | None:
        if self._scores():
            return None
        return Unmet("the log has no accuracy, overlap or reward", "log one (compute_metrics)")

    def figure(self) -> str:
        told = (
            f"{name} ends at {end_medians(curve.finite().value)[1]:.3g}"
            for name, curve in list(self._scores().items())[:4]
        )
        return "; ".join(told)

    def findings(self) -> Iterator[Finding]:
        for name, curve in self._scores(finite=False).items():
            fault = self._fault(name, curve)
            if fault is not None:
                yield self.finding(
                    f"{name} {fault.text}",
                    "compute it by hand on a few rows; then see that labels, pairs or the reward"
                    " function are right",
                    severity=fault.severity,
                    total=int(curve.step.size),
                    figure=draw_curves(name, {name: curve}),
                )

    def _fault(self, name: str, curve: Curve) -> Fault | None:
        seen = curve.finite()
        lost = curve.step.size - seen.step.size
        if lost >= MIN_ZEROS and lost > LOST * curve.step.size:
            return Fault(
                f"is not a number at {lost:,} of {curve.step.size:,} logged steps", "warning"
            )
        pairs = name in PAIRS or (
            self.subject.kind == "reward" and name in ("accuracy", "eval_accuracy")
        )
        if (
            seen.step.size >= MIN_ZEROS
            and not pairs
            and is_share_metric(name)
            and not seen.value.any()
        ):
            return Fault(f"is exactly 0 at all {seen.step.size:,} logged steps", "warning")
        last = float(np.median(seen.value[-max(3, seen.value.size // 5) :])) if seen else 1.0
        if pairs and seen.step.size >= MIN_PAIRS and last < CHANCE:
            return Fault(
                f"ends at {last:.2f} over {seen.step.size:,} records: pairs are in the wrong order",
                "warning",
            )
        if seen.step.size < MIN_POINTS or not self._falls(seen):
            return None
        first, last = end_medians(seen.value)
        return Fault(
            f"gets worse over the run: {first:.3g} to {last:.3g}",
            "warning" if name == "reward" else "info",
        )

    def _falls(self, curve: Curve) -> bool:
        """Does it come down by a fifth, and by more than chance?"""
        first, last = end_medians(curve.value)
        clear = first - last > max(FALL * abs(first), 5 * noise_sigma(curve.value))
        return clear and fit_trend(curve).z < -SURE

    def _scores(self, *, finite: bool = True) -> dict[str, Curve]:
        """Curves of scores, those with a number in them where `finite`; without what other rules are about."""
        log = self.subject
        still = not log.curve("rewards/margins").finite().value.any()
        others = {
            *(() if log.curve("reward").finite() else ("reward",)),
            *(PAIRS if still else ()),
            *(name for name in log.curves if name.startswith("rewards/") and name not in PAIRS),
        }
        known = {
            n: c
            for n, c in log.curves.items()
            if c and n not in others and (is_share_metric(n) or n in REWARDS)
        }
        return {name: curve for name, curve in known.items() if curve.finite() or not finite}
