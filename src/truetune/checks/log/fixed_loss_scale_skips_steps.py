"""Steps are skipped because a fixed loss scale of float16 is too large for the gradients.

## What it does
Reads DeepSpeed's lines on overflows (`Attempted loss scale: 65536, reducing to 65536`). If at least six give the same
number twice, and none a smaller one, the settings fix the scale. DeepSpeed's own count (`step=250, skipped=250`) shows
how many steps are lost: it is an error if nearly all are, a warning below that, and not reported below 10 %. If the
DeepSpeed file is beside the log, its line is named.

## Why it is bad
A step whose gradients overflow is skipped, and the learning rate schedule with it: learning rate and gradient norm are
logged as 0, and the loss does not move. A dynamic scale would be halved until the gradients fit; a fixed one never is.

## Example
```yaml
output: |
  [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536.0, reducing to 65536.0
  [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536.0, reducing to 65536.0
  [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536.0, reducing to 65536.0
  [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536.0, reducing to 65536.0
  [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536.0, reducing to 65536.0
  [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536.0, reducing to 65536.0
  [logging.py:107:log_dist] [Rank 0] step=6, skipped=6, lr=[0.0], mom=[[0.9, 0.999]]
  {'loss': 2.31, 'grad_norm': 0.0, 'learning_rate': 0.0, 'epoch': 0.1}
```

## Use instead
```yaml
output: |
  [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536.0, reducing to 32768.0
  [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 32768.0, reducing to 16384.0
  [logging.py:107:log_dist] [Rank 0] step=6, skipped=2, lr=[1e-05], mom=[[0.9, 0.999]]
  {'loss': 2.31, 'grad_norm': 1.2, 'learning_rate': 2e-05, 'epoch': 0.1}
```

## Fix safety
With `"loss_scale": 0`, about the first ten steps may still be skipped until a scale is found. If nothing was trained,
start the run again.

## References
- DeepSpeed documentation, "FP16 training options" (`loss_scale`: 0.0 is dynamic loss scaling)
- deepspeed/runtime/fp16/loss_scaler.py; deepspeed/runtime/zero/stage_1_and_2.py
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.log.float16_use_and_overflow import (
    MIN_SKIPPED_SHARE,
    count_made_or_skipped_steps,
    skipped_steps_of,
)
from truetune.checks.rule import OutputRule
from truetune.checks.severity_by_trainer import is_nearly_all
from truetune.logs.console.steps_skipped_on_float16_overflow import SkippedSteps
from truetune.logs.facts_in_files_beside_log import LOSS_SCALE
from truetune.logs.run_log import RunLog


class FixedLossScaleSkipsSteps(OutputRule):
    code = "LOG146"
    fault = Fault.FLOAT16_RANGE_EXCEEDED
    symptoms = ("loss-does-not-fall", "nothing-is-learned")
    severity = "error"

    def measurement_if_clean(self) -> str:
        """How many steps overflow in float16, and how many of them leave the loss scale as it is."""
        skips = skipped_steps_of(self.subject)
        return (
            f"{skips.overflows:,} steps overflow in float16; {skips.unchanged:,} leave the loss scale"
            " as it is"
        )

    def findings(self) -> Iterator[Finding]:
        log = self.subject
        skips = skipped_steps_of(log)
        if not skips.is_loss_scale_fixed or log.output is None:
            return
        steps = count_made_or_skipped_steps(log)
        skipped = max(skips.overflows, skips.skipped)
        if steps is not None and skipped < MIN_SKIPPED_SHARE * steps:
            return
        is_spoiled = is_nearly_all(skipped, steps)
        of = f" of {steps:,}" if steps is not None else ""
        case = Case(skips.text, file=log.output.file, line=skips.line)
        yield self.finding(
            f"{skipped:,}{of} steps overflow in float16 at a loss scale that is fixed at {skips.scale:,.0f}, and are"
            " skipped" + (": nothing is trained" if is_spoiled else ""),
            'set "loss_scale": 0 in the "fp16" part of the DeepSpeed file, and train again: the scale is then dynamic,'
            " and halved until the gradients fit (also on a V100 or T4, which have no bfloat16)",
            severity="error" if is_spoiled else "warning",
            evidence=tuple(_fixed_scale_evidence(log, skips)),
            cases=(*_fixed_scale_setting_cases(log, skips.scale), case),
            count=skipped,
            total=steps,
        )


def _fixed_scale_evidence(log: RunLog, skips: SkippedSteps) -> Iterator[str]:
    """Evidence that the scale is fixed, and what comes of it."""
    yield (
        f"{skips.overflows:,} lines reduce {skips.scale:,.0f} to the same number: a dynamic scale would be"
        " halved"
    )
    if skips.steps:
        yield f"line {skips.counted_at:,}: DeepSpeed counts {skips.skipped:,} of {skips.steps:,} steps as skipped"
    for name, what in (("grad_norm", "gradient norm"), ("learning_rate", "learning rate")):
        curve = log.curve(name)
        if curve.value.size and not curve.value.any():
            yield f"the {what} is logged as 0, since a skipped step has none"


def _fixed_scale_setting_cases(log: RunLog, scale: float) -> Iterator[Case]:
    """The line of a file beside the log that fixes this very scale."""
    for setting in log.files_beside.settings_named(LOSS_SCALE):
        if isinstance(setting.value, (int, float)) and float(setting.value) == scale:
            yield Case(setting.text, file=setting.file, line=setting.line)
