"""The same losses repeat to the last digit: the weights do not change.

## What it does
Looks for losses that repeat with all their digits: in a row, or with the period of an epoch. With four digits and more
it fires if half of the records in the second half of the run, ten at least, equal the record a fixed number of records
before. With fewer digits it fires if nearly the whole run repeats one sequence of losses, three times at least.

## Why it is bad
The same rows give exactly the same loss only if no weight has changed. Updates are rounded away (bf16 weights with a
low learning rate), the optimizer has other parameters than the model, or the same batch is used at each step and
nothing is learned from it.

## Example
```yaml
curve:
  loss: {from: 5.772331, steps: 30}
  grad_norm: {from: 1.1, steps: 30, noise: 0.1}
```

## Use instead
```yaml
curve:
  loss: {from: 5.772331, to: 4.0, steps: 30, noise: 0.01}
  grad_norm: {from: 1.1, steps: 30, noise: 0.1}
```

## Fix safety
Keep the trained weights in float32 (`bf16=True` with weights loaded in float32), which takes twice the memory for them,
or raise the learning rate.

## References
- huggingface/sentence-transformers#3773, meta-pytorch/torchtune#2254, pytorch/ao#1124
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.reasons_rules_cannot_judge import explain_too_short_curve
from truetune.checks.rule import LogRule
from truetune.logs.run_log import Floats

# Chosen, not measured: losses are logged with four digits and more, so that single ones agree by chance and ten in a
# row at one distance do not.
MIN_REPEATS = 10
DIGITS = 1_000
"""A value must be so many times its last digit."""
# Losses of two or three digits. Two that are spread over so many times their last digit agree by chance once in 35
# pairs (1 / (2 * sqrt(pi) * 10)), so 20 that all do are none. Chosen: a slow run of few steps moves no digit either,
# so that the sequence has to come three times.
MIN_SPREAD_IN_DIGITS = 10.0
MIN_SEQUENCES = 3
MIN_REPEATS_OF_FEW_DIGITS = 20
WHOLE_RUN = 0.95
"""Of the records. Chosen: the rest is a last batch that is cut, or a record that was not logged"""
MAX_PERIODS_TRIED = 20
"""The distances at which most values return first: chosen, it bounds the work for a long log"""


class LossRepeatsExactly(LogRule):
    code = "LOG022"
    fault = Fault.NO_WEIGHT_TRAINED
    severity = "error"
    since = "0.1.0"
    kinds = ("language", "reward")
    needs = ("loss",)
    least = 2 * MIN_REPEATS

    def unmet(self) -> Unmet | None:
        """Also unmet where other rules are about it (gradients or a rate of 0), or losses have too few
        digits.
        """
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        value = self._finite_nonzero_losses()
        if value.size < self.least:
            return explain_too_short_curve(value.size, self.least, "a loss that is not 0")
        if self._is_curve_all_zero("grad_norm"):
            return Unmet("every gradient norm is 0, which grad-norm-zero is about")
        if self._is_curve_all_zero("learning_rate"):
            return Unmet("the learning rate is 0 throughout, which flat-loss is about")
        if _has_enough_digits(value) or _period_of_whole_run(value):
            return None
        return Unmet("the losses are logged with too few digits")

    def measurement_if_clean(self) -> str:
        """How many losses repeat an earlier one to the last digit."""
        value = self._finite_nonzero_losses()
        return (
            f"{int((_records_since_same_value(value) > 0).sum()):,} of {value.size:,} losses repeat an earlier one to"
            " the last digit"
        )

    def _finite_nonzero_losses(self) -> Floats:
        """The finite losses that are not exactly 0."""
        loss: Floats = self.subject.curve("loss").finite().value
        live: Floats = loss[loss != 0]
        return live

    def _is_curve_all_zero(self, name: str) -> bool:
        """Is the curve there, and 0 throughout?"""
        curve = self.subject.curve(name)
        return bool(curve) and not curve.value.any()

    def findings(self) -> Iterator[Finding]:
        log = self.subject
        loss = log.curve("loss").finite()
        live = loss.value != 0
        value, n = loss.value[live], int(live.sum())
        if log.kind not in self.kinds or n < self.least or self._is_curve_all_zero("grad_norm"):
            return
        late_period = _period_of_second_half(value) if _has_enough_digits(value) else 0
        lag = late_period or _period_of_whole_run(value)
        if not lag:
            return
        again = int((_records_since_same_value(value) > 0).sum())
        different = int(np.unique(value).size)
        if self._is_curve_all_zero("learning_rate"):
            return
        yield self.finding(
            f"{again:,} of {n:,} losses repeat an earlier one to the last digit ({different:,}"
            " different values)",
            "build the optimizer from the model's trainable parameters, after get_peft_model or FSDP; load the trained"
            " weights as float32 (dtype=torch.float32 with bf16=True), or raise learning_rate",
            evidence=(
                (
                    f"for example {float(value[-1])} at step {loss.step[live][-1]:,.0f}, and also"
                    f" {lag:,} record{'s' * (lag > 1)} before"
                ),
            ),
            count=again,
            total=n,
            figure=draw_curves("loss", {"loss": loss}),
        )


def _has_enough_digits(value: Floats) -> bool:
    """Are the losses logged with so many digits that two of them agree by chance hardly ever?"""
    return bool(np.median(value) >= DIGITS * _rounding_unit(value))


def _period_of_second_half(value: Floats) -> int:
    """The number of records after which half of the later losses return; 0 where they don't."""
    lags = _records_since_same_value(value)
    late = lags[value.size // 2 :]
    lag = int(np.bincount(late[late > 0]).argmax()) if late.any() else 0
    return lag if (late == lag).sum() >= max(MIN_REPEATS, 0.5 * late.size) else 0


def _period_of_whole_run(value: Floats) -> int:
    """The number of records after which nearly all losses of the run return; 0 where there is none.

    One value all the time is no sequence: with few digits, it is a loss that hardly moves.
    """
    if value.std() < MIN_SPREAD_IN_DIGITS * _rounding_unit(value):
        return 0
    counts = np.bincount(_records_since_same_value(value))
    counts[0] = 0
    for lag in sorted(int(one) for one in np.argsort(counts)[::-1][:MAX_PERIODS_TRIED]):
        if lag < 2 or MIN_SEQUENCES * lag > value.size:
            continue
        repeats = int((value[lag:] == value[:-lag]).sum())
        if repeats >= max(MIN_REPEATS_OF_FEW_DIGITS, WHOLE_RUN * (value.size - lag)):
            return lag
    return 0


def _rounding_unit(value: Floats) -> float:
    """The last digit that these values were rounded to: 0.0001 of 0.1234."""
    for digits in range(1, 8):
        if np.allclose(np.round(value, digits), value, rtol=0, atol=1e-12):
            return float(10**-digits)
    return 1e-8


def _records_since_same_value(value: Floats) -> NDArray[np.int64]:
    """(points,) how many records before the same value stands; 0 where it does not."""
    order = np.lexsort((np.arange(value.size), value))
    same = value[order][1:] == value[order][:-1]
    made = np.zeros(value.size, dtype=np.int64)
    made[order[1:]] = np.where(same, order[1:] - order[:-1], 0)
    return made
