"""The loss scale of float16 falls to almost nothing: gradients overflow again and again.

## What it does
Reads the loss scale that Megatron, fairseq and loops with a `GradScaler` print. It fires if the scale was 64 or more,
falls to 1 or below, and stays there. It also reads the lines of DeepSpeed, Apex and fairseq on single overflows: it
fires if the scale came down to its least (`reducing to 1` again and again) and a tenth of the steps or more were
skipped, or if DeepSpeed counts a fifth of 100 steps or more as skipped. The halvings of the first steps, which end at
some hundreds or thousands, are the normal search for a scale.

## Why it is bad
The scale is halved at each step whose gradients are infinite, and that step is skipped. Below 1 it makes small
gradients even smaller, so they become 0 in float16. The steps that are still made teach nothing, and a NaN ends the
run.

## Example
```yaml
curve:
  loss: {values: [2.3, 2.2, 2.1, 2.05, 2.0], steps: 60, noise: 0.02}
  loss_scale: {values: [65536, 8192, 256, 4, 0.25, 0.01], steps: 60}
```

## Use instead
```yaml
curve:
  loss: {values: [2.3, 2.1, 1.9, 1.8, 1.75], steps: 60, noise: 0.02}
  loss_scale: {values: [65536, 32768, 16384, 16384, 16384], steps: 60}
```

## Fix safety
bf16 needs no loss scale and has the range of float32; it needs an Ampere GPU or newer. A run that continued with
skipped steps has to start again, or from a checkpoint before the fall.

## References
- Micikevicius et al. 2018, "Mixed Precision Training" (arXiv 1710.03740), section 3.2
- deepspeed/runtime/fp16/loss_scaler.py (`min_loss_scale`, 1 by default)
- NVIDIA/Megatron-LM megatron/core/optimizer/grad_scaler.py; pytorch torch/amp/grad_scaler.py
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.log.float16_use_and_overflow import (
    MIN_SKIPPED_SHARE,
    count_made_or_skipped_steps,
    float16_overflow_evidence,
    float16_overflow_remedy,
    skipped_steps_of,
)
from truetune.checks.rule import LogRule
from truetune.checks.severity_by_trainer import is_nearly_all
from truetune.logs.run_log import Curve

MIN_POINTS = 8
"""Records. Chosen by hand: a scale that begins at 64 takes six halvings to fall to 1"""
MIN_COUNTED_STEPS = 100
"""Chosen, not measured: DeepSpeed begins at a scale of 65,536 or 2**32 and skips some twenty steps until one fits"""
MIN_COUNTED_SHARE = 0.2
"""Of the steps that DeepSpeed counts. Chosen: a run loses a fifth of what it was meant to learn"""
# A scale that is set to 1 by hand, as for bf16, stays there: it has to fall. fairseq begins at 128, others at 65,536.
MIN_FIRST_SCALE = 64.0
# Megatron's own floor (min_loss_scale) is 1; a GradScaler has none and falls to 1e-30.
MAX_LAST_SCALE = 1.0


class LossScaleCollapses(LogRule):
    code = "LOG063"
    fault = Fault.FLOAT16_RANGE_EXCEEDED
    symptoms = ("loss-does-not-fall",)
    severity = "error"
    needs = ("loss_scale",)
    least = MIN_POINTS

    def unmet(self) -> Unmet | None:
        """Met by lines on overflows or skipped steps as well, where the log has no curve of the scale."""
        skips = skipped_steps_of(self.subject)
        return None if skips.overflows or skips.steps else super().unmet()

    def measurement_if_clean(self) -> str:
        """The highest and the last loss scale."""
        scale = self.subject.curve("loss_scale").finite()
        if not scale:
            skips = skipped_steps_of(self.subject)
            return (
                f"{skips.overflows:,} steps overflow in float16, and the last loss scale tried is"
                f" {skips.scale:.4g}"
            )
        return (
            f"the loss scale is {scale.value.max():.4g} at most and {scale.value[-1]:.4g} at the"
            " end"
        )

    def findings(self) -> Iterator[Finding]:
        scale = self.subject.curve("loss_scale").finite()
        findings = list(self._findings_on_logged_scale(scale))
        findings = findings or list(self._findings_on_printed_overflows())
        yield from findings or self._findings_on_counted_skips()

    def _findings_on_counted_skips(self) -> Iterator[Finding]:
        """A finding where DeepSpeed counts a fifth of the steps as skipped, and prints no overflow."""
        skips = skipped_steps_of(self.subject)
        if skips.overflows or skips.steps < MIN_COUNTED_STEPS or self.subject.output is None:
            return
        if skips.skipped < MIN_COUNTED_SHARE * skips.steps:
            return
        is_spoiled = is_nearly_all(skips.skipped, skips.steps)
        yield self.finding(
            f"DeepSpeed skipped {skips.skipped:,} of {skips.steps:,} steps: their gradients overflow in float16"
            + (", and nothing is trained" if is_spoiled else ""),
            float16_overflow_remedy(self.subject),
            severity="error" if is_spoiled else "warning",
            evidence=tuple(float16_overflow_evidence(self.subject)),
            cases=(
                Case(
                    f"step={skips.steps}, skipped={skips.skipped}",
                    file=self.subject.output.file,
                    line=skips.counted_at,
                ),
            ),
            count=skips.skipped,
            total=skips.steps,
        )

    def _findings_on_printed_overflows(self) -> Iterator[Finding]:
        """A finding where single overflows are printed until the scale is at its least, and there too."""
        log = self.subject
        skips = skipped_steps_of(log)
        if not skips.is_loss_scale_at_its_least or log.output is None:
            return
        steps = count_made_or_skipped_steps(log)
        skipped = max(skips.overflows, skips.skipped)
        if steps is not None and skipped < MIN_SKIPPED_SHARE * steps:
            return
        of = f" of {steps:,}" if steps is not None else ""
        is_spoiled = is_nearly_all(skipped, steps)
        yield self.finding(
            f"{skipped:,}{of} steps overflow in float16 and are skipped, down to the smallest loss scale"
            f" ({skips.scale:.4g})" + (": nothing is trained" if is_spoiled else ""),
            f"{float16_overflow_remedy(log)}; if the loss overflows in float32 too, the weights or the inputs are"
            " wrong: look for NaN or huge values in them",
            severity="error" if is_spoiled else "warning",
            evidence=(
                f"the first scale that overflows is {skips.first_scale:,.0f}, the last one {skips.scale:.4g}; the last"
                f" {skips.at_least:,} overflows in a row do not lower it, or find it at 1 or below",
                *(
                    (
                        f"line {skips.counted_at:,}: DeepSpeed counts {skips.skipped:,} of {skips.steps:,} steps as"
                        " skipped",
                    )
                    if skips.steps
                    else ()
                ),
                *float16_overflow_evidence(log),
            ),
            cases=(Case(skips.text, file=log.output.file, line=skips.line),),
            count=skipped,
            total=steps,
        )

    def _findings_on_logged_scale(self, scale: Curve) -> Iterator[Finding]:
        """A finding where the logged scale falls to 1 or below, and stays there."""
        log = self.subject
        if scale.step.size < MIN_POINTS or scale.value.max() < MIN_FIRST_SCALE:
            return
        highest = int(np.argmax(scale.value))
        low = scale.value[highest:] <= MAX_LAST_SCALE
        if not low.any() or not low[np.argmax(low) :].all():
            return
        first = float(scale.step[highest:][low][0])
        norm = log.curve("grad_norm")
        infinite = int((~np.isfinite(norm.value)).sum())
        yield self.finding(
            f"the loss scale of float16 falls from {scale.value.max():,.0f} to"
            f" {scale.value[-1]:.3g}: gradients overflow again and again, and those steps are"
            " skipped",
            f"{float16_overflow_remedy(log)}; start again, or continue from a checkpoint before step"
            f" {first:,.0f}",
            evidence=(
                f"it stays at 1 or below from step {first:,.0f} to the end",
                *(
                    (
                        f"the gradient norm is not finite at {infinite:,} of {norm.step.size:,} steps",
                    )
                    if infinite
                    else ()
                ),
                *float16_overflow_evidence(log),
            ),
            figure=draw_curves("loss scale", {"loss_scale": scale}, {"at 1": first}, log=True),
        )
