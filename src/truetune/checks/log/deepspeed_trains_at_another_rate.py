"""DeepSpeed trains with another learning rate than the command or the printed options say.

## What it does
Compares the highest logged learning rate with that of the command (`--lr`, `--learning_rate`) or of the options that
the script prints, in output where DeepSpeed says that it built the optimizer itself. It warns from twice the learning
rate on; from ten times on it is an error. A factor that is a power of two, or the root of one, is not reported: scripts
scale the learning rate by their processes or rows.

## Why it is bad
`deepspeed.initialize` without an optimizer uses the learning rate in the `optimizer` block of its settings, and nothing
reads that of the command. A hundred times the learning rate destroys the weights: the loss climbs in the first steps
and stays up.

## Example
```yaml
output: |
  cmd = python -u -m deepspeed.launcher.launch train.py --lr 1e-5 --ds_config ds.json
  Using DeepSpeed Optimizer param name adamw as basic optimizer
  [Rank 0] step=10, skipped=0, lr=[0.001], mom=[[0.9, 0.95]]
  step 10 loss 6.97
  [Rank 0] step=20, skipped=0, lr=[0.001], mom=[[0.9, 0.95]]
  step 20 loss 9.75
  [Rank 0] step=30, skipped=0, lr=[0.001], mom=[[0.9, 0.95]]
  step 30 loss 8.17
  [Rank 0] step=40, skipped=0, lr=[0.001], mom=[[0.9, 0.95]]
  step 40 loss 7.41
```

## Use instead
```yaml
output: |
  cmd = python -u -m deepspeed.launcher.launch train.py --lr 1e-5 --ds_config ds.json
  Using DeepSpeed Optimizer param name adamw as basic optimizer
  [Rank 0] step=10, skipped=0, lr=[1e-05], mom=[[0.9, 0.95]]
  step 10 loss 1.97
  [Rank 0] step=20, skipped=0, lr=[1e-05], mom=[[0.9, 0.95]]
  step 20 loss 1.75
  [Rank 0] step=30, skipped=0, lr=[1e-05], mom=[[0.9, 0.95]]
  step 30 loss 1.61
  [Rank 0] step=40, skipped=0, lr=[1e-05], mom=[[0.9, 0.95]]
  step 40 loss 1.52
```

## Fix safety
There is no automatic fix: only you know which of the two is meant. If it is that of the command, the run has to start
again from the base.

## References
- deepspeed/runtime/engine.py (`_configure_basic_optimizer`), www.deepspeed.ai/docs/config-json/, "Optimizer Parameters"
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.rule import LogRule

# Chosen, not measured: below, a rate is rounded or set twice; a usual choice differs by more.
MIN_FACTOR = 2.0
"""How many times the command's rate the logged one is, before it is another"""
# Chosen, not measured: published rates of one kind of training differ by five at most.
MIN_ERROR_FACTOR = 10.0
"""From where on the rate is surely not the one that was meant"""
MAX_SCALING_ERROR = 0.02
"""How far, in powers of two, a factor is from one that a script scales its rate by: logged rates are rounded"""


class DeepspeedTrainsAtAnotherRate(LogRule):
    code = "LOG160"
    fault = Fault.ANOTHER_LEARNING_RATE_APPLIES
    symptoms = ("loss-does-not-fall", "nothing-is-learned")
    severity = "error"
    needs = ("learning_rate",)

    def unmet(self) -> Unmet | None:
        """Also unmet where DeepSpeed makes no optimizer beside a printed rate."""
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if self._configured_rate_under_deepspeed() is None:
            return Unmet(
                "it is about optimizers that DeepSpeed makes itself beside a printed rate, and there are none"
            )
        return None

    def measurement_if_clean(self) -> str:
        """The highest logged learning rate, and the one that is set."""
        peak = self.subject.curve("learning_rate").finite().value.max()
        return f"the learning rate is {peak:.3g} at the highest, and {self._configured_rate_under_deepspeed():g} is set"

    def findings(self) -> Iterator[Finding]:
        rate = self.subject.curve("learning_rate").finite()
        said = self._configured_rate_under_deepspeed()
        if said is None or not rate:
            return
        peak = float(rate.value.max())
        factor = peak / said
        if factor < MIN_FACTOR or _is_usual_scaling(factor):
            return
        yield self.finding(
            f"the run trains with a learning rate of {peak:.3g}, {factor:.3g} times the {said:g} of its command"
            " or options: DeepSpeed built the optimizer itself, from its own settings",
            f"set optimizer.params.lr in the DeepSpeed settings to {said:g} (and the peak of its scheduler), or write"
            " it there from the options before deepspeed.initialize; then start again from the base",
            severity="error" if factor >= MIN_ERROR_FACTOR else "warning",
            evidence=(
                "the output says `Using DeepSpeed Optimizer param name ... as basic optimizer`",
            ),
            figure=draw_curves("learning rate", {"learning_rate": rate}),
        )

    def _configured_rate_under_deepspeed(self) -> float | None:
        """The rate of the command or the options, where DeepSpeed made the optimizer; None where
        either is not said.
        """
        output = self.subject.output
        if output is None or not output.settings.engine_optimizer:
            return None
        return output.settings.learning_rate or None


def _is_usual_scaling(factor: float) -> bool:
    """Is a factor a power of two or its root, by which scripts scale a rate with processes or rows?"""
    doubled = 2 * math.log2(factor)
    return abs(doubled - round(doubled)) < MAX_SCALING_ERROR
