"""The loss climbs and stays up.

## What it does
Compares the median of the last tenth of the losses with the start (the first tenth or three records, the lower) and
with the lowest level in between (a rolling median). It is an error if the end is above the start by 10 % and five times
the noise of such medians, and a warning if more than half of the gain is lost again; the lowest of many medians may be
low by chance. It is also an error if the loss climbs by 2 right after its first record and none of twenty later ones is
as low as that. A loss that jumps up several times and falls again each time is not reported: rows in a fixed order, or
a run that starts again, make such a curve. The step named is the largest change of level (CUSUM) after the lowest
point.

## Why it is bad
The weights have left the region in which the model worked. Later steps seldom repair that, and every checkpoint after
that step is worse than the model that training started from.

## Example
```yaml
curve:
  loss: {values: [2.0, 1.6, 1.5, 5.0, 7.0, 7.1, 7.0], steps: 120, noise: 0.05}
```

## Use instead
```yaml
curve:
  loss: {values: [2.0, 1.6, 1.5, 1.45, 1.4], steps: 120, noise: 0.05}
```

## Fix safety
Lower the learning rate (to a tenth, first), add warm-up, train in bf16. If a file beside the log sets an adapter scale
(lora_alpha / r, with rsLoRA / sqrt(r)) above every published one, lower that first. Restart from a checkpoint before
the step that is named. Learning becomes slower, and stays stable.

## References
- Lightning-AI/litgpt#628, stas00/ml-engineering#32; CUSUM: Page 1954, doi:10.1093/biomet/41.1-2.100
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.hyperparameter_limits import MAX_PUBLISHED_SCALE
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.log.evidence.compare_end_of_loss_with_beginning import (
    JUMP,
    MIN_POINTS,
    MOST_POINTS,
    LossLevels,
    jumps_after_first_record,
    measure_loss_levels,
)
from truetune.checks.log.float16_use_and_overflow import (
    is_float16_run,
    precision_in_place_of_float16,
)
from truetune.checks.log.restart_advice import advise_restart
from truetune.checks.log.was_adapter_or_all_weights_trained import trains_adapter
from truetune.checks.reasons_rules_cannot_judge import RESUMED, explain_too_short_curve
from truetune.checks.rule import LogRule
from truetune.logs.detect_resumes_without_state import find_restarts
from truetune.logs.robust_statistics import (
    block_medians,
    jumps_up_repeatedly,
    medians_of_both_ends,
    noise_sigma,
    stretches_of_true,
    strongest_level_shift,
)
from truetune.logs.run_log import Curve, Floats

USUAL_OF_ADAPTERS, USUAL_OF_ALL_WEIGHTS = (1e-4, 5e-4), (1e-5, 5e-5)
"""Published rates of AdamW, from and to"""
MIN_RECORDS_ABOVE = 20
"""Records that all lie above the first, where most have come down again: one that is low by chance is 1 in 21 then"""
MIN_NOISES = 10.0
"""Noise of one record that such a jump is above. Chosen, not measured: losses of single rows jump by 2 nats within five
times their noise; at double, runs that were destroyed within their first record are missed"""


def climbs_from_first_record(loss: Curve) -> bool:
    """Does the loss climb right behind its first record, and come down to no lower level than that record's?

    A run that logs each ten steps is destroyed within its first record: that one is a mean over the climb, and what
    follows falls to the level of guessing by frequency.
    """
    later = loss.value[1:]
    if later.size < MIN_RECORDS_ABOVE:
        return False
    first = float(loss.value[0])
    climb = float(later[: max(3, later.size // 10)].max()) - first
    is_clear = climb > max(JUMP, MIN_NOISES * noise_sigma(loss.value))
    return is_clear and bool(later.min() > first)


def _records_around_rise(values: Floats, place: int, last: float) -> tuple[int, int]:
    """The indices of the lowest record up to a rise, and of the first behind it more than half way
    to the end.
    """
    low = int(np.argmin(values[: place + 1]))
    above = np.flatnonzero(values[place:] > (float(values[low]) + last) / 2)
    return low, place + int(above[0]) if above.size else place


def _describe_record(loss: Curve, index: int, unit: str) -> str:
    """One record of a loss: its value and its own step, or its number where the log has no steps."""
    return f"{float(loss.value[index]):.4g} at {unit} {float(loss.step[index]):,.0f}"


def _describe_lowest_level(levels: LossLevels) -> str:
    """The lowest level in words; nothing where it jumped at once, and medians lie above the first
    record.
    """
    return "" if levels.at_once else f" lowest {levels.best:.4g},"


class LossDiverges(LogRule):
    code = "LOG007"
    fault = Fault.LOSS_UNSTABLE
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    moot_where = ("loss-climbs-above-guessing", "loss-repeats-with-the-epoch")
    kinds = ("language", "preference", "reward")
    needs = ("loss",)
    least = MIN_POINTS

    def unmet(self) -> Unmet | None:
        """Also unmet where too few losses are not 0, or the log has restarts."""
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        live = int((self.subject.curve("loss").finite().value != 0).sum())
        if live < MIN_POINTS:
            return explain_too_short_curve(live, MIN_POINTS, "a loss that is not 0")
        return RESUMED if find_restarts(self.subject) else None

    def measurement_if_clean(self) -> str:
        """The loss at first, at the lowest and at the end."""
        loss = self.subject.curve("loss").finite().value
        first, last = medians_of_both_ends(loss)
        return (
            f"the loss is {first:.4g} at first, {loss.min():.4g} at the lowest and {last:.4g} at"
            " the end"
        )

    def findings(self) -> Iterator[Finding]:
        log = self.subject
        loss = log.curve("loss").finite()
        # transformers logs 0 instead of a NaN: no low point of the curve
        live = loss.value != 0
        loss = block_medians(Curve(loss.step[live], loss.value[live]), MOST_POINTS)
        if log.kind not in self.kinds or loss.step.size < MIN_POINTS or find_restarts(log):
            return
        if jumps_up_repeatedly(loss.value):
            return  # it learns between the leaps: rows in an order, or a run that begins again
        levels = measure_loss_levels(loss.value, jumps_after_first_record(loss))
        if levels.is_worse or levels.is_lost:
            yield self._finding_on_lasting_rise(loss, levels)
        elif climbs_from_first_record(loss):
            yield self._finding_on_first_climb(loss)

    def _finding_on_lasting_rise(self, loss: Curve, levels: LossLevels) -> Finding:
        """The finding of a loss that ends above where it began, or gives back what had been gained."""
        log = self.subject
        first, last = levels.first, levels.last
        # medians of neighbours lie above a first record behind which the loss jumps at once
        low = 0 if levels.at_once else levels.low
        middle = (levels.best + last) / 2
        place = 1 if levels.at_once else self._index_of_level_change(loss.value, low, middle)
        step = float(loss.step[place])
        low, high = _records_around_rise(loss.value, place, last)
        began = min(first, float(loss.value[0]))
        whose = "of its first records" if began < float(loss.value[0]) else "that it started with"
        return self.finding(
            f"the loss rises from {_describe_record(loss, low, log.unit_of_steps)} to"
            f" {_describe_record(loss, high, log.unit_of_steps)} and stays up:"
            f" {last:.4g} at the end"
            + (f", above the {began:.4g} {whose}" if levels.is_worse else ""),
            f"{advise_restart(log, step)}; {self._advice_on_adapter_scale()}{self._advice_on_rate()}, and more"
            f" warm-up{self._advice_on_precision()}",
            severity="error" if levels.is_worse else "warning",
            evidence=(
                *self._unusual_adapter_scale_evidence(),
                f"first record {float(loss.value[0]):.4g}; medians of neighbours: at first {first:.4g},"
                f"{_describe_lowest_level(levels)} at the end {last:.4g}; noise {levels.sigma:.3g}",
            ),
            figure=draw_curves(
                "loss", {"loss": loss}, {"rises": step, "lowest": float(loss.step[low])}
            ),
        )

    def _finding_on_first_climb(self, loss: Curve) -> Finding:
        """The finding of a loss that climbs behind its first record, with no later one as low as
        that.
        """
        unit, last = self.subject.unit_of_steps, float(loss.value[-1])
        top = int(np.argmax(loss.value))
        lowest = 1 + int(np.argmin(loss.value[1:]))
        first, high = float(loss.step[0]), float(loss.step[top])
        return self.finding(
            f"the loss rises from {_describe_record(loss, 0, unit)} to {_describe_record(loss, top, unit)}, and none of"
            f" the {loss.step.size - 1:,} records after the first is as low again: {last:.4g} at the end",
            f"{advise_restart(self.subject, high)}; {self._advice_on_adapter_scale()}{self._advice_on_rate()}, and more"
            f" warm-up{self._advice_on_precision()}",
            severity="error",
            evidence=(
                *self._unusual_adapter_scale_evidence(),
                f"the lowest record after the first is {_describe_record(loss, lowest, unit)};"
                f" noise {noise_sigma(loss.value):.3g}",
            ),
            figure=draw_curves("loss", {"loss": loss}, {"rises": high, "first": first}),
        )

    def _advice_on_precision(self) -> str:
        """The advice to change the precision, where the run is not known to be in another one than
        float16.
        """
        output, dtype = self.subject.output, self.subject.facts.get("dtype")
        if is_float16_run(self.subject) or dtype == "float16":
            return f", and {precision_in_place_of_float16(self.subject)} instead of float16"
        is_other = (output is not None and output.settings.brain) or dtype in (
            "bfloat16",
            "float32",
        )
        is_other = is_other or self.subject.facts.get("bf16") is True
        beside = self.subject.files_beside.setting("bf16")
        is_other = is_other or (beside is not None and beside.value is True)
        return "" if is_other else ", and in bf16 if it was in float16"

    def _unusual_adapter_scale_evidence(self) -> tuple[str, ...]:
        """Evidence: the scale of the adapter, where a file beside the log sets one that is not
        usual.
        """
        adapter = self.subject.files_beside.adapter
        if adapter is None or adapter.scale <= MAX_PUBLISHED_SCALE:
            return ()
        return (
            f"{adapter.place} sets {adapter}, which multiplies the adapter's output: 1 to 2 is usual, and"
            f" {MAX_PUBLISHED_SCALE:g} is the highest that is published for usual learning rates",
        )

    def _advice_on_adapter_scale(self) -> str:
        """The advice to correct the adapter's scale first, where it is what is not usual."""
        adapter = self.subject.files_beside.adapter
        if adapter is None or not self._unusual_adapter_scale_evidence():
            return ""
        root = " (or turn rsLoRA off)" if adapter.is_rank_stabilised else ""
        return (
            f"lower the scale of the adapter to 2 by lora_alpha={2 * adapter.lora_alpha_divisor:.0f}"
            f" instead of {adapter.alpha:g}{root}; if the loss still rises, "
        )

    def _advice_on_rate(self) -> str:
        """The advice that sets the run's rate beside those in use, where the log has it and a
        language model is trained.
        """
        rate = self.subject.curve("learning_rate").finite()
        if not rate or self.subject.kind != "language":
            return "train with a lower learning_rate"
        peak = float(rate.value.max())
        lower = f"train with a learning_rate below {peak:.3g}"
        if trains_adapter(self.subject):
            usual, low, high = "1e-4 to 5e-4 are usual for LoRA", *USUAL_OF_ADAPTERS
        else:
            usual, low, high = (
                "1e-5 to 5e-5 are usual for full fine-tuning, 1e-4 to 5e-4 for LoRA",
                *USUAL_OF_ALL_WEIGHTS,
            )
        # A tenth on both sides: a log rounds, and seldom has the very peak.
        if peak > 1.1 * high:
            return f"{lower} ({usual})"
        if peak >= 0.9 * low:
            # A rate within the usual span is lowered below it only as a trial: the cause may be another.
            return f"train with a third of the learning rate: {peak / 3:.2g} ({peak:.3g} is usual, but too high here)"
        return lower

    def _index_of_level_change(self, values: Floats, low: int, middle: float) -> int:
        """Where the level changes after its lowest place; else the first of the points that stay
        above the middle.
        """
        change = strongest_level_shift(values[low:], 2)
        if change is not None and change.after > change.before:
            return low + change.at
        above = stretches_of_true(values[low:] > middle)
        return low + (above[-1][0] if above else 0)
