"""A preference run used a learning rate far above the usual ones, and its curves show it.

## What it does
Reads the highest logged learning rate and the end of the curves in logs of DPO and similar methods. It warns if the
median of the last margins is above 10, that of the last losses is below 0.001, and the learning rate is 2e-5 or more.
If the log or the files beside it show that an adapter was trained, it warns from 2e-4 on.

## Why it is bad
Published DPO runs use 5e-7 to 5e-6 for full fine-tuning and 5e-6 to 5e-5 for adapters, and end with margins of 0.5 to
3. At a beta of 0.1, a margin of 30 means that one answer is e^300 times as likely as the other, relative to the
reference. Both were pushed far from anything that the model wrote before, and it repeats itself or writes garbage. Loss
and accuracy look perfect.

## Example
```yaml
curve:
  loss: {from: 0.69, to: 0.0001, steps: 60, noise: 0.00001, values: [0.69, 0.01, 0.0002, 0.0002, 0.0001, 0.0001]}
  rewards/margins: {from: 0, to: 35, steps: 60, noise: 0.5, values: [0, 20, 30, 34, 35, 35]}
  learning_rate: {from: 0.00005, to: 0, steps: 60}
```

## Use instead
```yaml
curve:
  loss: {from: 0.69, to: 0.5, steps: 60, noise: 0.02}
  rewards/margins: {from: 0, to: 1.2, steps: 60, noise: 0.1}
  learning_rate: {from: 0.0000005, to: 0, steps: 60}
```

## Fix safety
Start again from the SFT model: the weights of this run are ruined. One epoch is enough at a lower learning rate too.

## References
- alignment-handbook's recipes (zephyr-7b-beta: DPO 5e-7, LoRA 5e-6); TRL's `DPOConfig` (1e-6); Rafailov et al. 2023,
  arXiv 2305.18290 (1e-6)
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.was_adapter_or_all_weights_trained import trains_adapter
from truetune.checks.rule import LogRule

MIN_POINTS = 10
"""Records. Chosen by hand: the level at the end is the median of a fifth of them, which is two at least"""
MARGIN, LOSS = 10.0, 1e-3
"""At the end. Chosen, not measured: published runs of DPO end with margins below 3 and losses above 0.3"""
USUAL_OF_ALL, USUAL_OF_ADAPTER = (5e-7, 5e-6), (5e-6, 5e-5)
"""Published rates (learning-rate-far-from-published)"""
HIGH_OF_ALL, HIGH_OF_ADAPTER = 2e-5, 2e-4
"""Chosen, not measured: four times the highest usual rate, so that a bold rate alone is not named"""


class PreferenceRateFarTooHigh(LogRule):
    code = "LOG124"
    fault = Fault.LEARNING_RATE_TOO_HIGH_OR_LOW
    symptoms = ("dpo-without-effect", "garbage-output")
    severity = "warning"
    kinds = ("preference",)
    least = MIN_POINTS

    def unmet(self) -> Unmet | None:
        """Also unmet where the log has no learning rate or no margin of rewards."""
        lacking = super().unmet()
        if lacking is not None:
            return lacking
        names = [
            name for name in ("learning_rate", "rewards/margins") if not self.subject.curve(name)
        ]
        return Unmet(f"the log has no {' and no '.join(names)}") if names else None

    def measurement_if_clean(self) -> str:
        """The peak learning rate, and the margin at the end."""
        return f"learning rate {self._peak_rate():.3g}; margin {self._level_at_end('rewards/margins'):.3g} at the end"

    def findings(self) -> Iterator[Finding]:
        log, peak = self.subject, self._peak_rate()
        if log.kind != "preference" or any(
            log.curve(name).finite().value.size < MIN_POINTS for name in ("loss", "rewards/margins")
        ):
            return
        margin, loss = self._level_at_end("rewards/margins"), self._level_at_end("loss")
        is_adapter = trains_adapter(log)
        high = HIGH_OF_ADAPTER if is_adapter else HIGH_OF_ALL
        if peak < high or margin <= MARGIN or loss >= LOSS:
            return
        yield self.finding(
            f"the learning rate of {peak:.2g} is {_describe_rate_factor(peak, is_adapter)}, and the curves show it: the"
            f" margin ends at {margin:.3g} (0.5 to 3 is usual) and the loss at {loss:.1g}",
            "train again from the SFT model with learning_rate 5e-7 to 5e-6 (an adapter: 5e-6 to 5e-5), for one epoch",
            evidence=[
                f"at a beta of 0.1, a margin of {margin:.3g} means that the log-probabilities of both answers moved"
                f" apart by {margin / 0.1:,.0f}",
                *self._note_on_unknown_adapter(peak, is_adapter),
            ],
        )

    def _peak_rate(self) -> float:
        """The highest recorded rate; 0 where none is logged."""
        rates = self.subject.curve("learning_rate").finite().value
        return float(rates.max()) if rates.size else 0.0

    def _level_at_end(self, name: str) -> float:
        """The median of the last fifth of a curve."""
        values = self.subject.curve(name).finite().value
        return float(np.median(values[-max(3, values.size // 5) :])) if values.size else 0.0

    def _note_on_unknown_adapter(self, peak: float, is_adapter: bool) -> Iterator[str]:
        """A note that it is not known whether an adapter is trained, where the rate is usual for
        one.
        """
        output = self.subject.output
        is_told = output is not None and output.settings.share is not None
        if not is_adapter and not is_told and peak <= USUAL_OF_ADAPTER[1]:
            yield (
                "the log does not show whether all weights or an adapter were trained; for an adapter this learning"
                " rate is usual, but the curves still show that the run went too far"
            )


def _describe_rate_factor(peak: float, is_adapter: bool) -> str:
    """How many times above the usual rates a rate is, in words."""
    low, top = USUAL_OF_ADAPTER if is_adapter else USUAL_OF_ALL
    what = "an adapter" if is_adapter else "full fine-tuning"
    times = f"{peak / top:.0f} to {peak / low:.0f} times the usual one in DPO for {what}"
    return f"{times} ({low:.0e} to {top:.0e})".replace("e-0", "e-")
